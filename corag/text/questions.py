"""What a question in English asks for, as far as its words tell: no language model reads it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from corag.text.documents import citation
from corag.text.units import Span, sentences_of
from corag.types import Chunk

NAMED, PLAIN = 3, 2
"""How plainly the title of a manual page and "... is a ..." define something; see `defines`."""
STEM = 5
"""Characters by which words are compared, so that "compresses" is "compressed"."""

COMMON = frozenset(
    {"a", "about", "after", "an", "and", "are", "as", "at", "be", "been", "before", "between", "by", "can",
     "could", "did", "do", "does", "during", "for", "from", "had", "has", "have", "he", "how", "if", "in",
     "into", "is", "it", "its", "may", "might", "not", "of", "on", "or", "over", "s", "she", "should", "so",
     "such", "than", "that", "the", "their", "then", "there", "these", "they", "this", "those", "to", "under",
     "was", "we", "were", "what", "when", "where", "which", "while", "who", "whom", "whose", "why", "will",
     "with", "would", "you"}
)  # fmt: skip
"""Words that say nothing about a question's subject."""

POINTS_BACK = re.compile(
    r"\W*(?:he|she|it|they|we|this|these|that|those|his|her|hers|its|their|such|there|here|both|however|also)\b",
    re.IGNORECASE,
)
"""Begins what may be understood only from what was said before it."""

_WORD = re.compile(r"\w+")
_NUMBERED = re.compile(r"(?<![\w.-])(?=[\w.-]*\d)[a-z](?:[\w.-]*\w)?", re.ASCII)

# Words that refer to something said before, and beginnings that go on from there.
_REFERS = re.compile(
    r"\b(?:it|its|itself|they|them|their|theirs|he|him|his|she|her|hers|this|that(?=\W*$)|these|those|one|ones|former"
    r"|latter|same|else|others?|another)\b|^\W*(?:and|but|or|so|then|also|what about|how about|what if|why not)\b",
    re.IGNORECASE,
)
_FEW = 2
_ASKING = frozenset(
    {"and", "are", "can", "did", "does", "for", "from", "has", "have", "how", "many", "much", "not", "the",
     "was", "were", "what", "when", "where", "which", "who", "whom", "whose", "why", "will", "with", "would",
     "you"}
)  # fmt: skip
# Words of a question that are seldom its subject.
_VAGUE = frozenset(
    {"i", "me", "my", "one", "any", "some", "use", "used", "using", "make", "made", "get", "set", "mean", "means",
     "happen", "happens", "work", "works", "change", "difference", "possible", "way", "need", "tell", "explain",
     "describe", "define", "am", "our", "your", "us", "all", "also", "but", "them", "him", "her", "his", "many", "much"}
)  # fmt: skip

_AMOUNT = (
    r"many|much|long|old|far|deep|high|tall|big|large|wide|fast|often|heavy|hot|cold|small|young|late|early|close|near"
    r"|likely|common|frequently"
)
_HOW = re.compile(rf"\bhow\s+(?:{_AMOUNT})\b", re.IGNORECASE)
_HAS_TO_DO = "causes?|symptoms?|treatments?|effects?|differences?|steps?|signs?|reasons?|ways?|complications?|benefits?"
_EXPLANATION = re.compile(
    rf"""\b(?:why|explain|describe|discuss|summari[sz]e|outline|compare|define|definition|meaning\ of|tell\ me\ about)\b
    |\bhow\ (?!(?:{_AMOUNT})\b)\w
    |\bwhat\ (?:causes|happens|research|to)\b
    |\bwhat\ (?:does|do|did)\b.*\b(?:do|mean|require|say)\b
    |\bwhat\ (?:is|are)\ (?:the\ )?(?:\w+\ ){{0,2}}(?:{_HAS_TO_DO})\b
    |^what\ (?:is|are|is\ \(are\))\ (?!the\b)(?:[\w'()-]+\ ?){{1,5}}\W*$""",
    re.IGNORECASE | re.VERBOSE,
)
_KIND = "command|function|library|option|package|program|statement|utility"
_DEFINED = re.compile(
    rf"^\W*what(?:\s+does\s+(?:the\s+)?(?P<doer>[\w'.-]+(?:\s+[\w'.-]+){{0,2}}?)\s+do\b[^,]*"
    rf"|(?:\s+(?:is|are)|['\u2019]s)\s+(?:the\s+(?=[^?]*\b(?:{_KIND})\W*$)|(?!the\b)(?:an?\s+)?)"
    r"(?P<thing>[\w'.-]+(?:\s+[\w'.-]+){0,2}?)(?:\s+(?:used\s+)?for|\s+(?:in|on|of|for)\s+[^,]*)?)\W*$",
    re.IGNORECASE,
)
# What does "-f" of "git add" do? The option counts as it is written: -f is not -F.
_OPTION = re.compile(
    r"^\W*(?i:what\s+(?:does\b(?=.*\b(?:do|mean)\b)|(?:is|are)\s+(?:the\s+)?(?=-))).*?(?<![\w-])"
    r"(?P<option>--?[^\W_][\w-]*)"
)
_OPTION_WORDS = frozenset({"optio", "flag", "switc", "param", "argum", "comma", "mean", "means", "used", "use"})
# Verbs that do not say what something does.
_NO_DEED = r"(?:does|has|needs|takes|was)\b"
_AUXILIARY = r"is|are|was|were|am|does|do|did|can|could|should|must|may|might|will|would|has|have|had"
_YES_NO = re.compile(rf"^\W*(?:{_AUXILIARY})(?:n't)?\b(?!.*\bor\b)", re.IGNORECASE)
_BETWEEN_PARTS = re.compile(
    r"\?\s+(?=\w)|,?\s+and\s+(?=(?:(?:in|at|to|for|by|from|with)\s+)?"
    rf"(?:what|which|who|whom|whose|where|when|why|how|{_AUXILIARY})\b)",
    re.IGNORECASE,
)


_LINK = r"(?:of|for|in|on|at|by|from|to|with)"
_SHARED = re.compile(
    rf"^(?P<head>(?!.*\?.)(?:(?!\b{_LINK}\b).)*)\b(?P<link>{_LINK})\s+(?P<one>[^,?]+?),?\s+and\s+(?P=link)\s+"
    rf"(?P<other>[^,?]+?)(?P<end>\s+{_LINK}\b[^?]*)?\W*$",
    re.IGNORECASE,
)


def stems(text: str) -> list[str]:
    """Return the beginnings of the words of a text without the common ones, in its order."""
    return [word[:STEM] for word in _WORD.findall(text.casefold()) if word not in COMMON]


def asks_to_explain(question: str) -> bool:
    """Return whether a question wants more than a few words: a reason, a way, a definition."""
    return _EXPLANATION.search(" ".join(question.split())) is not None


def defines(question: str, sentence: str) -> int:
    """Return how plainly a sentence says what a question asks to define: `NAMED`, `PLAIN`, 1, or 0 if it does not.

    It begins with what is asked for: "pump - moves ..." is `NAMED`, "A pump is a ..." `PLAIN`; "The pump command moves
    ..." and "A pump in a well is ..." are 1.
    """
    if (asked := _DEFINED.search(question)) is None:
        return 0
    name = re.sub(rf"(?<=\w)\s+(?:{_KIND})$", "", asked["thing"] or asked["doer"], flags=re.IGNORECASE)
    thing = r"[\W_]+".join(map(re.escape, _WORD.findall(name)))
    forms = (
        # The term of a list of definitions; a manual page, which may name several: "grep, egrep, fgrep - print lines".
        rf"{thing}[ \t]*\n[ \t]+\S|"
        rf"(?:[\w.+-]+,\s+){{0,9}}{thing}(?:,\s+[\w.+-]+){{0,9}}\s+[-\u2013\u2014]\s",
        rf"{thing}(?:\s*\([^)]*\)|,[^,.]{{1,60}},)?\s+(?:is|are)\s+(?:an?|any|one|the|used)\b",
        rf"{thing}(?:(?:\W+\w+){{0,5}}?\W+(?:is|are)\b|(?:\s+(?:{_KIND}))?\s+(?!{_NO_DEED})(?-i:[a-z]+s)\b)",
    )
    begins = (re.match(rf"\W*(?:(?:an?|the)\s+)?(?:{form})", sentence, re.IGNORECASE) for form in forms)
    return next((NAMED - number for number, match in enumerate(begins) if match), 0)


def definition(question: str, chunk: Chunk) -> tuple[int, Span | None]:
    """Return how plainly a passage defines what a question asks for, and the sentence that does so most plainly.

    An option is defined where a sentence begins with it, in a passage that has the other words of the question.
    """
    asked = _OPTION.search(question)
    if asked is None and _DEFINED.search(question) is None:
        return 0, None
    found = [
        (_describes(asked, sentence, chunk) if asked else defines(question, sentence), span)
        for span in sentences_of(chunk)
        if (sentence := chunk.text[slice(*span)])
    ]
    plainest, span = max(found, key=lambda one: one[0], default=(0, None))
    return plainest, span if plainest else None


def _describes(asked: re.Match[str], sentence: str, chunk: Chunk) -> int:
    """Return `NAMED` if a sentence begins with the option that is asked for, in a passage with the question's words."""
    begins = rf"(?:--?[^\s,]+(?:[ =][^\s,]+)?,\s+){{0,9}}{re.escape(asked['option'])}(?![\w-])"
    if re.match(begins, sentence) is None:
        return 0
    others = stems(asked.string[: asked.start("option")] + asked.string[asked.end("option") :])
    return NAMED if _OPTION_WORDS.union(stems(f"{citation(chunk)} {chunk.text}")).issuperset(others) else 0


def may_concern(question: str, texts: Sequence[str]) -> list[bool]:
    """Return which texts may be about what a question names by letters and digits, such as PX-1234.

    A text that names others of that form (PX-1243), and not this one, is about something else, however similar it
    reads. One that names none may use another name, as World War I for ww1.
    """
    names = [re.findall(r"[a-z]+|\d+", name) for name in _NUMBERED.findall(question.lower())]
    forms = ["[^a-z0-9]?".join(r"\d+" if part.isdigit() else part for part in parts) for parts in names]
    alike = re.compile(rf"(?<![a-z0-9])(?:{'|'.join(forms) or '(?!)'})(?![a-z0-9])")
    asked = set(map("".join, names))
    named = [{re.sub(r"[^a-z0-9]", "", name) for name in alike.findall(text.lower())} for text in texts]
    return [not of or not of.isdisjoint(asked) for of in named]


def is_yes_no(question: str) -> bool:
    """Return whether a question wants yes or no; a choice between two things does not."""
    return _YES_NO.search(question) is not None


def parts_of(question: str) -> list[str]:
    """Return the questions that a question consists of, each such that it can be understood alone; often one.

    A part that refers back to the one before it gets its subject. "Default of A and of B in C" asks for "Default of
    A in C" and "Default of B in C".
    """
    if shared := _SHARED.match(question.strip()):
        head, end = f"{shared['head']}{shared['link']}", shared["end"] or ""
        return [f"{head} {thing}{end}?" for thing in (shared["one"], shared["other"])]
    parts = [part.strip(" ,") for part in _BETWEEN_PARTS.split(question.strip())]
    if len(parts) < 2 or any((not stems(part) and not refers_back(part)) or len(part.split()) < 3 for part in parts):
        return [question]
    return [understood(part.rstrip("?") + "?", parts[:index]) for index, part in enumerate(parts)]


def refers_back(question: str) -> bool:
    """Return whether a question cannot be understood without what was said before it.

    It has a word such as "it" or "those", goes on with "and" or "what about", or names too little by itself.
    """
    named = {word for word in _WORD.findall(question.casefold()) if len(word) > 2 and word not in _ASKING}
    return len(named) < _FEW - (len(question.split()) > _FEW) or _REFERS.search(question) is not None


def understood(question: str, earlier: Sequence[str]) -> str:
    """Return a question that refers back with the subject of the last earlier one that does not; others as they are.

    Of a question that consists of several, the first one has to refer back: what follows may refer to that.
    """
    if not refers_back(_BETWEEN_PARTS.split(question.strip())[0]):
        return question
    about = next((subject(other) for other in reversed(earlier) if not refers_back(other)), "")
    return f"{question.strip()} ({about})" if about else question


def subject(question: str) -> str:
    """Return the words that name what a question is about: those that are neither common nor vague, each once."""
    words = [word.strip("?!.,;:\"'()") for word in _HOW.sub("", question).split()]
    return " ".join(dict.fromkeys(word for word in words if word and word.casefold() not in COMMON | _VAGUE))

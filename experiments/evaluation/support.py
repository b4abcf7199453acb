"""Evidence by sentence: which sentences of the gold passages support the answer.

Fields of a question that give it, in the order in which they are used:

- `supporting_spans: ["passage#start-end", ...]`, in characters of the passage's text;
- `supporting_facts: [[passage, [sentence, ...]], ...]`, as in HotpotQA (Yang et al., 2018), by number, counted from 0;
- `supporting_sentences: [text, ...]`, sentences of the gold passages;
- `answer_starts: [offset, ...]`, where each answer begins in the only gold passage, as in SQuAD;
- `answers`, which are looked for in the gold passages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from corag.text.data import Query, passage_at, passage_of
from corag.text.documents import Document, with_title
from corag.text.units import Range, Span, ranges_of, sentences_of
from corag.text.words import UNSPACED_RUN
from corag.types import Chunk
from experiments.evaluation.metrics import normalize_answer

Known = Literal["fact", "offset", "answer"]

CHOICES = frozenset({"yes", "no", "maybe", "true", "false"})
"""Answers that a text supports without containing them; it has these words by chance, a longer one more often."""


@dataclass(frozen=True, slots=True)
class SupportingSpan:
    """A sentence that supports an answer, as the data or the project's own splitter cuts it.

    Attributes:
        document: Id of its passage.
        start: Where it begins, in characters of the passage's text without the title.
        end: Where it ends, exclusive.
        known: How it is known: people marked it (`fact`), it holds an answer at an offset that people marked
            (`offset`), or it contains an answer (`answer`), perhaps by chance. All facts of a question are needed; of
            the others each one by itself may be enough.
    """

    document: str
    start: int
    end: int
    known: Known

    def is_held_by(self, chunk: Chunk) -> bool:
        """Return whether a chunk holds at least half of it: a whole passage always does."""
        if self.document != chunk.metadata.get("document", chunk.id):
            return False
        start, end = chunk.metadata.get("start"), chunk.metadata.get("end")
        if not isinstance(start, int) or not isinstance(end, int):
            return True
        return 2 * (min(end, self.end) - max(start, self.start)) >= self.end - self.start


@dataclass(frozen=True)
class Support:
    """A question's evidence below the passage.

    Attributes:
        spans: Its supporting sentences.
        answers: Answers that a context can hold; none if the gold passages hold none of them, or if the data says that
            the question has none (`answerable: false`).
        ranges: Characters of its gold, whole passages included; none if no gold is a span, or some is not in the
            corpus.
    """

    spans: tuple[SupportingSpan, ...] = ()
    answers: tuple[str, ...] = ()
    ranges: tuple[Range, ...] = ()

    @classmethod
    def of(cls, query: Query, documents: Mapping[str, Document]) -> Support:
        """Return the support of a question, given the corpus."""
        answers = tuple(findable_answers(query))
        gold = _gold(query, documents)
        literal = not gold or any(contains_answer(with_title(one.title, one.text), answers) for one in gold)
        chunks = [passage_at(entry, documents) for entry in query.gold]
        ranges: list[Range] = []
        if None not in chunks and not all(entry in documents for entry in query.gold):
            ranges = [found for chunk in chunks if chunk is not None for found in ranges_of(chunk) or ()]
        return cls(supporting_spans(query, documents), answers if literal else (), tuple(ranges))


def supporting_spans(query: Query, documents: Mapping[str, Document]) -> tuple[SupportingSpan, ...]:
    """Return the sentences that support a question's answers; none if nothing is known.

    Facts by number count sentences as their authors cut them. They are left out if a passage is cut otherwise here,
    which shows in that it has too few sentences, or that an answer is in the gold passages but in none of these.
    """
    gold, answers = _gold(query, documents), findable_answers(query)
    return (
        _spans(query, documents)
        or _facts(query, documents, gold, answers)
        or _containing(gold, query.extra.get("supporting_sentences"), "fact")
        or _offsets(query, gold)
        or _containing(gold, answers, "answer")
    )


def sentences(document: Document) -> list[Span]:
    """Return the spans of the sentences, list items, table rows and code blocks of a document."""
    return sentences_of(Chunk(document.id, document.text)) if document.text.strip() else []


def support_recall(spans: Sequence[SupportingSpan], chunks: Sequence[Chunk]) -> float | None:
    """Return the share of the supporting sentences that chunks hold, in [0, 1]; None if people marked none.

    Sentences that hold a marked answer count once together: one of them is enough.
    """
    marked = [span for span in spans if span.known != "answer"]
    held = [any(span.is_held_by(chunk) for chunk in chunks) for span in marked]
    if not marked:
        return None
    return sum(held) / len(held) if marked[0].known == "fact" else float(any(held))


def answer_spans(answer: str, text: str) -> list[Span]:
    """Return the spans of an answer in a text, between word borders, with any white space between its words.

    Case counts only if the answer is found as it is written.
    """
    words = answer.split()
    if not words:
        return []
    before = "" if UNSPACED_RUN.match(words[0][0]) else r"(?<!\w)"
    after = "" if UNSPACED_RUN.match(words[-1][-1]) else r"(?!\w)"
    pattern = before + r"\s+".join(map(re.escape, words)) + after
    exact = [match.span() for match in re.finditer(pattern, text)]
    return exact or [match.span() for match in re.finditer(pattern, text, re.IGNORECASE)]


def contains_answer(text: str, answers: Sequence[str]) -> bool:
    """Return whether a text holds one of the answers between word borders, both normalised as in SQuAD."""
    normalized = normalize_answer(text)
    return any(answer_spans(normalize_answer(answer), normalized) for answer in answers)


def _gold(query: Query, documents: Mapping[str, Document]) -> list[Document]:
    """Return the gold passages that the corpus has, each once."""
    names = (passage_of(entry, documents) for entry in query.gold)
    return [documents[name] for name in dict.fromkeys(names) if name is not None]


def findable_answers(query: Query) -> list[str]:
    """Return the answers that can be found in a text: neither empty nor one of `CHOICES`.

    None where no passage answers: what is said then, such as "I do not know", is in no text but by chance.
    """
    if not query.extra.get("answerable", True):
        return []
    return [answer for answer in query.answers if answer.strip() and answer.strip(" .").lower() not in CHOICES]


def _spans(query: Query, documents: Mapping[str, Document]) -> tuple[SupportingSpan, ...]:
    named = query.extra.get("supporting_spans")
    chunks = [passage_at(str(name), documents) for name in named] if isinstance(named, list) else []
    known = [chunk.metadata for chunk in chunks if chunk is not None]
    if len(known) < len(chunks):
        return ()
    return tuple(dict.fromkeys(SupportingSpan(row["document"], row["start"], row["end"], "fact") for row in known))


def _facts(
    query: Query, documents: Mapping[str, Document], gold: Sequence[Document], answers: Sequence[str]
) -> tuple[SupportingSpan, ...]:
    facts = query.extra.get("supporting_facts")
    spans: list[SupportingSpan] = []
    for fact in facts if isinstance(facts, list) else ():
        name, numbers = fact if isinstance(fact, list) and len(fact) == 2 else ("", -1)
        known = sentences(documents[str(name)]) if str(name) in documents else []
        for number in numbers if isinstance(numbers, list) else [numbers]:
            if not isinstance(number, int) or not 0 <= number < len(known):
                return ()
            spans.append(SupportingSpan(str(name), *known[number], "fact"))
    held = [
        f"{documents[span.document].title}\n{documents[span.document].text[span.start : span.end]}" for span in spans
    ]
    if _any_contains((document.text for document in gold), answers) and not _any_contains(held, answers):
        return ()
    order = {document.id: index for index, document in enumerate(gold)}
    return tuple(sorted(dict.fromkeys(spans), key=lambda span: (order.get(span.document, len(order)), span.start)))


def _any_contains(texts: Iterable[str], answers: Sequence[str]) -> bool:
    return any(answer_spans(answer, text) for text in texts for answer in answers)


def _offsets(query: Query, gold: Sequence[Document]) -> tuple[SupportingSpan, ...]:
    starts = query.extra.get("answer_starts")
    if not isinstance(starts, list) or len(starts) != len(query.answers) or len(gold) != 1:
        return ()
    marked = [
        (start, start + len(answer))
        for start, answer in zip(starts, query.answers, strict=True)
        if isinstance(start, int) and answer.strip() and gold[0].text.startswith(answer, start)
    ]
    return _touching(gold[0], marked, "offset")


def _containing(gold: Sequence[Document], quoted: Any, known: Known) -> tuple[SupportingSpan, ...]:
    """Return the sentences of the gold passages that contain quoted texts."""
    texts = [str(text) for text in quoted] if isinstance(quoted, list) else []
    spans: list[SupportingSpan] = []
    for document in gold:
        spans += _touching(document, [span for text in texts for span in answer_spans(text, document.text)], known)
    return tuple(spans)


def _touching(document: Document, marked: Sequence[Span], known: Known) -> tuple[SupportingSpan, ...]:
    """Return the sentences of a document that share characters with any of the marked spans."""
    return tuple(
        SupportingSpan(document.id, start, end, known)
        for start, end in (sentences(document) if marked else ())
        if any(first < end and start < last for first, last in marked)
    )

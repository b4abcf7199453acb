"""Evidence by sentence: which sentences of the gold passages support the answer, where a data folder tells.

Fields of a question that tell it, in the order in which they are asked:

- `supporting_spans: ["passage#start-end", ...]`, in characters of the passage's text;
- `supporting_facts: [[passage, [sentence, ...]], ...]`, as in HotpotQA (Yang et al., 2018), by number, counted from 0;
  one number may stand in place of the list;
- `supporting_sentences: [text, ...]`, sentences of the gold passages;
- `answer_starts: [place, ...]`, where each answer begins in the only gold passage, as in SQuAD;
- `answers`, which are looked for in the gold passages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from corag.memory import LRU
from corag.text.data import Query, passage_at, passage_of
from corag.text.documents import Document, passage
from corag.text.units import SENTENCE, Span, units
from corag.types import Chunk

Known = Literal["fact", "offset", "answer"]

CHOICES = frozenset({"yes", "no", "maybe", "true", "false"})
"""Answers that a text supports without holding them."""

# Thai, kana and Chinese characters: no space stands between words.
_UNSPACED = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")


@dataclass(frozen=True, slots=True)
class SupportingSpan:
    """A sentence that supports an answer, as the data or the project's own splitter cuts it.

    Attributes:
        document: Id of its passage.
        start: Where it begins, in characters of the passage's text without the title.
        end: Where it ends, exclusive.
        known: How it is known: people marked it (`fact`), it holds the place of an answer that people marked
            (`offset`), or an answer stands in it (`answer`), perhaps by chance. All facts of a question are needed; of
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


def supporting_spans(query: Query, documents: Mapping[str, Document]) -> tuple[SupportingSpan, ...]:
    """Return the sentences that support a question's answers; none where nothing is known.

    What people marked comes first; only where it cannot be used are answers looked for. Facts by number count sentences
    as their authors cut them. They are left out where a passage is cut otherwise here, which shows in that it has too
    few sentences, or that an answer stands in the gold passages but in none of these sentences.
    """
    for known in (_spans, _facts, _quoted, _offsets, _holding):
        if found := known(query, documents):
            return found
    return ()


def sentences(document: Document) -> tuple[Span, ...]:
    """Return where the sentences, list items, table rows and code blocks of a document are."""
    return _SENTENCES.get_many([document], lambda documents: list(map(_sentences, documents)))[0]


def support_recall(spans: Sequence[SupportingSpan], chunks: Sequence[Chunk]) -> float | None:
    """Return the share of the supporting sentences that chunks hold, in [0, 1]; None where people marked none.

    Sentences that hold a marked answer count once together: one of them is enough.
    """
    marked = [span for span in spans if span.known != "answer"]
    held = [any(span.is_held_by(chunk) for chunk in chunks) for span in marked]
    if not marked:
        return None
    return sum(held) / len(held) if marked[0].known == "fact" else float(any(held))


def places(answer: str, text: str) -> list[Span]:
    """Return where an answer stands in a text between word borders, with any white space between its words.

    Where it nowhere does as it is written, case does not count.
    """
    words = answer.split()
    if not words:
        return []
    before = "" if _UNSPACED.match(words[0][0]) else r"(?<!\w)"
    after = "" if _UNSPACED.match(words[-1][-1]) else r"(?!\w)"
    pattern = before + r"\s+".join(map(re.escape, words)) + after
    exact = [match.span() for match in re.finditer(pattern, text)]
    return exact or [match.span() for match in re.finditer(pattern, text, re.IGNORECASE)]


def findable(answers: Iterable[str]) -> list[str]:
    """Return the answers that can stand in a text: neither empty nor one of `CHOICES`."""
    return [answer for answer in answers if answer.strip() and answer.strip(" .").lower() not in CHOICES]


def _sentences(document: Document) -> tuple[Span, ...]:
    # Through the units of a passage, so that supporting sentences and what selectors choose from are the same spans.
    found = units(passage(document), SENTENCE)
    return tuple((int(one.metadata["start"]), int(one.metadata["end"])) for one in found if document.text.strip())


_SENTENCES: LRU[Document, tuple[Span, ...]] = LRU(16 * 10**6, kind="sentences")


def _gold(query: Query, documents: Mapping[str, Document]) -> list[Document]:
    names = (passage_of(entry, documents) for entry in query.gold)
    return [documents[name] for name in dict.fromkeys(names) if name is not None]


def _spans(query: Query, documents: Mapping[str, Document]) -> tuple[SupportingSpan, ...]:
    named = query.extra.get("supporting_spans")
    chunks = [passage_at(str(name), documents) for name in named] if isinstance(named, list) else []
    known = [one.metadata for one in chunks if one is not None]
    found = (SupportingSpan(one["document"], one["start"], one["end"], "fact") for one in known)
    return tuple(dict.fromkeys(found)) if len(known) == len(chunks) else ()


def _facts(query: Query, documents: Mapping[str, Document]) -> tuple[SupportingSpan, ...]:
    found = []
    for name, number in _pairs(query.extra.get("supporting_facts")):
        known = sentences(documents[name]) if name in documents else ()
        if not 0 <= number < len(known):
            return ()
        found.append(SupportingSpan(name, *known[number], "fact"))
    gold = _gold(query, documents)
    answers = findable(query.answers)
    held = [f"{documents[one.document].title}\n{documents[one.document].text[one.start : one.end]}" for one in found]
    if _any_stands(answers, (document.text for document in gold)) and not _any_stands(answers, held):
        return ()
    order = {document.id: place for place, document in enumerate(gold)}
    return tuple(sorted(dict.fromkeys(found), key=lambda one: (order.get(one.document, len(order)), one.start)))


def _pairs(facts: Any) -> Iterator[tuple[str, int]]:
    """Yield passage and number of each fact; number -1 for what is none."""
    for fact in facts if isinstance(facts, list) else ():
        name, numbers = fact if isinstance(fact, list) and len(fact) == 2 else ("", -1)
        for number in numbers if isinstance(numbers, list) else [numbers]:
            yield str(name), number if isinstance(number, int) else -1


def _any_stands(answers: Sequence[str], texts: Iterable[str]) -> bool:
    return any(places(answer, text) for text in texts for answer in answers)


def _quoted(query: Query, documents: Mapping[str, Document]) -> tuple[SupportingSpan, ...]:
    quoted = query.extra.get("supporting_sentences")
    texts = [str(text) for text in quoted] if isinstance(quoted, list) else []
    found: list[SupportingSpan] = []
    for document in _gold(query, documents):
        found += _touching(document, [span for text in texts for span in places(text, document.text)], "fact")
    return tuple(found)


def _offsets(query: Query, documents: Mapping[str, Document]) -> tuple[SupportingSpan, ...]:
    starts, gold = query.extra.get("answer_starts"), _gold(query, documents)
    if not isinstance(starts, list) or len(starts) != len(query.answers) or len(gold) != 1:
        return ()
    marked = [
        (start, start + len(answer))
        for start, answer in zip(starts, query.answers, strict=True)
        if isinstance(start, int) and answer.strip() and gold[0].text.startswith(answer, start)
    ]
    return _touching(gold[0], marked, "offset")


def _holding(query: Query, documents: Mapping[str, Document]) -> tuple[SupportingSpan, ...]:
    answers = findable(query.answers)
    found: list[SupportingSpan] = []
    for document in _gold(query, documents):
        found += _touching(document, [span for answer in answers for span in places(answer, document.text)], "answer")
    return tuple(found)


def _touching(document: Document, marked: Sequence[Span], known: Known) -> tuple[SupportingSpan, ...]:
    """Return the sentences of a document that share characters with any of the marked places."""
    return tuple(
        SupportingSpan(document.id, start, end, known)
        for start, end in sentences(document)
        if any(first < end and start < last for first, last in marked)
    )

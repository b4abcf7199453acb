"""What is shown of a reply: headline, label, text and passages. Terminal, `--json` and the page all show this."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any, NamedTuple

from corag.readers.context import closest
from corag.readers.passages import JudgingReader, Passage, place_of, spans_of
from corag.text.documents import SEPARATOR, body, citation
from corag.text.questions import parts_of
from corag.text.units import COLONS, INDENT, Span, UnitChunk, sentences_of, source_of
from corag.types import Answer, Chunk, Reader, Selection

LABELS = ((0.85, "very likely"), (0.6, "likely"))
"""What a probability that the shown text answers the question is called from which value on."""
LEAST = 0.11
"""Below this probability a passage is not even close to an answer."""
MAX_CLOSEST = 3
"""Passages that are shown where none is likely to answer."""

NOT_FOUND, NO_ANSWER = "not found", "none of the chosen passages answers the question"

MAX_SHOWN = 900
"""Characters up to which a passage is shown as a whole; of a longer one whole sentences are."""

_LINE_START = re.compile(r"[ \t]*(?=\S)")
_SPACE_OR_WORD = re.compile(r"\s+|\S+")
_HEADER = re.compile(r"\S.*[^\s|:+-].*")
_OWN_LINE = re.compile(r"[-*+•‣▪–]\s|\||\d{1,3}[.)]\s|```|~~~")  # noqa: RUF001
_OPTION = re.compile(r"--?[^\W_]")


class Reading(NamedTuple):
    """What a reader said about one of the questions that a question consists of.

    Passages are likeliest first, but for one that answers another of the questions as likely; see `readings`.
    """

    question: str
    answer: Answer
    passages: tuple[Passage, ...]


class ShownPassage(NamedTuple):
    """A passage as it is shown.

    Attributes:
        text: It, without its title; with line feeds between items of a list, rows and paragraphs.
        marked: Spans of the text that tell the answer.
        marker: Number of its source in brackets, such as `[1]`.
        chunk: Id of the chosen chunk that tells the answer.
        citation: Where it comes from.
    """

    text: str
    marked: tuple[Span, ...]
    marker: str
    chunk: str
    citation: str

    @property
    def pieces(self) -> list[tuple[str, bool]]:
        """The text, cut where marked spans begin and end, and whether each piece is marked."""
        return cut_at_marks(self.text, (0, len(self.text)), self.marked)


def cut_at_marks(text: str, whole: Span, marks: Sequence[Span]) -> list[tuple[str, bool]]:
    """Return a span of a text, cut where marked spans begin and end, and whether each piece is marked."""
    start, end = whole
    edges = {start, end, *(min(max(edge, start), end) for mark in marks for edge in mark)}
    return [
        (text[begin:stop], any(first <= begin and stop <= last for first, last in marks))
        for begin, stop in pairwise(sorted(edges))
    ]


@dataclass(frozen=True, slots=True)
class Shown:
    """What is shown of a reply.

    Attributes:
        headline: `answer`, with its label if it has one; `closest passages`; or `not found`.
        label: How likely the shown text answers the question, in words; see `LABELS`.
        probability: The same as a number; None if it is not known, as for a language model.
        text: What a language model wrote, or a few words of a passage. Empty if the passages are the answer.
        passages: What the answer is quoted from, best first.
        citations: Marker of a source -> id of the chosen chunk that the answer is based on.
        missing: Those of several questions in one that nothing is likely to answer.
        reason: Why nothing was found.
    """

    headline: str
    label: str | None = None
    probability: float | None = None
    text: str = ""
    passages: tuple[ShownPassage, ...] = ()
    citations: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    reason: str = ""

    @property
    def found(self) -> bool:
        """Whether it is headed as an answer."""
        return self.headline.startswith("answer")

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; `answer` is the text, or else the passages."""
        return {
            "headline": self.headline,
            "answer": self.text or "\n\n".join(passage.text for passage in self.passages),
            "certainty": self.label,
            "confidence": self.probability,
            "found": self.found,
            "passages": [
                {**passage._asdict(), "marked": [list(span) for span in passage.marked]} for passage in self.passages
            ],
            "citations": dict(self.citations),
            "missing": list(self.missing),
            "reason": self.reason,
        }


def label(probability: float) -> str | None:
    """Return a probability in words; None below all of `LABELS`."""
    return next((name for least, name in LABELS if probability >= least), None)


def readings(reader: Reader, question: str, answer: Answer, selection: Selection) -> tuple[Reading, ...]:
    """Return what is read for each question that a question consists of; the reader reads again if there are several.

    None if the reader judges no passages, or gave no answer, as with `min_confidence`.
    """
    if not isinstance(reader, JudgingReader) or not selection.chunks or not answer.text:
        return ()
    parts = parts_of(question)
    answers = [answer] if len(parts) == 1 else [reader.answer_from(part, selection) for part in parts]
    read: list[Reading] = []
    for part, said in zip(parts, answers, strict=True):
        first = read[0].passages[0] if read else None
        after = first.chunk if first and label(first.probability) else None
        read.append(Reading(part, said, reader.judge(part, said, selection, after)))
    return tuple(_by_own_span(one, read, selection) for one in read)


def _by_own_span(reading: Reading, read: Sequence[Reading], selection: Selection) -> Reading:
    """Return a reading whose likeliest passage answers another part as likely with that of the reader's span first.

    A passage about the same thing is close to both parts, whichever it answers. On twelve questions of two parts, with
    both, with either, and with a pronoun in the second, 38 of 48 then name what is missing and nothing else, and no
    part is lost without a word.
    """
    best, place = reading.passages[0], place_of(reading.answer.spans[0], selection) if reading.answer.spans else None
    others = [one.passages[0] for one in read if one is not reading]
    shared = any(one.chunk.id == best.chunk.id and one.probability >= best.probability for one in others)
    if not shared or place is None or place[0].id == best.chunk.id:
        return reading
    return reading._replace(passages=tuple(sorted(reading.passages, key=lambda one: one.chunk.id != place[0].id)))


def probability_of(read: Sequence[Reading]) -> float:
    """Return the probability that what is shown is right: of several questions, of the least likely answered one.

    If none is answered, it is that of the likeliest passage.
    """
    probabilities = [reading.passages[0].probability for reading in read]
    return min((one for one in probabilities if label(one)), default=max(probabilities))


def missing_of(read: Sequence[Reading]) -> tuple[str, ...]:
    """Return those of several questions in one that nothing is likely to answer."""
    return tuple(one.question for one in read if len(read) > 1 and not label(one.passages[0].probability))


def shown(answer: Answer, selection: Selection, read: Sequence[Reading] = ()) -> Shown:
    """Return what is shown of an answer, by its `readings`."""
    if not selection.text.strip() and not answer.text:  # a language model may answer without a context
        return Shown(NOT_FOUND, reason=selection.trace.reason or "nothing was chosen")
    if read:
        return _judged(selection, read)
    places = [place for span in answer.spans if (place := place_of(span, selection)) is not None]
    passages = _shown_passages(places, selection)
    cited = {passage.marker: passage.chunk for passage in passages} or cited_chunks(answer, selection)
    if not answer.text:
        return Shown(NOT_FOUND, passages=passages, reason=NO_ANSWER)
    if passages:  # of a reader that does not say how likely it is right
        return Shown("closest passages", passages=passages, citations=cited)
    return Shown("answer", text=answer.text, citations=cited)


def _judged(selection: Selection, read: Sequence[Reading]) -> Shown:
    """Return what is shown if the reader judged the passages."""
    probability = probability_of(read)
    headline, words = f"answer ({label(probability)})", ""
    if label(probability):
        best = [reading.passages[0] for reading in read if label(reading.passages[0].probability)]
        words = best[0].words if len(read) == 1 else ""
    else:
        ranked = [passage for reading in read for passage in reading.passages]
        if len(read) > 1:
            ranked.sort(key=lambda passage: -passage.probability)
        best = [passage for passage in ranked if passage.probability >= LEAST][:MAX_CLOSEST]
        headline = "closest passages" if best else NOT_FOUND
    telling = [(passage.chunk, span) for passage in best for span in passage.telling]
    passages = _shown_passages(telling, selection)
    citations = {passage.marker: passage.chunk for passage in passages}
    reason = "" if best else NO_ANSWER
    missing = missing_of(read)
    return Shown(headline, label(probability), probability, words, passages, citations, missing, reason)


def _shown_passages(telling: Sequence[tuple[Chunk, Span]], selection: Selection) -> tuple[ShownPassage, ...]:
    """Return the passages that spans are in, in the order of their first spans."""
    spans: dict[str, tuple[Chunk, list[Span]]] = {}
    for chunk, span in telling:
        spans.setdefault(chunk.id, (chunk, []))[1].append(span)
    numbers = markers(selection)
    passages: list[ShownPassage] = []
    for source, source_spans in spans.values():
        inside = [(index, chunk) for index, chunk in enumerate(selection.chunks) if source_of(chunk).id == source.id]
        # Of chosen sentences, the one that tells the answer, or else follows.
        index = next(
            (i for i, c in inside if not isinstance(c, UnitChunk) or source_spans[0][0] < c.span[1]), inside[-1][0]
        )
        text, marks = one_text(source, run_around(source, source_spans), source_spans)
        passages.append(ShownPassage(text, marks, numbers[index], selection.ids[index], citation(source)))
    return tuple(passages)


def one_text(source: Chunk, run: Span, telling: Sequence[Span]) -> tuple[str, tuple[Span, ...]]:
    """Return a run of a passage's text as it is shown, and where spans of the passage's text are in it.

    Lines of running text are joined; items of a list, rows of a table and paragraphs keep a line of their own, and so
    does what is set in below a line that it describes, such as an option.
    """
    text, last, begin = source.text, run[0], len(source.text) - len(body(source))
    pieces: list[str] = []
    offsets: list[int] = []  # of each shown character in the text
    spans = sentences_of(source)
    gaps = pairwise([(0, begin), *spans])  # headers of tables are no sentences
    spans += [match.span() for (_, end), (start, _) in gaps for match in _HEADER.finditer(text, end, start)]
    for start, end in sorted(spans):
        start, end = max(start, run[0]), min(end, run[1])
        if start >= end:
            continue
        parts = [(match.start(), match.end()) for match in _SPACE_OR_WORD.finditer(text, start, end)]
        is_code = text.startswith(("```", "~~~"), start)
        for first, stop in [(last, start), *parts] if pieces else parts:
            piece = text[first:stop]
            if first < start:
                breaks = "\n\n" in piece or ("\n" in piece and _OWN_LINE.match(text, start))
                piece = "\n" if breaks else _space(text, begin, first, stop)
            elif piece.isspace() and not is_code:
                piece = _space(text, begin, first, stop)
            pieces.append(piece)
            offsets += [min(first + index, stop - 1) for index in range(len(piece))]
        last = end
    marked = {(bisect_left(offsets, start), bisect_left(offsets, end)) for start, end in telling}
    return "".join(pieces), tuple(sorted(span for span in marked if span[0] < span[1]))


def _space(text: str, first: int, start: int, end: int) -> str:
    """Return how the white space between two words is shown: what is set in below a line that it describes stays so.

    `first` is where the text begins, behind its title.
    """
    line = _LINE_START.match(text, text.rfind("\n", 0, start) + 1, start)
    if "\n" not in text[start:end] or line is None or _OWN_LINE.match(text, line.end()):
        return " "
    is_option = _OPTION.match(text, line.end()) is not None
    if _OPTION.match(text, end) and (is_option or text[start - 1] in COLONS):
        return "\n"
    below = end - text.rfind("\n", start, end) - 1
    if line.start() == first and below != len(INDENT) and not is_option:
        return " "  # a passage may begin in the middle of a line
    return f"\n{INDENT}" if below > line.end() - line.start() else " "


def run_around(source: Chunk, telling: Sequence[Span]) -> Span:
    """Return the run of a passage's text that is shown: all of it, of a long one the sentences that tell the answer."""
    if len(source.text) <= MAX_SHOWN:
        return 0, len(source.text)
    first, last = min(start for start, _ in telling), max(end for _, end in telling)
    inside = [(start, end) for start, end in sentences_of(source) if start < last and first < end]
    return (inside[0][0], inside[-1][1]) if inside else (0, MAX_SHOWN)


# --- Sources ---


def markers(selection: Selection, *, cited: bool = False) -> list[str]:
    """Return the number of the source of each chosen chunk, such as `[1]`; sentences of one document share theirs.

    With `cited`, as a language model counts that cites by number: the parts that empty lines divide.
    """
    chunks, parts = selection.chunks, _parts(selection) if cited else []
    keys = [(isinstance(chunk, UnitChunk) or index, citation(chunk)) for index, chunk in enumerate(chunks)]
    made: list[str] = []
    for number, (_, group) in enumerate(groupby(range(len(keys)), key=keys.__getitem__), start=1):
        indices = list(group)
        numbers = sorted({parts[index][0] + 1 for index in indices}) if parts else [number]
        made += [f"[{numbers[0]}]" if len(numbers) == 1 else f"[{numbers[0]}-{numbers[-1]}]"] * len(indices)
    return made


def cited_chunks(answer: Answer, selection: Selection) -> dict[str, str]:
    """Return the markers that a language model cites, and the ids of the chunks that they refer to.

    If sentences were chosen, a marker refers to a whole document, and the sentence is the one that shares most words
    with the answer. A reply without markers cites the chunk that its words are from; a summary has no chunks.
    """
    numbers = markers(selection, cited=bool(answer.citations))
    spans, parts = spans_of(selection), _parts(selection)
    cited: dict[str, str] = {}
    for part in answer.citations or (() if answer.chunk is None else (answer.chunk,)):
        within = [index for index, its_parts in enumerate(parts) if part in its_parts]
        if within:
            best = within[closest(answer.text, [selection.text[slice(*spans[index])] for index in within])[0]]
            cited[f"[{part + 1}]" if answer.citations else numbers[best]] = selection.ids[best]
    return cited


def _parts(selection: Selection) -> list[range]:
    """Return in which parts of the context, which empty lines divide, each chunk is; none for a summary."""
    text = selection.text
    return [
        range(text.count(SEPARATOR, 0, start), text.count(SEPARATOR, 0, end) + 1) for start, end in spans_of(selection)
    ]

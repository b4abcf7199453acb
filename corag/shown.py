"""What is shown of a reply: headline, label, text and passages. Terminal, `--json` and the page all show this."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from typing import Any, NamedTuple, TypeAlias

from corag.readers.context import closest
from corag.readers.passages import JudgingReader, Passage, place_of, sentences_of, spans_of
from corag.text.documents import SEPARATOR, body, citation
from corag.text.questions import parts_of
from corag.text.units import COLONS, Span, UnitChunk, source_of
from corag.types import Answer, Chunk, Reader, Selection

LABELS = ((0.8, "very likely"), (0.6, "likely"))
"""What a probability that the shown text answers the question is called from which value on."""
LEAST = 0.1
"""Below this probability a passage is not even close to an answer."""
MAX_CLOSEST = 3
"""Passages that are shown where none is likely to answer."""

NOT_FOUND, NO_ANSWER = "not found", "none of the chosen passages answers the question"

MIN_SHOWN, MIN_BELOW, MAX_SHOWN = 200, 600, 900
"""Characters of a passage that are shown at least, if it has them; the same below a question or a colon; at most."""

Around: TypeAlias = Mapping[str, tuple[Chunk | None, Chunk | None]]
"""Id of a chunk -> the chunks before and after it in its document, where they are known."""

_SPACE = re.compile(r"\s+")
_OWN_LINE = re.compile(r"[-*+•‣▪–]\s|\||\d{1,3}[.)]\s|```|~~~")  # noqa: RUF001


class Reading(NamedTuple):
    """What a reader said about one of the questions that a question consists of; passages are likeliest first."""

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
        edges = sorted({0, len(self.text), *(edge for span in self.marked for edge in span)})
        return [
            (self.text[start:end], any(first <= start and end <= last for first, last in self.marked))
            for start, end in pairwise(edges)
        ]


@dataclass(frozen=True, slots=True)
class Shown:
    """What is shown of a reply.

    Attributes:
        headline: `answer`, with its label if it has one; `closest passages`; or `not found`.
        label: How likely the shown text answers the question, in words; see `LABELS`.
        probability: The same as a number; None if it is not known, as for a language model.
        text: What a language model wrote; yes or no; a few words of a passage. Empty if the passages are the answer.
        passages: What the answer is quoted from, best first.
        citations: Marker of a source -> id of the chosen chunk that the answer is based on.
        missing: Those of several questions in one that nothing answers.
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
    answers = [answer] if len(parts) == 1 else [reader.answer(part, selection.text) for part in parts]
    return tuple(
        Reading(part, said, reader.judge(part, said, selection)) for part, said in zip(parts, answers, strict=True)
    )


def shown(answer: Answer, selection: Selection, read: Sequence[Reading] = (), around: Around | None = None) -> Shown:
    """Return what is shown of an answer, by its `readings`; passages are shown with their neighbours, `around`."""
    around = around or {}
    if not selection.text.strip() and not answer.text:  # a language model may answer without a context
        return Shown(NOT_FOUND, reason=selection.trace.reason or "nothing was chosen")
    if read:
        return _judged(selection, read, around)
    places = [place for span in answer.spans if (place := place_of(span, selection)) is not None]
    passages = _shown_passages(places, selection, around)
    cited = {passage.marker: passage.chunk for passage in passages} or cited_chunks(answer, selection)
    if not answer.text:
        return Shown(NOT_FOUND, passages=passages, reason=NO_ANSWER)
    if passages:  # of a reader that does not say how likely it is right
        return Shown("closest passages", passages=passages, citations=cited)
    return Shown("answer", text=answer.text, citations=cited)


def _judged(selection: Selection, read: Sequence[Reading], around: Around) -> Shown:
    """Return what is shown if the reader judged the passages."""
    likely = [one for one in read if label(one.passages[0].probability) is not None]
    if likely:
        best = [one.passages[0] for one in likely]
        probability = min(passage.probability for passage in best)
        headline, words = f"answer ({label(probability)})", best[0].words if len(read) == 1 else ""
    else:
        ranked = sorted((passage for one in read for passage in one.passages), key=lambda one: -one.probability)
        best = [passage for passage in ranked if passage.probability >= LEAST][:MAX_CLOSEST]
        probability = ranked[0].probability
        headline, words = "closest passages" if best else NOT_FOUND, ""
    telling = [(passage.chunk, span) for passage in best for span in passage.telling]
    passages = _shown_passages(telling, selection, around)
    missing = tuple(one.question for one in read if likely and one not in likely)
    citations = {passage.marker: passage.chunk for passage in passages}
    reason = "" if best else NO_ANSWER
    return Shown(headline, label(probability), probability, words, passages, citations, missing, reason)


def _shown_passages(
    telling: Sequence[tuple[Chunk, Span]], selection: Selection, around: Around
) -> tuple[ShownPassage, ...]:
    """Return the passages that spans are in, each once, in the order of their first spans."""
    spans: dict[str, tuple[Chunk, list[Span]]] = {}
    for chunk, span in telling:
        spans.setdefault(chunk.id, (chunk, []))[1].append(span)
    return tuple(_shown_passage(chunk, inside, selection, around) for chunk, inside in spans.values())


def _shown_passage(source: Chunk, telling: Sequence[Span], selection: Selection, around: Around) -> ShownPassage:
    inside = [(index, chunk) for index, chunk in enumerate(selection.chunks) if source_of(chunk).id == source.id]
    # Of chosen sentences, the one that tells the answer, or else follows.
    index = next((i for i, c in inside if not isinstance(c, UnitChunk) or telling[0][0] < c.span[1]), inside[-1][0])
    wide, shift = widened(source, *around.get(source.id, (None, None)))
    telling = [(start + shift, end + shift) for start, end in telling]
    text, marked = one_text(wide, run_around(wide, telling), telling)
    return ShownPassage(text, marked, markers(selection)[index], selection.ids[index], citation(source))


def widened(source: Chunk, before: Chunk | None, after: Chunk | None) -> tuple[Chunk, int]:
    """Return a chunk with the text of its neighbours in its document, and by how much its own text is shifted."""
    own = body(source)
    title = len(source.text) - len(own)
    first = "" if before is None else body(before) + _between(before, source)
    last = "" if after is None else _between(source, after) + body(after)
    return replace(source, text=source.text[:title] + first + own + last), len(first)


def _between(one: Chunk, next_one: Chunk) -> str:
    """Return the white space between two neighbouring chunks: a paragraph's end unless they meet in one."""
    return "\n" if next_one.metadata.get("start", 0) - one.metadata.get("end", 0) < 2 else SEPARATOR


def one_text(source: Chunk, run: Span, telling: Sequence[Span]) -> tuple[str, tuple[Span, ...]]:
    """Return a run of a passage's text as it is shown, and where spans of the passage's text are in it.

    Lines of running text are joined; items of a list, rows of a table and paragraphs keep a line of their own.
    """
    text, shown_text, last = source.text, "", None
    marked: dict[Span, Span] = {}
    for start, end in sentences_of(source):
        start, end = max(start, run[0]), min(end, run[1])
        if start >= end:
            continue
        if last is not None:
            breaks = "\n\n" in text[last:start] or ("\n" in text[last:start] and _OWN_LINE.match(text, start))
            shown_text += "\n" if breaks else " "
        is_code = text.startswith(("```", "~~~"), start)
        edges = sorted({start, end, *(min(max(edge, start), end) for span in telling for edge in span)})
        begin: dict[int, int] = {}
        for first, until in pairwise(edges):
            begin[first] = len(shown_text)
            shown_text += text[first:until] if is_code else _SPACE.sub(" ", text[first:until])
        begin[end] = len(shown_text)
        for span in telling:
            if span[0] < end and start < span[1]:
                here = (begin[max(span[0], start)], begin[min(span[1], end)])
                marked[span] = (marked[span][0], here[1]) if span in marked else here
        last = end
    return shown_text, tuple(sorted(set(marked.values())))


def run_around(source: Chunk, telling: Sequence[Span]) -> Span:
    """Return the run of a passage's text that is shown: whole paragraphs around the sentences that tell the answer.

    A heading, a question or a line that ends with a colon comes with what follows it, and a list or the description of
    an option with what leads into it, so that steps and commands are whole. Paragraphs longer than `MAX_SHOWN` are cut
    after a sentence.
    """
    text = source.text
    spans = sentences_of(source)
    paragraphs = [[spans[0]]]
    for last, span in pairwise(spans):
        paragraphs += [[]] if "\n\n" in text[last[1] : span[0]] else []
        paragraphs[-1].append(span)
    inside = [any(span[0] < one[1] and one[0] < span[1] for span in part for one in telling) for part in paragraphs]
    first = inside.index(True) if any(inside) else 0
    until = len(inside) - inside[::-1].index(True) if any(inside) else 1

    def size(first: int, until: int) -> int:
        return paragraphs[until - 1][-1][1] - paragraphs[first][0][0]

    opens = any(text[slice(*span)].rstrip().endswith(("?", *COLONS)) for span in telling)
    least = MIN_BELOW if opens else MIN_SHOWN
    while first > 0 and size(first - 1, until) <= MAX_SHOWN:
        begins, leads = text[paragraphs[first][0][0]], text[paragraphs[first - 1][-1][1] - 1]
        if not (begins.islower() or leads in COLONS or _OWN_LINE.match(text, paragraphs[first][0][0])):
            break
        first -= 1
    while until < len(paragraphs) and size(first, until) < least:
        until += 1
    sentences = [span for part in paragraphs[first:until] for span in part]
    start, last_told = sentences[0][0], max((one[1] for one in telling), default=0)
    if last_told - start > MAX_SHOWN:  # one long paragraph: from the telling sentence on
        start = max(span[0] for span in sentences if span[0] <= min(one[0] for one in telling))
    ends = [span[1] for span in sentences if span[1] <= max(start + MAX_SHOWN, last_told)]
    return start, max([*ends, min(last_told, sentences[-1][1])])


# --- Sources ---


def markers(selection: Selection, *, cited: bool = False) -> list[str]:
    """Return the number of the source of each chosen chunk, such as `[1]`; sentences of one document share theirs.

    With `cited`, as a language model counts that cites by number: the parts that empty lines divide.
    """
    chunks, spans = selection.chunks, spans_of(selection)
    keys = [(isinstance(chunk, UnitChunk) or index, citation(chunk)) for index, chunk in enumerate(chunks)]
    made: list[str] = []
    for number, (_, group) in enumerate(groupby(range(len(keys)), key=keys.__getitem__), start=1):
        indices, parts = list(group), [number]
        if cited and spans:
            parts = sorted({selection.text.count(SEPARATOR, 0, spans[index][0]) + 1 for index in indices})
        made += [f"[{parts[0]}]" if len(parts) == 1 else f"[{parts[0]}-{parts[-1]}]"] * len(indices)
    return made


def cited_chunks(answer: Answer, selection: Selection) -> dict[str, str]:
    """Return the markers that a language model cites, and the ids of the chunks that they refer to.

    If sentences were chosen, a marker refers to a whole document, and the sentence is the one that shares most words
    with the answer. A reply without markers cites the chunk that its words are from; a summary has no chunks.
    """
    parts = answer.citations or (() if answer.chunk is None else (answer.chunk,))
    numbers = markers(selection, cited=bool(answer.citations))
    cited: dict[str, str] = {}
    for part in parts:
        if (index := _chunk_of(part, answer, selection)) is not None:
            cited[f"[{part + 1}]" if answer.citations else numbers[index]] = selection.ids[index]
    return cited


def _chunk_of(part: int, answer: Answer, selection: Selection) -> int | None:
    """Return the position of the chunk in a part of the context; a chunk with empty lines is several parts."""
    texts, spans = selection.text.split(SEPARATOR), spans_of(selection)
    begin = sum(len(text) + len(SEPARATOR) for text in texts[:part])
    end = begin + len(texts[part])
    within = [index for index, (start, _) in enumerate(spans) if begin <= start < end]
    if len(within) < 2:
        return next((index for index, (_, stop) in enumerate(spans) if begin < stop), None)
    return within[closest(answer.text, [selection.text[slice(*spans[index])] for index in within])[0]]

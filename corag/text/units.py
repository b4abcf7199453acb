"""Chunks into units, the pieces that a selector chooses from: sentences, or windows of neighbouring ones.

A unit is a span of its chunk. It knows its leads, what is needed before it to be understood: the header of its table,
the line that leads into its list. `assemble` puts chosen units back together.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import NamedTuple

from corag.ambient import watched
from corag.errors import InputError
from corag.memory import LRU
from corag.text.chunking import COLONS, ITEM, sentence_spans
from corag.text.chunking import Span as Span
from corag.text.documents import SEPARATOR, body, body_of
from corag.types import Chunk

GAP, LINE_GAP = " … ", "\n…\n"
"""Mark what was left out of a line, and between lines."""
MAX_CHARACTERS = 800
"""A longer sentence is cut after a clause, else after a word, else in a word."""
MAX_WINDOW = 1000
"""Sentences of a unit; passages have fewer."""

_CLAUSE = re.compile(r"[;:,،、，；—–]\s*(?=\S)")  # noqa: RUF001
_CELL = re.compile(r"\|\s*(?=\S)")
_BREAK = re.compile(r"\n\s*(?=\S)")
_SPACE = re.compile(r"\s+(?=\S)")
_WORD = re.compile(r"\S")
_OPENS = "?:\uff1a\uff1f\u061f"
_MAX_PLAIN_HEADING = 60
ENDS = ".!?\u2026;,。！？；，、।॥۔؟؛،։።။។៕།"  # noqa: RUF001
"""What no heading or term ends with."""

Range = tuple[str, int, int]
"""Characters of a document: its id, the first, and the one behind the last."""

SENTENCE = 1
"""The size of the unit `sentence`; see `unit_size`."""


def unit_size(unit: str) -> int | None:
    """Return how many neighbouring sentences are chosen together; None for a `passage`, as it was retrieved.

    Raises:
        InputError: It is neither `passage`, `sentence` nor `window(n)`.
    """
    if unit == "passage":
        return None
    if unit == "sentence":
        return SENTENCE
    window = re.fullmatch(r"window\( *([0-9]{1,9}) *\)", str(unit))
    if window is not None and 0 < int(window[1]) <= MAX_WINDOW:
        return int(window[1])
    raise InputError(
        f"unit is {unit!r:.80}; it must be passage, sentence, or window(n) with n sentences, at most {MAX_WINDOW}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitChunk(Chunk):
    """A unit, as a chunk: its text is title, leads, and its own.

    Its id is `docid#start-end`, in characters of the document if the chunk knows its offsets there, else of the chunk's
    text behind the title.

    Attributes:
        source: The chunk that it is part of.
        span: Its offsets in the text of `source`, without white space at its ends.
        leads: Offsets there of its leads.
        body: Where the text of `source` begins, behind the title.
    """

    source: Chunk
    span: Span
    leads: tuple[Span, ...] = ()
    body: int = 0

    @property
    def document(self) -> str:
        """The document that it is part of; its source where it is not known from where to where that is."""
        place = place_of(self.source)
        return self.source.id if place is None else place[0]

    @property
    def shift(self) -> int:
        """What has to be added to offsets in the text of `source` to get those in the document."""
        return _shift(self.source, self.body)

    @property
    def place(self) -> Span:
        """Its span in the document."""
        return self.span[0] + self.shift, self.span[1] + self.shift


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedChunk(Chunk):
    """A chunk of which it is known where in a document its text is, though its metadata do not say so.

    Attributes:
        place: The characters of its text, behind the title.
    """

    place: Range


def source_of(chunk: Chunk) -> Chunk:
    """Return the chunk that a unit is part of; any other chunk as it is."""
    return chunk.source if isinstance(chunk, UnitChunk) else chunk


def ranges_of(chunk: Chunk) -> list[Range] | None:
    """Return the characters of a document that a chunk shows, leads included, title excluded; None if not known."""
    if (place := place_of(chunk)) is None:
        return None
    if isinstance(chunk, UnitChunk):
        leads = [lead for lead in chunk.leads if not _is_repeated(chunk, lead)]
        return [(chunk.document, start + chunk.shift, end + chunk.shift) for start, end in (chunk.span, *leads)]
    return [place]


def units(chunk: Chunk, size: int | None, most_led: int = MAX_CHARACTERS) -> list[Chunk]:
    """Return the units of a chunk of some `unit_size`, in its order; the chunk itself where it has no words.

    A row of a table, an item of a list and a block of code are each one unit, unless longer than `MAX_CHARACTERS`. A
    line that needs what follows it to be understood (a heading, one with a colon at its end, a question, a term above
    its description) is one unit with that. One with a colon and all of the list, table or indented lines below it are
    one unit, too, if they have at most `most_led` characters; else it leads into each item and row.
    """
    if size is None:
        return [chunk]
    body = body_of(chunk)
    pieces = list(_with_led(_with_openings(_pieces(chunk.text, body)), most_led))
    # What a chunk repeats of the text before it, such as what leads into its list, is no part of its own.
    place = place_of(chunk)
    own = body if place is None else place[1] - _shift(chunk, body)
    made: list[Chunk] = []
    for first in watched(range(0, len(pieces), size)):
        window = pieces[first : first + size]
        span = (window[0].span[0], window[-1].span[1])
        leads = tuple(dict.fromkeys(lead for piece in window for lead in piece.leads if lead[1] <= span[0]))
        if span[0] < own < span[1]:
            leads, span = (*leads, _stripped(chunk.text, span[0], own)), _stripped(chunk.text, own, span[1])
        made.append(_unit(chunk, span, leads, body))
    if len(made) == 1:
        # All of a chunk keeps its name.
        made = [replace(made[0], id=chunk.id)]
    return made or [chunk]


def sentences_of(chunk: Chunk) -> list[Span]:
    """Return the spans of a passage's sentences; its whole text if it is one."""
    return [piece.span for piece in _pieces(chunk.text, body_of(chunk))] or [(0, len(chunk.text))]


def assemble(chosen: Sequence[Chunk]) -> tuple[str, list[Span]]:
    """Return the text of chosen chunks, and the span in it of what each shows; see `disjoint`.

    Units of one document, and chunks of it that overlap, are in its order below one title, at the position of the first
    that was chosen; those of its parts with titles of their own, such as headings, below these. Neighbours are joined
    as they are in the document, and what was left out between others is marked. Other chunks stay as they are, but a
    text that is below several titles is there once, below all of them.
    """
    parts = disjoint(chosen)
    by_document: dict[tuple[str, str] | int, list[int]] = {}
    for position, part in enumerate(parts):
        if part is not None:
            by_document.setdefault(_part_of(part) if isinstance(part, UnitChunk) else position, []).append(position)
    shown: dict[tuple[str, int], list[tuple[str, dict[int, Span]]]] = {}  # text -> its titles, each with what it shows
    for number, positions in enumerate(by_document.values()):
        title, text, within = _rendered(parts, positions)
        # What has no title may be an answer of its own.
        shown.setdefault((text, -1 if title and text else number), []).append((title, within))
    whole, spans = "", [(0, 0)] * len(chosen)
    for (text, _), titled in shown.items():
        whole += SEPARATOR if whole else ""
        starts = [len(whole) + sum(len(title) for title, _ in titled[:number]) for number in range(len(titled) + 1)]
        whole += "".join(title for title, _ in titled) + text
        for begun, (_, within) in zip(starts, titled, strict=False):
            for position, (start, end) in within.items():
                is_whole = not isinstance(parts[position], UnitChunk)
                spans[position] = begun if is_whole else starts[-1] + start, starts[-1] + end
    for position, part in enumerate(parts):
        if part is None:
            unit = _as_unit(chosen[position])
            start = whole.find(unit.source.text[slice(*unit.span)])
            spans[position] = (start, start + unit.span[1] - unit.span[0])
    return whole, spans


def _rendered(parts: Sequence[Chunk | None], positions: Sequence[int]) -> tuple[str, str, dict[int, Span]]:
    """Return the title of a chunk, or of units of one document, their text below it, and where in that each is."""
    first = parts[positions[0]]
    assert first is not None
    if not isinstance(first, UnitChunk):
        title, text = first.text[: body_of(first)], body(first)
        return title, text, {positions[0]: (0, len(text))}
    text, spans = "", {}
    last: UnitChunk | None = None
    for unit, at in _in_order(parts, positions):
        text += _joint(last, unit)
        start, end = unit.span
        if at is not None:
            spans[at] = (len(text), len(text) + end - start)
        text += unit.source.text[start:end]
        last = unit
    return first.source.text[: first.body], text, spans


def disjoint(chosen: Sequence[Chunk]) -> list[Chunk | None]:
    """Return what each chosen chunk shows: itself, or if it overlaps another one, its part; None if nothing is left.

    What chunks of a document with one title have in common is shown by the first of them in it. They overlap where
    their texts are the same between the same offsets in it.
    """
    parts: list[Chunk | None] = list(chosen)
    of_part: dict[tuple[str, str], list[tuple[int, UnitChunk]]] = {}
    for position, chunk in enumerate(chosen):
        if place_of(source_of(chunk)) is not None:
            unit = _as_unit(chunk)
            of_part.setdefault(_part_of(unit), []).append((position, unit))
    for units_of_part in of_part.values():
        furthest: tuple[int, UnitChunk] | None = None
        for position, unit in sorted(units_of_part, key=lambda one: (one[1].place[0], -one[1].place[1], one[0])):
            if furthest and (rest := _behind(furthest[1], unit)) is not unit:
                parts[position], holder = rest, parts[furthest[0]]
                parts[furthest[0]] = holder and _as_unit(holder)  # so that both are below one title
            if furthest is None or unit.place[1] > furthest[1].place[1]:
                furthest = position, unit
    return parts


def _as_unit(chunk: Chunk) -> UnitChunk:
    """Return a chunk as the unit that is all of it."""
    if isinstance(chunk, UnitChunk):
        return chunk
    body = body_of(chunk)
    span = _stripped(chunk.text, body, len(chunk.text))
    return UnitChunk(chunk.id, chunk.text, chunk.metadata, source=chunk, span=span, body=body)


def _part_of(unit: UnitChunk) -> tuple[str, str]:
    """Return the document of a unit, and the title that it is below."""
    return unit.document, unit.source.text[: unit.body]


def _behind(before: UnitChunk, unit: UnitChunk) -> UnitChunk | None:
    """Return a unit without what one that begins before it in their document shows; None if that is all of it."""
    start, end = unit.place[0], min(unit.place[1], before.place[1])
    shown, own = (one.source.text[start - one.shift : end - one.shift] for one in (before, unit))
    if start >= end or shown != own:
        return unit
    span = _stripped(unit.source.text, end - unit.shift, unit.span[1])
    return replace(unit, span=span) if span[0] < span[1] else None


class ChosenPart(NamedTuple):
    """The chosen part of one chunk: all of it, or some of its sentences.

    Attributes:
        chunk: The chunk as it was offered.
        text: Its text without the title; gaps between sentences are marked.
        spans: Spans of the chosen sentences in the text of the chunk without its title; empty for all of it.
    """

    chunk: Chunk
    text: str
    spans: Sequence[Sequence[int]] = ()


def chosen_parts(chosen: Sequence[Chunk]) -> list[ChosenPart]:
    """Return the chosen part of each chunk, in the order of the first choice from each; see `disjoint`."""
    by_source: dict[str, list[Chunk]] = {}
    for chunk in disjoint(chosen):
        if chunk is not None:
            by_source.setdefault(source_of(chunk).id, []).append(chunk)
    parts = []
    for of_source in by_source.values():
        if units := [chunk for chunk in of_source if isinstance(chunk, UnitChunk)]:
            first = units[0]
            spans = sorted([unit.span[0] - first.body, unit.span[1] - first.body] for unit in units)
            parts.append(ChosenPart(first.source, assemble(units)[0][first.body :], spans))
        else:
            parts.append(ChosenPart(of_source[0], body(of_source[0])))
    return parts


def text_alone(chunk: Chunk) -> str:
    """Return what `assemble` makes of a single chunk; a unit may have a mark behind its leads."""
    return assemble([chunk])[0] if isinstance(chunk, UnitChunk) and chunk.leads else chunk.text


def _in_order(parts: Sequence[Chunk | None], positions: Sequence[int]) -> Iterator[tuple[UnitChunk, int | None]]:
    """Yield these units and their leads in the order of their document, without leads that others contain."""
    wanted: list[tuple[UnitChunk, int | None]] = []
    for position in positions:
        unit = parts[position]
        assert isinstance(unit, UnitChunk)
        wanted += [(replace(unit, span=lead, leads=()), None) for lead in unit.leads]
        wanted.append((unit, position))
    reached = -math.inf
    shown: set[str] = set()
    for unit, at in sorted(wanted, key=lambda one: (one[0].place[0], -one[0].place[1], one[1] is None)):
        text = unit.source.text[slice(*unit.span)]
        is_shown = at is None and _is_repeated(unit, unit.span) and text in shown
        if at is not None or (unit.place[1] > reached and not is_shown):
            yield unit, at
        shown |= {text, text.partition("\n")[0].rstrip()}
        reached = max(reached, unit.place[1])


def _joint(last: UnitChunk | None, unit: UnitChunk) -> str:
    """Return what joins two units of a document: white space for neighbours, else a mark."""
    if last is None:
        return ""
    end, start = last.place[1], unit.place[0]
    if start < end or (unit.source is not last.source and _is_repeated(unit, unit.span)):
        return LINE_GAP
    if start - last.shift < len(last.source.text):
        between = last.source.text[last.span[1] : start - last.shift]
    elif unit.body + unit.shift <= end:
        between = unit.source.text[end - unit.shift : unit.span[0]]
    else:
        # In neighbouring chunks; white space at their borders may have been cut off.
        rest = last.source.text[last.span[1] :] + unit.source.text[unit.body : unit.span[0]]
        meet = len(last.source.text) + last.shift == unit.body + unit.shift
        return rest or " " if meet and not rest.strip() else LINE_GAP
    if not between.strip():
        return between
    return LINE_GAP if "\n" in between else GAP


def _is_repeated(unit: UnitChunk, span: Span) -> bool:
    """Return whether a part of a unit's source is before its place in the document, as a table's repeated header is."""
    place = place_of(unit.source)
    return place is not None and span[0] + unit.shift < place[1]


def _unit(chunk: Chunk, span: Span, leads: tuple[Span, ...], body: int) -> UnitChunk:
    place = place_of(chunk)
    document = chunk.id if place is None else place[0]
    shift = _shift(chunk, body)
    start, end = span[0] + shift, span[1] + shift
    lines = [chunk.text[first:last] for first, last in leads]
    text = chunk.text[:body] + "\n".join([*lines, chunk.text[span[0] : span[1]]])
    metadata = {**chunk.metadata, "start": start, "end": end}
    name = f"{document}#{start}-{end}"
    return UnitChunk(name, text, metadata, source=chunk, span=span, leads=leads, body=body)


def _shift(chunk: Chunk, body: int) -> int:
    # From the end: a header of a table may be repeated between title and text.
    place = place_of(chunk)
    return -body if place is None else place[2] - len(chunk.text)


def place_of(chunk: Chunk) -> Range | None:
    """Return the characters of a document that a chunk is, by its metadata if nothing else says it, or None.

    Metadata of others may call seconds or pages `start` and `end`: these are characters if the chunk's name says so,
    too, or if its text has as many.
    """
    if isinstance(chunk, PlacedChunk):
        return chunk.place
    document, start, end = (chunk.metadata.get(name) for name in ("document", "start", "end"))
    if document is None or not isinstance(start, int) or not isinstance(end, int):
        return None
    if not chunk.id.endswith(f"#{start}-{end}") and end - start != len(chunk.text) - body_of(chunk):
        return None
    return str(document), start, end


class _UnitSpan(NamedTuple):
    span: Span
    leads: tuple[Span, ...] = ()
    is_led: bool = False
    """Whether the first lead is a line with a colon at its end, rather than the header of a table alone."""
    opens: str = ""
    """What makes the next piece needed to understand it: it is a "line" of its own, or a plain "heading"."""


def _pieces(text: str, body: int) -> tuple[_UnitSpan, ...]:
    return _PIECES.get_many([(text, body)], lambda keys: [_cut_up(*key) for key in keys])[0]


def _cut_up(text: str, body: int) -> tuple[_UnitSpan, ...]:
    blocks = _Blocks(text)
    indents: dict[int, int] = {}
    end = body
    for line in watched(io.StringIO(text[body:])):
        start, end = end, end + len(line)
        indent = len(line) - len(line.lstrip())
        indents[start + indent] = indent
        blocks.read(start, end)
    blocks.finish()
    pieces = (piece for piece in blocks.pieces if piece.span[0] < piece.span[1])
    return tuple(piece._replace(opens=_opens(text, piece, indents)) for piece in watched(pieces))


def _opens(text: str, piece: _UnitSpan, indents: Mapping[int, int]) -> str:
    """Return whether a piece needs the next one to be understood, by its form alone; see `_UnitSpan.opens`.

    `indents` has the offset of the first word of each line, and the width of the space before it.
    """
    start, end = piece.span
    own, following = text[start:end], _WORD.search(text, end)
    if following is None or following.start() not in indents or _is_row(own) or _fence_of(own):
        return ""
    coming = following.start()
    lines = own.split("\n")
    underlined = len(lines) == 2 and lines[1] in ("=" * len(lines[1]), "-" * len(lines[1]))
    marks = own.split(maxsplit=1)[0]
    if own[-1] in _OPENS or underlined or (marks == "#" * len(marks) and 0 < len(marks) < 7 and len(own) > len(marks)):
        return "line"
    if piece.leads or ITEM.match(own) or start not in indents:
        return ""
    if len(lines) > 1 or own[-1] in ENDS:
        return ""
    if indents[coming] > indents[start]:
        return "line"
    is_heading = len(own) <= _MAX_PLAIN_HEADING and own[0] not in "-*+\u2022|`~"
    return "heading" if is_heading and text.count("\n", end, coming) > 1 else ""


def _is_row(line: str) -> bool:
    before, *cells = line.partition("\n")[0].split("|")
    return len(cells) > 1 and (not before.strip() or cells[0] != "")


def is_fence(text: str) -> bool:
    """Return whether a text is the marks around a block of code alone, with the name of a language perhaps."""
    return "\n" not in text.strip() and _fence_of(text.strip()) != ""


def _fence_of(line: str) -> str:
    """Return the marks that begin a block of code; none if the line has code within it."""
    marked = line.lstrip().partition("\n")[0]
    code = marked.lstrip(marked[:1])
    fence = marked[: len(marked) - len(code)]
    return fence if len(fence) > 2 and (fence[0] == "~" or (fence[0] == "`" and "`" not in code)) else ""


def _with_openings(pieces: Sequence[_UnitSpan]) -> list[_UnitSpan]:
    """Join what cannot be understood alone with what follows it: with the next piece, or as a lead of each item."""
    joined: list[_UnitSpan] = []
    wider: dict[Span, Span] = {}  # leads with what leads into them
    for span, leads, is_led, opens in pieces:
        last = joined[-1] if joined and joined[-1].opens else None
        if last and leads and last.span[0] <= leads[0][0]:
            wider[leads[0]] = (last.span[0], leads[0][1])
            joined.pop()
            last = None
        leads = tuple(wider.get(lead, lead) for lead in leads)
        fits = last is not None and span[1] - last.span[0] <= MAX_CHARACTERS
        if last and fits and leads in ((), last.leads) and not last.opens == opens == "heading":
            joined.pop()
            wider[span] = (last.span[0], span[1])
            span, leads, is_led, opens = wider[span], last.leads, last.is_led, opens.removesuffix("heading")
        joined.append(_UnitSpan(span, leads, is_led, opens))
    return joined


def _with_led(pieces: Sequence[_UnitSpan], most: int) -> Iterator[_UnitSpan]:
    """Join a lead-in with all that it leads into, such as the steps of a list, unless that is too long."""
    for lead, group in groupby(pieces, key=lambda piece: piece.leads[0] if piece.is_led else None):
        led = list(group)
        whole = (lead or led[0].span)[0], led[-1].span[1]
        if lead is None or whole[1] - whole[0] > most:
            yield from led
        else:
            yield _UnitSpan(whole)


_PIECES: LRU[tuple[str, int], tuple[_UnitSpan, ...]] = LRU(16 * 10**6)
"""About 5,000 texts of 128 tokens."""


class _Blocks:
    """Reads a text line by line: paragraphs, lists, tables and fenced code."""

    def __init__(self, text: str) -> None:
        self.pieces: list[_UnitSpan] = []
        self._text = text
        self._prose: Span | None = None
        self._item: Span | None = None
        self._header: Span | None = None
        self._ruled = False
        self._label: Span | None = None
        self._rows_from = 0
        self._lead: Span | None = None
        self._lead_indent = 0
        self._fence: int | None = None
        self._fence_mark = ""

    def read(self, start: int, end: int) -> None:
        line, span = self._text[start:end], _stripped(self._text, start, end)
        if self._fence is not None:
            # As many marks or more close it; fewer, and other ones, are of the code.
            if not line.strip().strip(self._fence_mark[0]) and self._fence_mark in line:
                self._end_fence(end)
        elif fence := _fence_of(line):
            self._end()
            rest = self._text[end : end + MAX_CHARACTERS].lstrip(" ")
            if line.strip() == fence and rest[:1] in ("", "\r", "\n") and self._text.find(fence, end) < 0:
                if self.pieces:  # it ends code of which the beginning is in another chunk
                    self.pieces[-1] = self.pieces[-1]._replace(span=(self.pieces[-1].span[0], span[1]))
            else:
                self._fence, self._fence_mark = start, fence
        elif _is_row(line):
            self._end_prose()
            self._read_row(line, span)
        elif ITEM.match(line):
            self._end_table()
            self._end_prose()
            self._item = start, end
        elif span[0] == span[1]:
            self._end()
        elif self._item is not None:
            self._item = self._item[0], end
        else:
            self._end_table()
            self._prose = (start if self._prose is None else self._prose[0], end)

    def finish(self) -> None:
        self._end()
        if self._fence is not None:
            self._end_fence(len(self._text))

    def _end_fence(self, end: int) -> None:
        assert self._fence is not None
        leads = [self._lead] if self._lead is not None and self._is_below_lead(self._fence) else []
        first, span = len(self.pieces), _stripped(self._text, self._fence, end)
        self._add(span, *leads, is_led=bool(leads), breaks=(_BREAK, _SPACE))
        # The marks are one unit with the code beside them, however long, and none without it.
        code = [part for part in self.pieces[first:] if not is_fence(self._text[slice(*part.span)])]
        if code:
            code[0] = code[0]._replace(span=(span[0], code[0].span[1]))
            code[-1] = code[-1]._replace(span=(code[-1].span[0], span[1]))
        self.pieces[first:] = code
        self._fence = None

    def _is_below_lead(self, start: int) -> bool:
        """Return whether a line is indented more than the one that leads into what follows it."""
        return _indentation(self._text, start) > self._lead_indent

    def _read_row(self, line: str, span: Span) -> None:
        rows = len(self.pieces) - self._rows_from
        if self._header is None:
            self._header, self._label, self._ruled, self._rows_from = span, None, False, len(self.pieces)
        elif not line.strip(" |:-+\r\n"):
            if not self._ruled:  # all lines above the first rule are the header
                del self.pieces[self._rows_from :]
                rows = 0
            if not rows:  # a further rule, below a row, says nothing
                self._header, self._ruled = (self._header[0], span[1]), True
        elif not (labelled := _is_labelled(line)) and not rows and not self._ruled:
            self._header = (self._header[0], span[1])  # a header of several lines
        else:
            # A cell that spans rows is in the first of them.
            above = [self._label] if self._label is not None and not labelled else []
            if not rows and not _is_short(self._header):
                self._add(self._header, breaks=(_CELL, _CLAUSE, _SPACE))
            leads = [lead for lead in (self._header, *above) if _is_short(lead)]
            is_led = self._lead is not None and self._header in leads
            self._add(span, *leads, is_led=is_led, breaks=(_CELL, _CLAUSE, _SPACE))
            self._label = span if labelled else self._label

    def _end(self) -> None:
        self._end_table()
        self._end_prose()

    def _end_prose(self) -> None:
        """End a paragraph, or an item of a list with the lines that continue it."""
        leads = [] if self._lead is None else [self._lead]
        if self._item is not None:
            span = _stripped(self._text, *self._item)
            for part in [span] if span[1] - span[0] <= MAX_CHARACTERS else _sentences(self._text, span):
                self._add(part, *leads, is_led=bool(leads))
        elif self._prose is not None:
            is_led = bool(leads) and self._is_below_lead(self._prose[0])
            for sentence in _sentences(self._text, self._prose):
                self._add(sentence, *(leads if is_led else ()), is_led=is_led)
            last = self.pieces[-1].span if self.pieces else None
            if not is_led:
                self._lead = last if last and self._text[last[1] - 1] in COLONS else None
                self._lead_indent = _indentation(self._text, self._prose[0])
        self._item = self._prose = None

    def _end_table(self) -> None:
        if self._header is not None and len(self.pieces) == self._rows_from:
            self._add(self._header, breaks=(_CELL, _CLAUSE, _SPACE))  # a header without rows
        if self._header is not None:
            self._header = self._lead = None  # what led into the table leads into no list below it

    def _add(
        self, span: Span, *leads: Span, is_led: bool = False, breaks: Sequence[re.Pattern[str]] = (_CLAUSE, _SPACE)
    ) -> None:
        borders = _cuts(self._text, span, breaks)
        parts = [_stripped(self._text, *part) for part in pairwise(borders)]
        self.pieces += [_UnitSpan(part, leads, is_led) for part in parts]


def _indentation(text: str, start: int) -> int:
    """Return how far a line, given by its start, is indented, in characters."""
    line = text[start : start + MAX_CHARACTERS]
    return len(line) - len(line.lstrip())


def _is_short(lead: Span) -> bool:
    """Return whether a lead may be written before each of many rows."""
    return lead[1] - lead[0] <= MAX_CHARACTERS


def _is_labelled(row: str) -> bool:
    """Return whether the first cell of a row says something."""
    text = row.strip()
    bordered = text.startswith("|") and text.endswith("|")
    return bool(text[bordered:].partition("|")[0].strip())


def _sentences(text: str, prose: Span) -> Iterator[Span]:
    for start, end in sentence_spans(text[slice(*prose)]):
        sentence = _stripped(text, prose[0] + start, prose[0] + end)
        if sentence[0] < sentence[1]:
            yield sentence


def _cuts(text: str, sentence: Span, breaks: Sequence[re.Pattern[str]]) -> list[int]:
    """Return the borders of the parts of a sentence, its own included; `breaks` are where to cut, best first."""
    borders = [sentence[0]]
    while sentence[1] - borders[-1] > MAX_CHARACTERS:
        start, limit = borders[-1], borders[-1] + MAX_CHARACTERS
        cuts = ([match.end() for match in pattern.finditer(text, start + 1, limit)] for pattern in breaks)
        borders.append(next((ends[-1] for ends in cuts if ends), limit))
    return [*borders, sentence[1]]


def _stripped(text: str, start: int, end: int) -> Span:
    piece = text[start:end]
    start += len(piece) - len(piece.lstrip())
    return start, max(start, start + len(piece.strip()))

"""A file's text into chunks that keep to its structure: sections, code blocks and tables."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import compress, groupby, pairwise, takewhile
from operator import itemgetter

from corag.files.markdown import FileSection, FileText, line_ends
from corag.text.chunking import (
    ITEM,
    ChunkConfig,
    ChunkMeter,
    SizedSpan,
    Span,
    are_leading,
    cut_to_tokens,
    fitting_pieces,
    pack,
    sentence_spans,
    words_of,
)
from corag.text.documents import with_title
from corag.text.units import is_fence
from corag.types import Chunk, TokenCounter

# Separates the headings of a title: `Guide > Install > Linux`.
_SEPARATOR = " > "
# A title may take this part of a chunk's tokens; a section with less than that part is joined with its neighbours.
_TITLE_SHARE, _SHORT_SHARE = 4, 8
# What leads into a list may take this part of each chunk of it.
_LEAD_SHARE = 4
# Characters in which the mark of an item is looked for.
_LINE = 200
# What says where a chunk is, if anything does; a file's own fields of these names are no places in it.
_PLACES = {"page", "last_page", "line", "anchor"}


def chunk_file(path: str, file: FileText, tokens: TokenCounter, config: ChunkConfig | None = None) -> list[Chunk]:
    """Cut a file into chunks named `path#start-end`, in its order, each inside one section.

    Each chunk's text is its title, a newline, and `file.text[start:end]`; between the two is the header of a table
    that began in an earlier chunk. Metadata: `document` (the path), `title`, `start`, `end`, `headings` (the whole
    path, which a long title shortens), and where the file has them `page`, `last_page` (if it is another), `line`, or
    `anchor` (of an HTML heading); and the fields of the file's front matter, as far as they have other names.
    """
    config = config or ChunkConfig()
    lines = line_ends(file.text) if file.lines else []
    meter = ChunkMeter(path, file.text, "", tokens, config.max_tokens)
    fields = {name: value for name, value in file.fields.items() if name not in _PLACES}
    chunks = []
    for section in _joined(file, meter, config.max_tokens):
        title = fitting_title(section.headings, tokens, config.max_tokens // _TITLE_SHARE)
        for start, end, header in _cut(section, meter.below(title), config.overlap_tokens):
            metadata = {**fields, "document": path, "title": title, "start": start, "end": end}
            metadata["headings"] = list(section.headings)
            if section.anchor:
                metadata["anchor"] = section.anchor
            if file.pages:
                metadata["page"], last = file.page(start), file.page(end - 1)
                if last != metadata["page"]:
                    metadata["last_page"] = last
            elif file.lines:
                metadata["line"] = bisect_right(lines, start) + 1
            elif file.line_numbers:
                metadata["line"] = file.line(start)
            text = with_title(with_title(title, header) if header else title, file.text[start:end])
            chunks.append(Chunk(f"{path}#{start}-{end}", text, metadata))
    return chunks


def fitting_title(headings: Sequence[str], tokens: TokenCounter, limit: int) -> str:
    """Return a path of headings as a title of at most `limit` tokens: without the middle, then the last alone."""
    last = headings[-1]
    shortened = [headings[0], "…", last] if len(headings) > 2 else [last]
    for title in (_SEPARATOR.join(headings), _SEPARATOR.join(shortened)):
        if int(tokens.count([title])[0]) <= limit:
            return title
    return cut_to_tokens(last, tokens, limit)


def _joined(file: FileText, meter: ChunkMeter, max_tokens: int) -> list[FileSection]:
    """Return the sections with text; short neighbours under a shared heading are one."""
    sections = [section for section in file.sections if section.blocks]
    # Which sections are short shows in their first characters.
    sizes = meter.sizes([(section.start, min(section.end, section.start + 2 * max_tokens)) for section in sections])
    joined: list[FileSection] = []
    total = math.inf
    for section, size in zip(sections, sizes, strict=True):
        short = size < max_tokens // _SHORT_SHARE
        if short and total + size <= max_tokens - max_tokens // _TITLE_SHARE:
            last = joined[-1]
            pairs = zip(last.headings, section.headings, strict=False)
            if shared := tuple(name for name, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)):
                first, *others = last.blocks
                if shared != last.headings:
                    first = first._replace(start=last.start, kind="text")
                blocks = (first, *others, *section.blocks)
                joined[-1], total = replace(last, headings=shared, blocks=blocks, end=section.end), total + size
                continue
        joined.append(section)
        total = size if short else math.inf
    return joined


def _cut(section: FileSection, meter: ChunkMeter, overlap_tokens: int) -> Iterator[tuple[int, int, str]]:
    """Yield start, end and repeated table header of each chunk of a section, without white space around it."""
    text = meter.text
    pieces: list[SizedSpan] = []
    ends = [*(block.start for block in section.blocks[1:]), section.end]
    for block, end in zip(section.blocks, ends, strict=True):
        start = block.start
        stripped = (start, start + len(text[start:end].rstrip()))
        if block.kind == "table" and not meter.fits(*stripped):
            yield from _packed(pieces, meter, overlap_tokens)
            pieces = []
            yield from _cut_table(stripped, block.header_end, meter)
        elif block.kind == "text":
            sentences = [(start + first, start + last) for first, last in sentence_spans(text[start:end])]
            pieces.extend(fitting_pieces(sentences, meter, (_lines, words_of)))
        else:
            pieces.extend(_with_marks(list(fitting_pieces([stripped], meter, (paragraphs, _lines, words_of))), meter))
    yield from _packed(pieces, meter, overlap_tokens)


def _packed(pieces: list[SizedSpan], meter: ChunkMeter, overlap_tokens: int) -> Iterator[tuple[int, int, str]]:
    """Yield the chunks of pieces. What leads into a list that does not fit one is repeated in each, if it is short."""
    text = meter.text
    begun = seen = 0  # the first piece that is in no chunk yet, and that is in no list yet
    leading = are_leading(text, (span for span, _ in pieces))
    for first in compress(range(len(pieces)), leading):
        lead, size = pieces[first]
        if first < seen or size > meter.capacity // _LEAD_SHARE:
            continue
        stop = first + 1
        while stop < len(pieces) and _is_of_list(text, pieces[stop][0][0], is_first=stop == first + 1):
            stop += 1
        total = sum(size for _, size in pieces[first:stop])
        if stop == first + 1 or total <= meter.capacity or meter.fits(lead[0], pieces[stop - 1][0][1]):
            continue
        seen, words = stop, text[slice(*lead)].strip()
        below = meter.below(words)
        if any(size > below.capacity for _, size in pieces[first + 1 : stop]):
            continue
        yield from trimmed(text, pack(pieces[begun:first], meter, overlap_tokens))
        head = next(pack(pieces[first:stop], meter, 0))
        yield from trimmed(text, [head])
        rest = [piece for piece in pieces[first:stop] if piece[0][0] >= head[1]]
        yield from trimmed(text, pack(rest, below, overlap_tokens), words)
        begun = stop
    yield from trimmed(text, pack(pieces[begun:], meter, overlap_tokens))


def _is_of_list(text: str, start: int, *, is_first: bool) -> bool:
    """Return whether what begins here is an item of a list, or goes on in one."""
    line = text[start : start + _LINE].partition("\n")[0]
    goes_on = line[:1].isspace() or text[max(0, start - 1) : start] not in ("", "\n", "\r")
    return ITEM.match(line) is not None or (goes_on and not is_first)


def _with_marks(code: list[SizedSpan], meter: ChunkMeter) -> list[SizedSpan]:
    """Join the marks around a block of code to its first and last piece; where they do not fit, they are left out."""
    for mark, beside in ((0, 1), (-1, -2)):
        if len(code) > 1 and is_fence(meter.text[slice(*code[mark][0])]):
            both = [code[mark][0], code[beside][0]]
            span = min(both)[0], max(both)[1]
            size = meter.sizes([span])[0]
            code[beside] = (span, size) if size <= meter.capacity else code[beside]
            del code[mark]
    return code


def _cut_table(span: Span, header_end: int, meter: ChunkMeter) -> Iterator[tuple[int, int, str]]:
    """Yield the chunks of a table that does not fit one: rows, each time under the header if that is short enough."""
    text, untitled = meter.text, meter
    whole = text[span[0] : header_end].rstrip()
    # The rule below the names of the columns may take more tokens than they do.
    names = "\n".join(line for line in whole.splitlines() if line.strip(" |:-+"))
    header = next((one for one in (whole, names) if meter.tokens_with_title(one) <= meter.max_tokens // 2), "")
    if header != whole:
        # All of it begins the first chunk, if a row fits behind it.
        ends = [end for _, end in _lines(text, (header_end, span[1]))]
        if ends and meter.fits(span[0], ends[0]):
            header_end = meter.last_that_fits(span[0], ends)
            yield from trimmed(text, [(span[0], header_end)])
        elif not (header and ends):
            header_end = span[0]
    meter = untitled.below(header)
    lines = _lines(text, (header_end, span[1]))
    fit = [size <= meter.capacity for size in meter.sizes(lines)]
    for fits, group in groupby(zip(lines, fit, strict=True), key=itemgetter(1)):
        rows = [line for line, _ in group]
        if fits:
            for start, end, _ in trimmed(text, pack(list(fitting_pieces(rows, meter)), meter, 0)):
                # The first rows follow their header in the file, too.
                first = header == whole and not text[header_end:start].strip()
                yield (span[0], end, "") if first else (start, end, header)
            continue
        for row in rows:
            keyed = f"{header}\n{key}" if header and (key := _key_of(text, row, meter)) else header
            of_row = untitled.below(keyed)
            parts = trimmed(text, pack(list(fitting_pieces([row], of_row)), of_row, 0))
            yield from ((start, end, keyed if number else header) for number, (start, end, _) in enumerate(parts))


def _key_of(text: str, row: Span, meter: ChunkMeter) -> str:
    """Return the first cell of a row with words, if it is short: what its parts are about."""
    start, end = row
    first = text.find("|", start, end)
    cell = text.find("|", first + 1, end) + 1 if first >= 0 and not text[start:first].strip() else first + 1
    return text[start:cell] if cell and meter.sizes([(start, cell)])[0] <= meter.capacity // 4 else ""


def trimmed(text: str, spans: Iterable[Span], header: str = "") -> Iterator[tuple[int, int, str]]:
    """Yield spans with text, without blank lines around it, each with the header."""
    for start, end in spans:
        body = text[start:end]
        if body.strip():
            # Spaces before the first word are what makes code and lists.
            begin = start + len(body) - len(body.lstrip("\r\n"))
            yield begin, start + len(body.rstrip()), header


def _lines(text: str, span: Span) -> list[Span]:
    return list(pairwise([span[0], *line_ends(text[slice(*span)], span[0])]))


def paragraphs(text: str, span: Span) -> list[Span]:
    """Return what is between blank lines, each with those that follow it."""
    lines = _lines(text, span)
    begins = [
        line[0] for above, line in pairwise(lines) if not text[slice(*above)].strip() and text[slice(*line)].strip()
    ]
    return list(pairwise(dict.fromkeys([span[0], *begins, span[1]])))

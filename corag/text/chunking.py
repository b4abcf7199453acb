"""Documents into chunks of at most N tokens, whose spans cover the document; sentences stay whole if they fit."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from common.checks import MOST_TOKENS, check_count, well_formed
from corag.ambient import check_cancelled
from corag.errors import InputError
from corag.text.documents import Document, part_of, with_title
from corag.text.words import language_of
from corag.types import Chunk, TokenCounter

CHUNKING_VERSION = 13
"""Raised by every change of where texts are cut, here or in `corag.files.chunks`: indexes then read all files again."""
DEFAULT_CHUNK_TOKENS = 128
DEFAULT_BUDGET = 1024
"""Tokens of a prompt's context: eight chunks of the default size fit, so that the selector has real choices."""

Span = tuple[int, int]
"""Character offsets `(start, end)` of a piece of text, end exclusive."""
SizedSpan = tuple[Span, int]
"""A span that fits a chunk, and its tokens."""

COLONS = (":", "：")  # noqa: RUF001
ITEM = re.compile(r"\s*(?:[-*+•‣▪–]|\d{1,3}[.)]|[a-z][.)]|[A-Z]\))\s+\S")  # noqa: RUF001
"""The start of an item of a list; "A. Smith" is a name."""
_COUNTED_AT_ONCE = 1024
_WINDOW = 4096
"""Characters in which sentences are looked for at a time."""
_LIST_CHARACTERS = 16
"""Characters per token of a chunk within which the end of a list is looked for."""
_MAX_NUMBER = 32
"""Characters of what may number a sentence."""
_WORD = re.compile(r"\S+\s*|\s+")
_CLOSING = re.compile(r"(?<=\S)(?:[^\w\s]|_){1,8}(?:\s+|\Z)")
"""Marks written together with the sentence before them, and so of it: `**Note.** Wait.`"""
# What begins a word: `.NET`, `./configure`, `#!/bin/sh`, `!Ref`.
_OPENING = re.compile(r"(?<!\S)[^\w\s]{1,8}\Z")
# In the synopsis of a command dots say that something may be repeated: "cp [OPTION]... SOURCE... DIRECTORY".
_REPEATED = re.compile(r"(?:[])>}A-Z]\.{3}|\.{3}(?=\s*[][<{|]))[^\S\n]*")


def sentence_spans(text: str) -> list[Span]:
    """Return the sentences of a text, without gap or overlap; trailing white space belongs to its sentence.

    They end where sentencex (https://github.com/wikimedia/sentencex) says, but not within the synopsis of a command,
    nor behind what numbers the next one, such as "3.1." or "A.", nor before marks that close one, such as `**`, nor
    behind those that begin a word, such as `.NET`.
    """
    if not text:
        return []
    spans = list(_found_sentences(well_formed(text)))
    within = {match.end() for match in _REPEATED.finditer(text)}
    within |= {end for start, end in spans if _is_number(text[start : min(end, start + _MAX_NUMBER)])}
    within |= {end for _, end in spans if _OPENING.search(text, max(0, end - _MAX_NUMBER), end)}
    starts = [start for start, end in spans if text[start:end].strip() and start not in within]
    behind = {marks.end() if (marks := _CLOSING.match(text, start)) else start for start in starts[1:]}
    return list(pairwise(sorted({0, *behind, len(text)})))


def _is_number(sentence: str) -> bool:
    """Return whether a sentence is what numbers the next one: `3.1.` or `A.`."""
    number, point, after = sentence.strip(" \t").rpartition(".")
    letter = len(number) == 1 and number.isascii() and number.isupper()
    return point == "." and not after and (letter or all(map(str.isdecimal, number.split("."))))


def _found_sentences(text: str) -> Iterator[Span]:
    """Yield the sentences that sentencex finds, in windows: its time is the square of a text of opening quotes."""
    import sentencex

    start = begun = 0  # of the window, and of the sentence that goes on in it
    while start < len(text):
        check_cancelled()
        # The library takes each paragraph on its own.
        limit, half = start + _WINDOW, start + _WINDOW // 2
        paragraph = text.rfind("\n\n", half, limit) + 2 if limit < len(text) else 0
        end = paragraph if paragraph > 1 else min(limit, len(text))
        window = text[start:end]
        # The letter in the middle of all is of the script that most are of.
        letters = sorted(filter(str.isalpha, window)) or "a"
        found = sentencex.get_sentence_boundaries(language_of(letters[len(letters) // 2]) or "en", window)
        starts = [start + one["start_index"] for one in found[1:]]
        for stop in starts:
            yield begun, stop
            begun = stop
        if paragraph > 1 or end == len(text):
            yield begun, end
            begun = end
        elif begun > half:
            end = begun  # once more with what follows
        start = end


@dataclass(frozen=True, slots=True)
class ChunkConfig:
    """How documents are cut.

    Attributes:
        max_tokens: Maximum tokens of a chunk, its title line included. Typical: 128-1024.
        overlap_tokens: Approximate tokens at the end of a chunk that are repeated at the start of the next, in whole
            sentences; 0 for none.
    """

    max_tokens: int = DEFAULT_CHUNK_TOKENS
    overlap_tokens: int = 0

    def __post_init__(self) -> None:
        check_count("max_tokens", self.max_tokens, "typical: 128-1024", most=MOST_TOKENS)
        hint = "it must be below max_tokens; typical: 10-20% of it"
        check_count("overlap_tokens", self.overlap_tokens, hint, least=0, most=self.max_tokens - 1)


def chunk_document(document: Document, tokens: TokenCounter, config: ChunkConfig | None = None) -> list[Chunk]:
    """Cut a document into chunks named `docid#start-end`, in document order; without text it has none.

    Raises:
        InputError: The title leaves no tokens for text, or one character needs more tokens than a chunk has.
    """
    config = config or ChunkConfig()
    if not document.text:
        return []
    meter = ChunkMeter(document.id, document.text, document.title, tokens, config.max_tokens)
    pieces = list(fitting_pieces(sentence_spans(document.text), meter))
    return [part_of(document, *span) for span in pack(pieces, meter, config.overlap_tokens)]


class ChunkMeter:
    """Counts the tokens that pieces of a document add to the title of its chunks; at most `capacity` fit."""

    def __init__(self, document: str, text: str, title: str, tokens: TokenCounter, max_tokens: int) -> None:
        self.document, self.text, self.title = document, text, title
        self.max_tokens, self._tokens = max_tokens, tokens
        self._title_tokens = int(tokens.count([with_title(title, "")])[0]) if title else 0
        self.capacity = max_tokens - self._title_tokens
        if self.capacity < 1:
            raise InputError(
                f"document {document!r}: its title of {len(title)} characters leaves no tokens for text within "
                f"max_tokens={max_tokens}; raise it"
            )

    def below(self, header: str) -> ChunkMeter:
        """Return the same for chunks with a header below the title, or with one for a title."""
        title = with_title(self.title, header) if header else self.title
        return ChunkMeter(self.document, self.text, title, self._tokens, self.max_tokens)

    def sizes(self, spans: Sequence[Span]) -> list[int]:
        """Return the tokens of each span, counted together with the title as the budget will count them."""
        counts: list[int] = []
        # In batches: tokens take far more memory than text.
        for first in range(0, len(spans), _COUNTED_AT_ONCE):
            batch = spans[first : first + _COUNTED_AT_ONCE]
            counts.extend(self._tokens.count([with_title(self.title, self.text[start:end]) for start, end in batch]))
        return [int(count) - self._title_tokens for count in counts]

    def tokens_with_title(self, text: str) -> int:
        """Return the tokens of the title with a text of no place in the document, such as a repeated header."""
        return int(self._tokens.count([with_title(self.title, text)])[0])

    def fits(self, start: int, end: int) -> bool:
        """Tell whether the text between two offsets fits a chunk."""
        return self.sizes([(start, end)])[0] <= self.capacity

    def last_that_fits(self, start: int, ends: Sequence[int]) -> int:
        """Return the last of ascending `ends` up to which the text fits; the first one must."""
        return ends[bisect(ends, self.capacity, lo=1, key=lambda end: self.sizes([(start, end)])[0]) - 1]


def pack(pieces: Sequence[SizedSpan], meter: ChunkMeter, overlap_tokens: int) -> Iterator[Span]:
    """Fill chunks with whole pieces, greedily; yield spans that fit."""
    spans = [span for span, _ in pieces]
    sizes = [size for _, size in pieces]
    leading = are_leading(meter.text, spans)
    lists = _Lists(meter)
    start = new = 0  # the first piece of the chunk, and the first one that is in no chunk yet
    while new < len(spans):
        end = new + 1
        total = sum(sizes[start:end])
        while end < len(spans) and total + sizes[end] <= meter.capacity:
            total += sizes[end]
            end += 1
        # Sizes do not add up exactly under every tokenizer: drop pieces until the joined text fits.
        if end > new + 1 and not meter.fits(spans[start][0], spans[end - 1][1]):
            ends = [stop for _, stop in spans[new : end - 1]]
            end = new + 1 + ends.index(meter.last_that_fits(spans[start][0], ends))
        # A list stays with what leads into it, if they fit one chunk.
        if end < len(spans):
            leads = (lead for lead in range(new + 1, end) if leading[lead])
            end = next((lead for lead in leads if lists.are_cut(spans[lead], spans[end][0])), end)
        # What leads into a list or into code begins the chunk that has it.
        while end < len(spans) and end - 1 > new and leading[end - 1]:
            end -= 1
        yield spans[start][0], spans[end - 1][1]
        first, start, new = start, end, end
        if new == len(spans):
            return
        repeated = 0
        while overlap_tokens and start - 1 > first and repeated + sizes[start - 1] <= overlap_tokens:
            start -= 1
            repeated += sizes[start]
        # The overlap must leave tokens for something new, or the next chunk would be a part of this one.
        while start < new and not meter.fits(spans[start][0], spans[new][1]):
            start += 1


class _Lists:
    """Tells whether pieces of a document, in its order, lead into a list; each line is looked at once."""

    def __init__(self, meter: ChunkMeter) -> None:
        self._meter = meter
        self._start = self._end = 0  # of the list that was found last
        self._has_ended = False

    def are_cut(self, lead: Span, cut: int) -> bool:
        """Return whether the list behind what leads into it would be cut, and both fit one chunk."""
        text = self._meter.text
        limit = min(lead[1] + _LIST_CHARACTERS * self._meter.max_tokens, len(text))
        if not self._start <= lead[1] < self._end:
            self._start, self._end, self._has_ended = lead[1], lead[1], False
        while not self._has_ended and self._end < limit:
            line = text[self._end : text.find("\n", self._end) + 1 or len(text)]
            self._has_ended = bool(line[:1].strip()) and not ITEM.match(line)
            self._end += 0 if self._has_ended else len(line)
        end = min(self._end, limit)
        return cut < lead[1] + len(text[lead[1] : end].rstrip()) and self._meter.fits(lead[0], end)


def are_leading(text: str, spans: Iterable[Span]) -> list[bool]:
    """Return whether each piece leads into what follows it, such as a list or code: it ends with a colon."""
    return [text[start:end].rstrip().endswith(COLONS) for start, end in spans]


def words_of(text: str, span: Span) -> list[Span]:
    """Return the words between two offsets, each with the white space that follows it."""
    return [match.span() for match in _WORD.finditer(text, *span)]


def fitting_pieces(
    spans: Sequence[Span], meter: ChunkMeter, finer: Sequence[Callable[[str, Span], list[Span]]] = (words_of,)
) -> Iterator[SizedSpan]:
    """Yield spans and their sizes; what does not fit is cut by each of `finer` in turn, at last between characters."""
    for span, size in zip(spans, meter.sizes(spans), strict=True):
        if size <= meter.capacity:
            yield span, size
        elif finer:
            yield from fitting_pieces(finer[0](meter.text, span), meter, finer[1:])
        else:
            parts = list(_cut_word(span, meter))
            yield from zip(parts, meter.sizes(parts), strict=True)


def _cut_word(span: Span, meter: ChunkMeter) -> Iterator[Span]:
    """Cut a run without white space into the longest parts that fit."""
    start, end = span
    while start < end:
        if not meter.fits(start, start + 1):
            raise InputError(
                f"document {meter.document!r}: the single character {meter.text[start]!r} at {start} needs more than "
                f"the {meter.capacity} tokens that a chunk has for text; raise max_tokens"
            )
        # By doubling, then by bisection: a word may be as long as a document.
        step = 1
        while start + step < end and meter.fits(start, min(end, start + 2 * step)):
            step *= 2
        ends = range(start + min(step, end - start), min(end, start + 2 * step) + 1)
        last = meter.last_that_fits(start, ends)
        yield start, last
        start = last


def cut_to_tokens(text: str, tokens: TokenCounter, limit: int) -> str:
    """Return the longest prefix of whole sentences, or else of whole words, with at most `limit` tokens."""
    whole = text.rstrip()

    def count(end: int) -> int:
        return int(tokens.count([whole[:end].rstrip()])[0])

    if count(len(whole)) <= limit:
        return whole
    for ends in ([end for _, end in sentence_spans(whole)], [end for _, end in words_of(whole, (0, len(whole)))]):
        if num_fitting := bisect(ends, limit, key=count):
            return whole[: ends[num_fitting - 1]].rstrip()
    return ""

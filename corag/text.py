"""Documents into chunks of at most N tokens, with exact character spans.

Sentences are kept whole where they fit. The spans of a document's chunks cover it from the first to the
last character, in order, so joining them (without overlap) gives the document back, character for character.
Knows text and token counts, no model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from corag.errors import InputError
from corag.types import Chunk, TokenCounter

Span = tuple[int, int]
"""Character offsets `(start, end)` of a piece of text, end exclusive."""

# A sentence ends after . ! ? (with closing quotes or brackets) before white space and something that can
# begin a sentence, after CJK full stops, or at an empty line.
_BOUNDARY = re.compile(
    r"""
    (?P<stop>[.!?…]["'”’)\]]*)(?P<gap>\s+)(?=["'“‘(\[]*[^\W_a-z])   # latin and friends
    | [。！？][”’」』）]*\s*                                              # CJK
    | \n[ \t]*\n\s*                                                       # empty line
    """,
    re.VERBOSE,
)
_ABBREVIATION = re.compile(
    r"(?:\b(?:[A-Z]|e\.g|i\.e|cf|vs|etc|Mr|Mrs|Ms|Dr|Prof|Sr|Jr|St|Mt|No|Fig|Eq|Sec|Ch|Vol|pp?|al|approx|Inc|Ltd|Co|Corp))\.$"
)
_WORD = re.compile(r"\S+\s*|\s+")


def sentence_spans(text: str) -> list[Span]:
    """Cut a text into sentences.

    Returns:
        Spans that cover the text without gap or overlap; trailing white space belongs to its sentence.
    """
    spans: list[Span] = []
    start = 0
    for match in _BOUNDARY.finditer(text):
        if match["stop"] and _ABBREVIATION.search(text[max(start, match.start() - 10) : match.start("gap")]):
            continue
        if match.end() > start:
            spans.append((start, match.end()))
            start = match.end()
    if start < len(text):
        spans.append((start, len(text)))
    return spans


@dataclass(frozen=True, slots=True)
class Document:
    """A text to be indexed.

    Attributes:
        id: Unique name.
        text: The text that spans refer to.
        title: Put before every chunk's text (title, newline, text), or empty.
    """

    id: str
    text: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class ChunkConfig:
    """How documents are cut.

    Attributes:
        max_tokens: The most tokens of a chunk, its title line included. 128, 256, 512 and 1024 are usual.
        overlap_tokens: About how many tokens of the end of a chunk stand again at the start of the next,
            in whole sentences; 0 for none.
    """

    max_tokens: int = 256
    overlap_tokens: int = 0

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise InputError(f"max_tokens must be at least 1, got {self.max_tokens}; 128 to 1024 are usual")
        if not 0 <= self.overlap_tokens < self.max_tokens:
            raise InputError(
                f"overlap_tokens must be at least 0 and below max_tokens={self.max_tokens}, got "
                f"{self.overlap_tokens}; a tenth to a fifth of max_tokens is usual"
            )


def with_title(title: str, text: str) -> str:
    """Return the text as reranker and reader see it: title, newline, text."""
    return f"{title}\n{text}" if title else text


def passage(document: Document) -> Chunk:
    """Return a whole document as one chunk, under the document's own id."""
    return Chunk(
        document.id,
        with_title(document.title, document.text),
        {"document": document.id, "title": document.title, "start": 0, "end": len(document.text)},
    )


def chunk_document(document: Document, tokens: TokenCounter, config: ChunkConfig | None = None) -> list[Chunk]:
    """Cut a document into chunks named `docid#start-end`.

    Args:
        document: The document. Without text it has no chunks.
        tokens: Counts tokens as the answering model does.
        config: Sizes.

    Returns:
        Chunks in document order. `document.text[start:end]` is the body of each; the bodies cover the text.

    Raises:
        InputError: The title alone leaves no room for text, or one character costs more than a chunk may.
    """
    config = config or ChunkConfig()
    if not document.text:
        return []
    ruler = _Ruler(document, tokens, config.max_tokens)
    return [
        Chunk(
            f"{document.id}#{start}-{end}",
            with_title(document.title, document.text[start:end]),
            {"document": document.id, "title": document.title, "start": start, "end": end},
        )
        for start, end in _pack(document.text, ruler, config.overlap_tokens)
    ]


class _Ruler:
    """Measures pieces of one document: what each adds to its title, in tokens.

    Attributes:
        room: The most tokens that the pieces of a chunk may add.
    """

    def __init__(self, document: Document, tokens: TokenCounter, max_tokens: int) -> None:
        self.document = document
        self._tokens = tokens
        self._title_tokens = int(tokens.count([with_title(document.title, "")])[0]) if document.title else 0
        self.room = max_tokens - self._title_tokens
        if self.room < 1:
            raise InputError(
                f"document {document.id!r}: its title of {len(document.title)} characters leaves no token of "
                f"max_tokens={max_tokens} for text; raise max_tokens or shorten the title"
            )

    def sizes(self, spans: Sequence[Span]) -> list[int]:
        """Return the tokens of each span, counted together with the title as the budget will count them."""
        texts = [with_title(self.document.title, self.document.text[start:end]) for start, end in spans]
        return [int(count) - self._title_tokens for count in self._tokens.count(texts)]

    def fits(self, start: int, end: int) -> bool:
        """Tell whether the text between two offsets fits a chunk."""
        return self.sizes([(start, end)])[0] <= self.room


def _pack(text: str, ruler: _Ruler, overlap_tokens: int) -> Iterator[Span]:
    """Fill chunks with whole sentences, greedily; yield spans that fit."""
    pieces = list(_pieces(text, ruler))
    sizes = ruler.sizes(pieces)
    first = 0
    while first < len(pieces):
        last, total = first + 1, sizes[first]
        while last < len(pieces) and total + sizes[last] <= ruler.room:
            total += sizes[last]
            last += 1
        # Sizes need not add up exactly under every tokenizer: give back until the joined text fits.
        while last > first + 1 and not ruler.fits(pieces[first][0], pieces[last - 1][1]):
            last -= 1
        yield pieces[first][0], pieces[last - 1][1]
        if last == len(pieces):
            return
        following, repeated = last, 0
        while following - 1 > first and repeated + sizes[following - 1] <= overlap_tokens:
            following -= 1
            repeated += sizes[following]
        # What is repeated must leave room for something new, or the next chunk would stand inside this one.
        while following < last and not ruler.fits(pieces[following][0], pieces[last][1]):
            following += 1
        first = following


def _pieces(text: str, ruler: _Ruler) -> Iterator[Span]:
    """Yield sentences, and the parts of those that do not fit a chunk, covering the text in order."""
    spans = sentence_spans(text)
    for span, size in zip(spans, ruler.sizes(spans), strict=True):
        if size <= ruler.room:
            yield span
            continue
        words = [(span[0] + m.start(), span[0] + m.end()) for m in _WORD.finditer(text[span[0] : span[1]])]
        for word, word_size in zip(words, ruler.sizes(words), strict=True):
            if word_size <= ruler.room:
                yield word
            else:
                yield from _cut_word(word, ruler)


def _cut_word(span: Span, ruler: _Ruler) -> Iterator[Span]:
    """Cut a run without white space into the longest parts that fit, by doubling and halving."""
    start, end = span
    while start < end:
        step = 1
        if not ruler.fits(start, start + 1):
            raise InputError(
                f"document {ruler.document.id!r}: the character {ruler.document.text[start]!r} at {start} alone "
                f"costs more than the {ruler.room} tokens that a chunk has room for; raise max_tokens"
            )
        while start + step < end and ruler.fits(start, min(end, start + 2 * step)):
            step *= 2
        low, high = min(step, end - start), min(2 * step, end - start)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if ruler.fits(start, start + middle) else (low, middle - 1)
        yield start, start + low
        start += low


def chunk_documents(
    documents: Sequence[Document], tokens: TokenCounter, config: ChunkConfig | None = None
) -> list[Chunk]:
    """Cut many documents; see `chunk_document`."""
    return [chunk for document in documents for chunk in chunk_document(document, tokens, config)]

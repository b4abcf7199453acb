"""What the features know of a text: its token states, sentences, title, words and names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from corag.memory import LRU
from corag.models.encoders import Encoded, TextEncoder, cache_capacity, unit
from corag.models.engine import Float32
from corag.text.chunking import sentence_spans
from corag.text.units import Span, UnitChunk, source_of
from corag.types import Chunk

MAX_TITLE = 150
"""Characters; a longer first line is text."""

_WORD = re.compile(r"\w+")
_NAME_WORD = r"(?:[A-Z][\w'\u2019.-]*|\d[\d,.]*)"
_NAME = re.compile(rf"{_NAME_WORD}(?:\s+(?:of|the|de|and|von|van|da|di|for)?\s*{_NAME_WORD})*")
_QUALIFIER = re.compile(r"\s*\([^)]*\)\s*$")
_SENTENCE_END = (".", "!", "?", ":", ";", ",")

Key = tuple[str, tuple[Span, ...]]
"""A text, and which parts of it behind the title count; none for all of it."""


@dataclass(frozen=True, slots=True)
class PassageFeatures:
    """A text as the features see it; T tokens, S sentences.

    Attributes:
        ids: Token ids, `[T]`.
        vector: Its embedding, a unit vector, `[384]`.
        tokens: Unit vectors of its tokens in their context, `[T, 384]`.
        num_title: How many of the tokens are those of the title.
        title_vector: Mean of the title's token states, a unit vector, `[384]`; `vector` without a title.
        sentences: Means of the token states of each sentence of the body, unit vectors, `[S, 384]`, S >= 1.
        title: The title's words in lower case without a qualifier in brackets, empty without a title.
        body: The body's words in lower case, each with a space before and after it.
        words: The body's distinct words.
        names: Runs of capitalised words and numbers in the body, and the title, in lower case.
        truncated: Whether the text did not fit the encoder's window.
    """

    ids: NDArray[np.int64]
    vector: Float32
    tokens: Float32
    num_title: int
    title_vector: Float32
    sentences: Float32
    title: str
    body: str
    words: frozenset[str]
    names: frozenset[str]
    truncated: bool = False


class PassageReader:
    """Describes texts, each in one pass of the encoder; what does not fit the window is not seen."""

    def __init__(self, encoder: TextEncoder) -> None:
        self._encoder = encoder
        self._cache: LRU[Key, PassageFeatures] = LRU(cache_capacity(), owner=encoder)

    def __call__(self, texts: Sequence[str]) -> list[PassageFeatures]:
        """Return the features of each text."""
        return self._cache.get_many([(text, ()) for text in texts], self._read)

    def with_sources(self, chunks: Sequence[Chunk]) -> tuple[list[PassageFeatures], list[PassageFeatures]]:
        """Return the features of each chunk, and those of the passage that it is part of, or is.

        Those of units come from the token states of the passage, so the states of "He" know who that is, and no text is
        encoded twice, even if nothing is kept.
        """
        wholes: list[Key] = [(source_of(chunk).text, ()) for chunk in chunks]
        found = self._cache.get_many([*map(_key, chunks), *wholes], self._read)
        # Units behind the encoder's window have no states, and are encoded by themselves.
        unseen = [row for row, chunk in enumerate(chunks) if isinstance(chunk, UnitChunk) and not found[row].words]
        for row, passage in zip(unseen, self([chunks[row].text for row in unseen]), strict=True):
            found[row] = passage
        return found[: len(chunks)], found[len(chunks) :]

    def _read(self, keys: list[Key]) -> list[PassageFeatures]:
        texts = list(dict.fromkeys(text for text, _ in keys))
        encoded = dict(zip(texts, self._encoder.encoded(texts), strict=True))
        return [_features(text, chosen, encoded[text]) for text, chosen in keys]


def _features(text: str, chosen: tuple[Span, ...], encoded: Encoded) -> PassageFeatures:
    """Return what the features know of a text; with `chosen`, only of these spans, in order behind the title."""
    title, body = split_title(text)
    title = plain(_QUALIFIER.sub("", title))
    num_title = int((encoded.starts < body).sum())
    ids, states, sizes = encoded.ids, encoded.states, encoded.lengths
    parts = chosen or ((body, len(text)),)
    if chosen:
        kept = np.zeros(len(ids), dtype=bool)
        for first, last in [(0, num_title), *_rows(encoded, parts)]:
            kept[first:last] = True
        ids, sizes = ids[kept], sizes[kept]
        states = states[np.concatenate([[True], kept, [True]])]
    vector = unit(states.mean(axis=0))
    spans = [(start + first, start + last) for start, end in parts for first, last in sentence_spans(text[start:end])]
    inner = encoded.tokens
    sentences = [inner[first:last].mean(axis=0) for first, last in _rows(encoded, spans) if first < last]
    words = plain(" ".join(text[start:end] for start, end in parts)) if len(ids) > num_title or not chosen else ""
    # Sentence by sentence, so that a name ends where its sentence does.
    found = {name for start, end in spans for name in _NAME.findall(text[start:end])}
    names = {plain(name) for name in found} | {title}
    return PassageFeatures(
        ids=ids,
        vector=vector,
        tokens=states[1:-1] / sizes,
        num_title=num_title,
        title_vector=unit(inner[:num_title].mean(axis=0)) if num_title else vector,
        sentences=unit(np.array(sentences)) if sentences else vector[None],
        title=title,
        body=f" {words} ",
        words=frozenset(words.split()),
        names=frozenset(name for name in names if len(name) > 2),
        truncated=encoded.num_windows > 1 and not chosen,
    )


def _rows(encoded: Encoded, spans: Sequence[Span]) -> list[Span]:
    """Return the tokens of each span, those that begin in it, as first and last + 1."""
    ends = np.searchsorted(encoded.starts, np.array(spans, dtype=np.int64).reshape(-1, 2)).tolist()
    return [(first, last) for first, last in ends]


def _key(chunk: Chunk) -> Key:
    return (chunk.source.text, (*chunk.leads, chunk.span)) if isinstance(chunk, UnitChunk) else (chunk.text, ())


def split_title(text: str) -> tuple[str, int]:
    """Return the title of a text and where its body begins.

    The title is the first line, unless that is all there is, or it is long or ends as a sentence does.
    """
    line, newline, body = text.partition("\n")
    is_title = bool(line.strip()) and len(line) <= MAX_TITLE and not line.rstrip().endswith(_SENTENCE_END)
    if newline and body.strip() and is_title:
        return line.strip(), len(line) + 1
    return "", 0


def plain(text: str) -> str:
    """Return the words of a text in lower case, with one space between them."""
    return " ".join(_WORD.findall(text.lower()))

"""Candidates of plain texts, mappings, documents of frameworks, and retrievers."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias, cast

import numpy as np

from corag.errors import InputError
from corag.text.documents import body, document_of, places_of, with_title
from corag.text.units import PlacedChunk, UnitChunk, place_of
from corag.types import Candidate, Chunk

Text: TypeAlias = "str | Mapping[str, Any] | Chunk | Candidate | object"
"""A text as `as_candidates` reads it."""

TEXT_NAMES = ("text", "content", "page_content")
"""Fields that hold the text of a mapping or a document."""
MADE_UP = "text-"
"""Before the id of a text that has none."""


def as_candidates(texts: Iterable[Text]) -> list[Candidate]:
    """Return a candidate for each text, in the same order.

    A text is one of:

    - a string;
    - a mapping with `text`, `content` or `page_content`, and perhaps `id`, `title`, `similarity`, `kind`, `metadata`;
      the title is put before the text, as in an index, and other keys are metadata;
    - a document of LangChain, LlamaIndex (also with a score) or Haystack, with its id, metadata and score;
    - a `Chunk`, or a `Candidate`;
    - a pair of one of these and its score, higher is better.

    Strings of which one begins with the end of another one are parts of one document, so that what they share is given
    and paid for once; see `corag.text.documents`.

    What has no id gets one made from its text, so the same text has the same id everywhere; of different texts that
    would share one, the later ones have their position in it, too.

    Raises:
        InputError: `texts` is not an iterable of texts, or an item is not a text.
    """
    if hasattr(texts, "columns") and hasattr(texts, "shape"):
        raise InputError("texts is a table, whose columns could mean anything; give one of them, such as table['text']")
    if isinstance(texts, str | bytes | Mapping) or not isinstance(texts, Iterable):
        raise InputError(
            f"texts is of type {type(texts).__name__}; give (or have the retriever return) an iterable of strings, "
            "mappings, documents or candidates"
        )
    texts = list(texts)
    candidates, texts_of = [], dict[str, str]()
    for position, text in enumerate(texts):
        candidate = _candidate(text, f"texts[{position}]")
        chunk = candidate.chunk
        is_made_up = chunk.id.startswith(MADE_UP) and chunk.id == _made_up_id(chunk.text)
        if is_made_up and texts_of.setdefault(chunk.id, chunk.text) != chunk.text:
            candidate = replace(candidate, chunk=replace(chunk, id=f"{chunk.id}-{position}"))
        candidates.append(candidate)
    return _with_places(candidates)


def _with_places(candidates: list[Candidate]) -> list[Candidate]:
    """Return candidates, those with places in a document that overlap others, as far as no metadata names two."""
    rows_of: dict[str, list[int]] = {}
    for row, candidate in enumerate(candidates):
        if place_of(candidate.chunk) is None and not isinstance(candidate.chunk, UnitChunk):
            rows_of.setdefault(document_of(candidate.chunk), []).append(row)
    for rows in rows_of.values():
        bodies = [body(candidates[row].chunk) for row in rows]
        for one, (first, start) in places_of(bodies).items():
            chunk = candidates[rows[one]].chunk
            place = candidates[rows[first]].chunk.id, start, start + len(bodies[one])
            placed = PlacedChunk(chunk.id, chunk.text, chunk.metadata, place=place)
            candidates[rows[one]] = replace(candidates[rows[one]], chunk=placed)
    return candidates


def _candidate(text: Text, name: str) -> Candidate:
    if isinstance(text, Candidate):
        return text
    if isinstance(text, Chunk):
        return Candidate(text)
    if isinstance(text, tuple | list) and len(text) == 2 and isinstance(text[1], int | float | np.number | None):
        candidate = _candidate(text[0], name)
        return replace(candidate, similarity=cast(float, text[1]), kind="score", embedder=None)
    if isinstance(text, str):
        text = {"text": text}
    given: dict[str, Any] = dict(text) if isinstance(text, Mapping) else _fields(text)
    key = next((key for key in TEXT_NAMES if isinstance(given.get(key), str)), None)
    if key is None:
        raise InputError(
            f"{name}, of type {type(text).__name__}, has no text; give a string, a mapping with 'text', a document of "
            "LangChain, LlamaIndex or Haystack, a chunk, a candidate, or a pair of one of these and its score"
        )
    similarity, kind = given.pop("similarity", None), given.pop("kind", "cosine")
    metadata = given.pop("metadata", None) or {}
    if not isinstance(metadata, Mapping):
        raise InputError(f"{name} has metadata {metadata!r:.80}; it must be a mapping")
    title, whole = str(given.get("title") or ""), given.pop(key)
    whole = with_title(title, whole) if title else whole
    own_id = given.pop("id", None)
    name = _made_up_id(whole) if own_id in (None, "") else str(own_id)
    return Candidate(Chunk(name, whole, {**metadata, **given}), similarity, kind)


def _made_up_id(text: str) -> str:
    return f"{MADE_UP}{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:12]}"


def _fields(document: object) -> dict[str, Any]:
    """Return what a document of LangChain, LlamaIndex or Haystack says, as a mapping; without a text for others."""
    scored, document = document, getattr(document, "node", document)
    texts = {key: getattr(document, key, None) for key in TEXT_NAMES}
    return {key: text for key, text in texts.items() if isinstance(text, str)} | {
        "id": getattr(document, "node_id", None) or getattr(document, "id", None),
        "metadata": getattr(document, "metadata", None) or getattr(document, "meta", None),
        "similarity": getattr(scored, "score", None),
        "kind": "score",
    }


Retriever: TypeAlias = "Callable[[str, int], Iterable[Text] | Awaitable[Iterable[Text]]]"
"""Takes a question and the number of texts wanted; returns texts as `corag.select` takes them, best first."""


def candidates_of(found: object, k: int) -> list[Candidate]:
    """Return what a retriever found as at most `k` candidates that keep its ranking; see `as_candidates`."""
    if isinstance(found, Awaitable):
        if isinstance(found, Coroutine):
            found.close()
        raise InputError("the retriever is asynchronous; await corag.aask in place of corag.ask")
    ranked = enumerate(as_candidates(cast(Iterable[Text], found))[:k])
    return [replace(candidate, rank=rank) for rank, candidate in ranked]

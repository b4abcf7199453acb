"""Selecting from plain texts, mappings, chunks and retrievers: what makes candidates of them, and `corag.select`."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeAlias

from corag.checks import check_budget, check_query
from corag.errors import InputError, MissingExtraError
from corag.models.cached import vectors_by
from corag.models.runtime import current
from corag.naming import Spelling, parse
from corag.registry import RERANKERS, SELECTORS
from corag.registry import embedder as make_embedder
from corag.registry import selector as make_selector
from corag.text.documents import with_title
from corag.types import Candidate, Chunk, Embedder, Selection, Selector

Text: TypeAlias = "str | Mapping[str, Any] | Chunk | Candidate"
"""A text; a mapping with `text` and perhaps `id`, `title`, `similarity`, `kind`, metadata; a chunk; or a candidate."""


def as_candidates(texts: Sequence[Text]) -> list[Candidate]:
    """Return a candidate for each text, in the same order.

    A string, or a mapping without `id`, gets an id made from its text, so the same text has the same id everywhere. The
    title of a mapping stands before its text, as in an index. Other keys of a mapping are metadata.

    Raises:
        InputError: An item is none of the types of `Text`, or a mapping has no text.
    """
    if isinstance(texts, str | bytes | Mapping) or not isinstance(texts, Sequence):
        raise InputError(f"texts is a {type(texts).__name__}; give a list of strings, mappings, chunks or candidates")
    return [_candidate(text, place) for place, text in enumerate(texts)]


def with_cosines(query: str, candidates: Sequence[Candidate], embedder: Embedder) -> list[Candidate]:
    """Return the candidates with their cosine similarity to the query, best first."""
    vectors = vectors_by(embedder, [query, *(candidate.chunk.text for candidate in candidates)], unit=True)
    cosines = (vectors[1:] @ vectors[0]).clip(-1, 1).tolist()
    compared = [
        replace(candidate, similarity=cosine, kind="cosine", embedder=embedder.name, rank=None)
        for candidate, cosine in zip(candidates, cosines, strict=True)
    ]
    return sorted(compared, key=lambda candidate: -(candidate.similarity or 0.0))


def select(
    query: str,
    texts: Sequence[Text],
    budget_tokens: int = 1024,
    *,
    method: Spelling | Selector = "corag",
    **settings: Any,
) -> Selection:
    """Select texts for a prompt under a token budget.

    Where no candidate has a similarity, selectors that compare similarities get cosines from the default embedder, if
    it is installed. The others, such as `corag`, leave the order to their reranker.

    Args:
        query: The question.
        texts: Strings, mappings with `text` (and perhaps `id`, `title`, `similarity`, metadata), chunks or candidates;
            best first where they have an order.
        budget_tokens: The most tokens that the selection's text may cost.
        method: Name of the selector, or the selector itself.
        settings: Settings of a selector given by name, such as `reranker` and `tokens`; see `corag.selectors`.

    Raises:
        InputError: The question is empty, the budget below 1, a text of a wrong type, or a setting unknown.
    """
    check_query(query)
    check_budget(budget_tokens)
    candidates = as_candidates(texts)
    # A `PartName` may hold a key that its text does not tell.
    if type(method) is str and all(isinstance(value, _PLAIN) for value in settings.values()):
        parts = tuple(SELECTORS.parts.values()) + tuple(RERANKERS.parts.values())
        chosen, compares = _kept_selector(
            method, tuple((name, type(value), value) for name, value in settings.items()), current(), parts
        )
    else:
        chosen, compares = make_selector(method, **settings), isinstance(method, Mapping) and _compares(method)
    if compares and candidates and all(candidate.similarity is None for candidate in candidates):
        # Without the embedder's packages, the selector takes the order as it is given, or says what it lacks.
        with suppress(MissingExtraError):
            candidates = with_cosines(query, candidates, make_embedder())
    return chosen.select(query, candidates, budget_tokens)


_PLAIN = (str, int, float, bool, type(None))


@lru_cache(maxsize=8)
def _kept_selector(
    method: str, settings: tuple[tuple[str, type, Any], ...], runtime: object, parts: object
) -> tuple[Selector, bool]:
    """Return a selector, built once while runtime and registered parts are the same, and whether it wants cosines."""
    return make_selector(method, **{name: value for name, _, value in settings}), _compares(method)


def _compares(method: Spelling) -> bool:
    # "none" and "full" compare neither similarities nor values.
    return parse(method).name not in ("none", "full") and "reranker" not in SELECTORS.settings(method)


def _candidate(text: Text, place: int) -> Candidate:
    if isinstance(text, Candidate):
        return text
    if isinstance(text, Chunk):
        return Candidate(text)
    if isinstance(text, str):
        return Candidate(Chunk(_made_up_id(text), text))
    if not isinstance(text, Mapping):
        raise InputError(
            f"texts[{place}] is a {type(text).__name__}; give strings, mappings with 'text', chunks or candidates"
        )
    if not isinstance(text.get("text"), str):
        raise InputError(f"texts[{place}] has no 'text' that is a string; its keys are {', '.join(map(str, text))}")
    given = dict(text)
    similarity, kind = given.pop("similarity", None), given.pop("kind", "cosine")
    if similarity is not None and (isinstance(similarity, bool) or not isinstance(similarity, int | float)):
        raise InputError(f"texts[{place}] has similarity {similarity!r}; it must be a number")
    metadata = given.pop("metadata", {})
    if not isinstance(metadata, Mapping):
        raise InputError(f"texts[{place}] has metadata {metadata!r:.80}; it must be a mapping")
    whole = with_title(str(given.get("title") or ""), given.pop("text"))
    id_ = str(given.pop("id", None) or _made_up_id(whole))
    return Candidate(Chunk(id_, whole, {**metadata, **given}), similarity, kind)


def _made_up_id(text: str) -> str:
    return f"text-{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:12]}"


Retriever: TypeAlias = "Callable[[str, int], Iterable[Text] | Awaitable[Iterable[Text]]]"
"""Takes a question and the number of texts wanted; returns texts as `corag.select` takes them, best first."""


def candidates_of(found: object, k: int) -> list[Candidate]:
    """Return what a retriever found as at most `k` candidates that keep its ranking.

    Raises:
        InputError: It returned something other than texts; see `as_candidates`.
    """
    if isinstance(found, Awaitable):
        if isinstance(found, Coroutine):
            found.close()
        raise InputError("the retriever is asynchronous; await corag.aask in place of corag.ask")
    if isinstance(found, str | bytes | Mapping) or not isinstance(found, Iterable):
        raise InputError(
            f"the retriever returned a {type(found).__name__}; it must return a list of strings, mappings, chunks or "
            "candidates, best first"
        )
    ranked = enumerate(as_candidates(list(found))[:k])
    return [replace(candidate, rank=rank) for rank, candidate in ranked]


def is_async(retriever: Any) -> bool:
    """Return whether calling the retriever gives something to await."""
    return inspect.iscoroutinefunction(retriever) or inspect.iscoroutinefunction(
        getattr(retriever, "__call__", None)  # noqa: B004 - an object whose __call__ is async
    )

"""Candidates from a retriever of the user's own: any callable `question, k -> texts`."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from corag.candidates import Text, as_candidates
from corag.errors import InputError
from corag.types import Candidate

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

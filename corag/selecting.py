"""`corag.select`: a selection from texts in one call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from common.checks import check_budget, check_query
from common.configuration import Configuration, parse
from common.storage import modified
from corag.candidates import Text, as_candidates
from corag.errors import InputError, MissingExtraError
from corag.models.embedders import CachedEmbedder, vectors_by
from corag.models.runtime import current
from corag.registry import EMBEDDERS, RERANKERS, SELECTORS
from corag.selectors.problem import promising
from corag.types import Candidate, Selection, Selector, TokenCounter


def select(
    query: str,
    texts: Iterable[Text],
    budget_tokens: int = 1024,
    *,
    method: str | Selector = "corag",
    **settings: Any,
) -> Selection:
    """Select texts for a prompt under a token budget.

    Where no candidate has a similarity, selectors that compare similarities get cosines from their embedder, or else
    the default one, if it is installed. The others, such as `corag`, leave the order to their reranker; a selector of
    your own that is no `BudgetedSelector` gets candidates as they are given.

    Args:
        query: The question.
        texts: Strings, mappings, documents of LangChain, LlamaIndex or Haystack, chunks or candidates, also in pairs
            with a score; see `as_candidates`. Best first if they have an order.
        budget_tokens: The most tokens that the selection's text may cost.
        method: Name of the selector, or the selector itself.
        settings: Settings of a selector given by name, such as `reranker` and `tokenizer`; see `corag.selectors`.

    Raises:
        InputError: The question is empty, the budget below 1, a text of a wrong type, or a setting unknown.
    """
    check_query(query)
    check_budget(budget_tokens)
    candidates = as_candidates(texts)
    chosen = kept_selector(method, **settings)
    return chosen.select(query, with_missing_cosines(query, candidates, budget_tokens, chosen), budget_tokens)


def with_missing_cosines(
    query: str, candidates: Sequence[Candidate], budget_tokens: int, selector: Selector
) -> Sequence[Candidate]:
    """Return candidates; if none has a similarity and the selector compares these, the `promising` ones with cosines.

    They are best first. The embedder is the selector's, which keeps the vectors for it, or else the default one.
    """
    lacking = bool(candidates) and all(candidate.similarity is None for candidate in candidates)
    if not lacking or not getattr(selector, "compares", False):
        return candidates
    try:
        embedder = getattr(selector, "cached_embedder", None) or kept_embedder()
        [question] = vectors_by(embedder, [query], unit=True, query=True)
    except MissingExtraError:
        return candidates  # the selector takes the order as it is given, or says what it lacks
    offered = promising(query, candidates, budget_tokens)
    vectors = vectors_by(embedder, [candidate.chunk.text for candidate in offered], unit=True)
    cosines = (vectors @ question).clip(-1, 1).tolist()
    compared = [
        replace(candidate, similarity=cosine, kind="cosine", embedder=embedder.name, rank=None)
        for candidate, cosine in zip(offered, cosines, strict=True)
    ]
    return sorted(compared, key=lambda candidate: -(candidate.similarity or 0.0))


_PLAIN = (str, int, float, bool, type(None))


def kept_selector(
    method: str | Selector, *, defaults: Mapping[str, Any] = MappingProxyType({}), **settings: Any
) -> Selector:
    """Return a selector as `SELECTORS.make` does; one that is given by name alone is built once, with its models.

    It is built anew if the runtime, the registered parts or a file that its settings name have changed.
    """
    if not isinstance(method, str):
        return SELECTORS.make(method, **settings)
    part = SELECTORS.check(method, defaults=defaults, **settings)
    counters = {name: one for name, one in part.settings.items() if isinstance(one, TokenCounter)}
    if not all(name in counters or isinstance(one, _PLAIN) for name, one in part.settings.items()):
        return SELECTORS.make(part)
    parts = tuple(SELECTORS.parts.values()) + tuple(RERANKERS.parts.values())
    # Counters of one name may differ; while the part is kept, they are, too, and their ids are no others'.
    return _kept_selector(part, tuple(map(id, counters.values())), current(), parts, _files_of(part))


def kept_embedder(part: Configuration | None = None) -> CachedEmbedder:
    """Return an embedder, without a name the default one, kept likewise, with the vectors of texts."""
    files = () if part is None else (modified(Path(part.name)), *_files_of(part))
    return _kept_embedder(part, current(), tuple(EMBEDDERS.parts.values()), files)


def _files_of(part: Configuration) -> tuple[Any, ...]:
    """Return the state of all files that settings of a part may name."""
    return tuple(map(modified, _paths_in(part)))


@lru_cache(maxsize=64)
def _paths_in(part: Configuration) -> tuple[Path, ...]:
    """Return the texts in the settings of a part, and of the parts that these spell: all may be paths."""
    paths: list[Path] = []
    for value in part.settings.values():
        if isinstance(value, str):
            paths.append(Path(value))
            with suppress(InputError):
                paths += _paths_in(parse(value))
    return tuple(paths)


@lru_cache(maxsize=8)
def _kept_selector(part: Configuration, counters: object, runtime: object, parts: object, files: object) -> Selector:
    return SELECTORS.make(part)


@lru_cache(maxsize=8)
def _kept_embedder(part: Configuration | None, runtime: object, parts: object, files: object) -> CachedEmbedder:
    return CachedEmbedder(part)

"""Scoring functions over candidate indices: joining texts, caching and checking values, sharing batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from corag.ambient import check_cancelled
from corag.errors import InputError, ScoringError
from corag.text.documents import SEPARATOR
from corag.types import Chunk, FloatArray, Order, Reranker, Scorer
from search.types import checked_values

FLAT = 1e-6
"""Values of single candidates that differ by no more than this, or this share of the largest, differ by the
rounding of float32 models: stretched to [0, 1] they would drown what combinations are worth."""


class JoinedTextScorer:
    """Scores the joined text of each order with `Reranker.score`: right for any reranker, fast for none.

    If `order_matters` is False, each set of chunks is scored once.
    """

    num_truncated = 0

    def __init__(self, reranker: Reranker, query: str, chunks: Sequence[Chunk], *, order_matters: bool = True) -> None:
        self.order_matters = order_matters
        self._reranker = reranker
        self._query = query
        self._texts = [chunk.text for chunk in chunks]

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Return one value per order, `[len(orders)]`."""
        return self._reranker.score(self._query, [SEPARATOR.join(self._texts[i] for i in order) for order in orders])


class ChunkScorer:
    """Base of scorers of orders from what was computed per chunk; `truncated`, `[chunks]`, tells which were cut."""

    def __init__(self, truncated: NDArray[np.bool_]) -> None:
        self._cut_chunks = frozenset(np.flatnonzero(truncated).tolist())
        self.truncated_orders: set[Order] = set()

    @property
    def num_truncated(self) -> int:
        """Distinct orders so far that contain a chunk that was cut."""
        return len(self.truncated_orders)

    def count_truncated(self, orders: Sequence[Order]) -> None:
        """Count the orders that contain a chunk that was cut; called by every scorer for the orders it gets."""
        if self._cut_chunks:
            self.truncated_orders.update(order for order in orders if self._cut_chunks.intersection(order))


def by_length(orders: Sequence[Order]) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Yield the orders of each length: their positions, `[n]`, and their chunks, `[n, length]`."""
    rows_of: dict[int, list[int]] = {}
    for row, order in enumerate(orders):
        rows_of.setdefault(len(order), []).append(row)
    for length, rows in sorted(rows_of.items()):
        yield np.array(rows), np.array([orders[row] for row in rows], dtype=np.intp).reshape(-1, length)


class CachedScorer:
    """Computes each value once, and refuses values that cannot be ranked.

    Values depend on the query, the reranker and the order alone, so one scorer serves every setting of a search over
    the same candidates. Nothing is dropped while it lives. Reranker and chunks are named in errors.
    """

    def __init__(self, scorer: Scorer, name: str, ids: Sequence[str]) -> None:
        self.scorer = scorer
        self.name = name
        self._ids = ids
        self.values: dict[Order, float] = {}
        self.order_matters = scorer.order_matters

    @property
    def num_truncated(self) -> int:
        """Distinct orders so far that were cut to fit the reranker's window."""
        return self.scorer.num_truncated

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Return one value per order, `[len(orders)]`; only new orders reach the reranker.

        Raises:
            ScoringError: The reranker returned the wrong number of values, or one that is not finite.
        """
        return score_together([(self, orders)])[0]

    def passing(self, orders: Sequence[Order]) -> FloatArray:
        """Return the values of orders as a call does, but keep none, since they are too many."""
        return CachedScorer(self.scorer, self.name, self._ids)(orders)

    def keys(self, orders: Sequence[Order]) -> Sequence[Order]:
        """Return what the values of orders are kept by: themselves, or their sets where the order does not matter."""
        return orders if self.order_matters else [tuple(sorted(order)) for order in orders]

    def put(self, orders: list[Order], answer: ArrayLike) -> None:
        """Keep the reranker's answer for orders; raise as a call does."""

        def named(bad: Sequence[Order]) -> str:
            chunks = ", ".join(repr(self._ids[index]) for index in bad[0])
            return f"the chunks {chunks}" + (f" and {len(bad) - 1} more orders" if len(bad) > 1 else "")

        try:
            values = checked_values(answer, orders, f"reranker {self.name!r}", named)
        except InputError as error:
            raise ScoringError(str(error)) from error
        self.values.update(zip(orders, values.tolist(), strict=True))


def gives_probabilities(reranker: Reranker) -> bool:
    """Return whether a reranker says that its values are probabilities, which are used as they are."""
    return bool(getattr(reranker, "gives_probabilities", False))


def scale_of(singles: FloatArray) -> tuple[float, float]:
    """Return low and spread such that (values - low) / spread of single candidates, `[n]`, span [0, 1]; or 0 and 1."""
    low, spread = (float(singles.min()), float(np.ptp(singles))) if len(singles) else (0.0, 0.0)
    return (0.0, 1.0) if spread <= FLAT * max(1.0, float(np.abs(singles).max(initial=0.0))) else (low, spread)


def score_together(requests: Sequence[tuple[CachedScorer, Sequence[Order]]]) -> list[FloatArray]:
    """Return the values of the orders of each scorer, each of which stands in at most one request.

    Scorers of the same reranker share batches, if they have `score_jointly`, as a `WindowedScorer` has.

    Raises:
        ScoringError: A reranker returned the wrong number of values, or one that is not finite.
    """
    check_cancelled()
    asked = [(cached, cached.keys(orders)) for cached, orders in requests]
    groups: dict[tuple[Any, int], list[tuple[CachedScorer, list[Order]]]] = {}
    for cached, keys in asked:
        if new := [key for key in dict.fromkeys(keys) if key not in cached.values]:
            joint = getattr(cached.scorer, "score_jointly", None)
            owner: Any = cached.scorer if joint is None else cast(Any, cached.scorer).reranker
            groups.setdefault((joint, id(owner)), []).append((cached, new))
    for (joint, _), members in groups.items():
        requests_of_one = [(cached.scorer, new) for cached, new in members]
        answers = [scorer(new) for scorer, new in requests_of_one] if joint is None else joint(requests_of_one)
        for (cached, new), answer in zip(members, answers, strict=True):
            cached.put(new, answer)
    return [np.array([cached.values[key] for key in keys], dtype=np.float64) for cached, keys in asked]

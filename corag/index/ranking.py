"""Rankings of an index's rows: the best of them, ties included, and two rankings joined."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from corag.errors import InputError

Item = TypeVar("Item", bound=Hashable)


def reciprocal_rank_fusion(rankings: Sequence[Sequence[Item]], k: int = 60) -> list[Item]:
    """Join rankings into one.

    An item's score is the sum of `1 / (k + rank)` over the rankings that hold it, with ranks from 1 (Cormack et al.,
    "Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning Methods", SIGIR 2009, whose k is 60).

    Args:
        rankings: Items, best first, each at most once in a ranking.
        k: Lessens the weight of first places.

    Returns:
        All items, best first; of equal scores the one that the first ranking names first.
    """
    scores: dict[Item, float] = {}
    for ranking in rankings:
        for rank, item in enumerate(ranking, start=1):
            scores[item] = scores.get(item, 0.0) + 1 / (k + rank)
    return sorted(scores, key=lambda item: -scores[item])


class Hit(NamedTuple):
    """A row that was found; lower `rank` is better: the cosine distance, or the negative BM25 score.

    LanceDB's ids of rows ascend with the positions of the chunks until an index is changed in place; reading positions
    would cost another look-up.
    """

    rank: float
    row: int
    columns: Mapping[str, Any] = {}


def top_k(fetch: Callable[[int], list[list[Hit]]], k: int) -> list[list[Hit]]:
    """Return the first `k` hits per query; which of several ties LanceDB leaves out is chance, so ask on."""
    if k < 1:
        raise InputError(f"k must be at least 1, got {k}")
    limit = k + 1
    while True:
        found = [sorted(hits, key=lambda hit: hit[:2]) for hits in fetch(limit)]
        if not any(len(hits) >= limit and hits[k - 1].rank == hits[-1].rank for hits in found):
            return [hits[:k] for hits in found]
        limit *= 8

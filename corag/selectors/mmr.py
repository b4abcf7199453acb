"""`mmr`: sets of relevant chunks that repeat each other little, chosen chunk by chunk.

Carbonell and Goldstein, "The use of MMR, diversity-based reranking for reordering documents and producing summaries"
(1998). Letters: N candidates, D dimensions. Similarities are to the question, `[N]`; vectors are embeddings of any
length but 0, `[N, D]`; costs are tokens, `[N]`, and a budget is the most that the chosen costs add up to. Ties go to
the first in the list.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from corag.checks import check_count, check_range
from corag.errors import InputError
from corag.selectors.base import Choice, EmbeddingSelector, checked, unscored
from corag.selectors.problem import Int64, SelectionProblem
from corag.types import FloatArray, Order


def unit_vectors(vectors: ArrayLike) -> FloatArray:
    """Return vectors `[N, D]` scaled to length 1; `InputError` for other shapes and lengths of 0 or not finite."""
    given = np.asarray(vectors, dtype=np.float64)
    if given.ndim != 2:
        raise InputError(f"expected vectors of the shape [documents, dimensions], got {given.shape}")
    lengths = np.linalg.norm(given, axis=1, keepdims=True)
    if not (np.isfinite(lengths) & (lengths > 0)).all():
        raise InputError("a vector has no finite length above 0; leave out what has no direction, such as empty texts")
    unit: FloatArray = given / lengths
    return unit


def marginal_relevance(
    similarities: ArrayLike,
    vectors: ArrayLike,
    costs: Int64,
    budget: int,
    *,
    relevance_weight: float = 0.5,
    limit: int | None = None,
) -> Order:
    """Return candidates in the order in which maximal marginal relevance takes them.

    Each step takes the candidate that still fits with the largest
    `relevance_weight * similarity - (1 - relevance_weight) * largest cosine to one already taken` (the equation of
    section 2, whose lambda is `relevance_weight`, in [0, 1]); the second term is 0 for the first.
    """
    relevance, unit = np.asarray(similarities, dtype=np.float64), unit_vectors(vectors)
    redundancy = np.zeros(len(unit))
    chosen: list[int] = []
    available = np.ones(len(unit), dtype=bool)
    while limit is None or len(chosen) < limit:
        offered = available & (costs <= budget)
        if not offered.any():
            break
        gains = relevance_weight * relevance - (1 - relevance_weight) * redundancy
        best = int(np.where(offered, gains, -np.inf).argmax())
        cosines = unit @ unit[best]
        redundancy = np.maximum(redundancy, cosines) if chosen else cosines
        chosen.append(best)
        available[best] = False
        budget -= int(costs[best])
    return tuple(chosen)


@dataclass(kw_only=True, eq=False)
class Mmr(EmbeddingSelector):
    """Maximal marginal relevance over the candidates that fit.

    Args:
        relevance_weight: Similarity to the question against novelty; see `marginal_relevance`.
        k: The most chunks to take; None for as many as fit.
    """

    relevance_weight: float = checked(0.5, check_range, low=0, high=1, hint="typical: 0.5-0.8")
    k: int | None = checked(None, check_count, hint="typical: 3-20, None takes as many as fit")
    name = "mmr"

    def _choose(self, problem: SelectionProblem) -> Choice:
        problem = problem.comparable(self.cached_embedder.vectors, only_cosines=True)
        vectors = self._vectors(problem)
        weight = self.relevance_weight
        order = marginal_relevance(
            problem.relevance, vectors, problem.costs, problem.capacity, relevance_weight=weight, limit=self.k
        )
        return unscored(problem, order)

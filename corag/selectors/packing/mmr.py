"""`mmr`: similar to the question, and not to what is chosen already.

Carbonell and Goldstein, "The use of MMR, diversity-based reranking for reordering documents and producing summaries"
(1998). Letters: N candidates, D dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from corag.checks import check_count, check_range
from corag.selectors.base import Choice, unscored
from corag.selectors.packing.embedding import EmbeddingSelector, relevance_and_directions
from corag.selectors.problem import SelectionProblem
from corag.types import Order


def marginal_relevance(
    similarities: ArrayLike,
    vectors: ArrayLike,
    *,
    relevance_weight: float = 0.5,
    costs: NDArray[np.int64] | None = None,
    budget: int | None = None,
    limit: int | None = None,
) -> Order:
    """Return candidates in the order in which maximal marginal relevance takes them.

    Each step takes the candidate with the largest
    `relevance_weight * similarity - (1 - relevance_weight) * largest cosine to one already taken` (the equation of
    section 2); the second term is 0 for the first. Of equal candidates the first in the list.

    Args:
        similarities: To the query, `[N]`.
        vectors: Embeddings of the candidates, `[N, D]`, of any length but 0.
        relevance_weight: lambda of the paper, in [0, 1]; 1 is the ranking by similarity.
        costs: Tokens of each candidate, `[N]`; none for free.
        budget: The most that the taken ones may cost together. A candidate that no longer fits is passed over and
            counts neither for nor against others.
        limit: The most candidates to take.

    Raises:
        InputError: Shapes that do not fit, a number that is not finite, a vector of length 0.
    """
    check_range("relevance_weight", relevance_weight, 0, 1, "0.5 to 0.8 are usual")
    relevance, unit = relevance_and_directions(similarities, vectors)
    prices = np.zeros(len(unit), dtype=np.int64) if costs is None else costs
    left = int(prices.sum()) if budget is None else budget
    redundancy = np.zeros(len(unit))
    open_ones = np.ones(len(unit), dtype=bool)
    taken: list[int] = []
    while limit is None or len(taken) < limit:
        fits = open_ones & (prices <= left)
        if not fits.any():
            break
        scores = relevance_weight * relevance - (1 - relevance_weight) * redundancy
        index = int(np.where(fits, scores, -np.inf).argmax())
        cosines = unit @ unit[index]
        redundancy = np.maximum(redundancy, cosines) if taken else cosines
        open_ones[index] = False
        left -= int(prices[index])
        taken.append(index)
    return tuple(taken)


@dataclass(kw_only=True, eq=False)
class Mmr(EmbeddingSelector):
    """Maximal marginal relevance over the candidates that fit.

    Args:
        relevance_weight: Similarity to the question against novelty; see `marginal_relevance`.
        k: The most chunks to take; None for as many as fit.

    Other settings: see `EmbeddingSelector`.
    """

    relevance_weight: float = 0.5
    k: int | None = None
    name = "mmr"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("relevance_weight", self.relevance_weight, 0, 1, "0.5 to 0.8 are usual")
        if self.k is not None:
            check_count("k", self.k, "3 to 20 are usual, None takes as many as fit")

    def _choose(self, problem: SelectionProblem) -> Choice:
        problem, vectors = self._embedded(problem)
        order = marginal_relevance(
            problem.relevance,
            vectors,
            relevance_weight=self.relevance_weight,
            costs=problem.costs,
            budget=problem.capacity,
            limit=self.k,
        )
        return unscored(problem, order)

"""`mmr`: similar to the question, and not to what is chosen already.

Carbonell and Goldstein, "The use of MMR, diversity-based reranking for reordering documents and producing summaries"
(1998). Letters: N candidates, D dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from corag.checks import check_count, check_range
from corag.errors import InputError
from corag.models.cached import CachedEmbedder
from corag.naming import Spelling
from corag.selectors.base import BudgetedSelector, Choice, unscored
from corag.selectors.problem import SelectionProblem
from corag.types import Embedder, FloatArray, Order


def unit_vectors(vectors: ArrayLike) -> FloatArray:
    """Return vectors `[N, D]` scaled to length 1; `InputError` for other shapes and lengths of 0 or not finite."""
    given = np.asarray(vectors, dtype=np.float64)
    if given.ndim != 2:
        raise InputError(f"vectors have the shape {given.shape}; they must be [documents, dimensions]")
    lengths = np.linalg.norm(given, axis=1)
    bad = np.flatnonzero(~(np.isfinite(lengths) & (lengths > 0)))
    if len(bad):
        raise InputError(
            f"vector {bad[0]} has length {lengths[bad[0]]:g}; a cosine needs finite lengths above 0: leave out what "
            "the embedder gives no direction, such as empty texts"
        )
    unit: FloatArray = given / lengths[:, None]
    return unit


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
    relevance = np.asarray(similarities, dtype=np.float64)
    unit = unit_vectors(vectors)
    if relevance.shape != unit.shape[:1]:
        raise InputError(
            f"there are {len(unit)} vectors for similarities of the shape {relevance.shape}; give one each"
        )
    if not np.isfinite(relevance).all():
        raise InputError("a similarity is not a finite number; check the embeddings")
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
class Mmr(BudgetedSelector):
    """Maximal marginal relevance over the candidates that fit.

    Args:
        relevance_weight: Similarity to the question against novelty; see `marginal_relevance`.
        k: The most chunks to take; None for as many as fit.
        embedder: Embeds the chunks; name or object. The candidates' similarities should be its cosines; where they are
            no cosines it computes them.
    """

    relevance_weight: float = 0.5
    k: int | None = None
    embedder: Spelling | Embedder = "minilm"
    name = "mmr"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("relevance_weight", self.relevance_weight, 0, 1, "0.5 to 0.8 are usual")
        if self.k is not None:
            check_count("k", self.k, "3 to 20 are usual, None takes as many as fit")
        self._embedder = CachedEmbedder(self.embedder)

    def _choose(self, problem: SelectionProblem) -> Choice:
        problem = problem.comparable(self._embedder.vectors, only_cosines=True)
        order = marginal_relevance(
            problem.relevance,
            self._embedder.vectors([chunk.text for chunk in problem.chunks]),
            relevance_weight=self.relevance_weight,
            costs=problem.costs,
            budget=problem.capacity,
            limit=self.k,
        )
        return unscored(problem, order)

"""`adagres`: relevance minus redundancy, chunk by chunk, with a weight found for each question.

Peng, Wang, Long and Sheng, "AdaGReS: Adaptive greedy context selection via redundancy-aware scoring for token-budgeted
RAG" (arXiv 2512.25052), and their public code (github.com/orderer0001/AdaGReS). A set C of chunks scores

    F(C) = sum of sim(question, c) over C - beta * sum of sim(c, c') over pairs of C

with cosines for sim. Letters: N candidates, D dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from corag.checks import check_choice, check_range
from corag.selectors.base import Choice, unscored
from corag.selectors.packing.embedding import EmbeddingSelector, relevance_and_directions
from corag.selectors.problem import SelectionProblem
from corag.types import FloatArray, Order

Variant = Literal["paper", "code"]


def expected_chunks(costs: NDArray[np.int64], budget: int) -> int:
    """Return how many candidates of mean cost fit the budget, at least 1."""
    mean = float(costs.mean()) if len(costs) else 0.0
    return max(1, int(budget // mean)) if mean > 0 else max(1, len(costs))


def calibrated_beta(similarities: ArrayLike, vectors: ArrayLike, expected: int) -> float:
    """Return the weight of redundancy under which k chunks like the candidates would score 0.

    k chunks of mean relevance r and mean similarity s to each other score `k * r - beta * k * (k - 1) / 2 * s`. That is
    0 for `beta = r / ((k - 1) / 2 * s)`: a small budget, or candidates that repeat each other little, make redundancy
    cost more. Better and less redundant chunks than the candidates' mean still gain.

    Args:
        similarities: To the query, `[N]`.
        vectors: Embeddings of the candidates, `[N, D]`, of any length but 0.
        expected: k; see `expected_chunks`.

    Returns:
        beta; 0 where one chunk is expected, or where candidates are on average not similar to each other or to the
        question: there is then nothing to weigh.

    Raises:
        InputError: Shapes that do not fit, a number that is not finite, a vector of length 0.
    """
    relevance, unit = relevance_and_directions(similarities, vectors)
    if expected < 2 or len(unit) < 2:
        return 0.0
    redundancy = float((unit @ unit.T)[np.triu_indices(len(unit), k=1)].mean())
    return max(0.0, float(relevance.mean()) / ((expected - 1) / 2 * redundancy)) if redundancy > 0 else 0.0


def greedy_set(
    similarities: ArrayLike,
    vectors: ArrayLike,
    beta: float,
    costs: NDArray[np.int64],
    budget: int,
    *,
    stop: bool = True,
) -> Order:
    """Return candidates in the order in which each adds most to the score of those before it.

    Of equal gains the first in the list. A candidate that no longer fits is passed over.

    Args:
        similarities: To the query, `[N]`.
        vectors: Embeddings of the candidates, `[N, D]`, of any length but 0.
        beta: Weight of redundancy, at least 0.
        costs: Tokens of each candidate, `[N]`.
        budget: The most that the chosen ones may cost together.
        stop: Whether it ends where no candidate adds to the score; the first is taken in any case.

    Raises:
        InputError: Shapes that do not fit, a number that is not finite, a vector of length 0.
    """
    gains, unit = relevance_and_directions(similarities, vectors)
    gains, open_ones, left = gains.copy(), np.ones(len(unit), dtype=bool), budget
    taken: list[int] = []
    while (fits := open_ones & (costs <= left)).any():
        index = int(np.where(fits, gains, -np.inf).argmax())
        if stop and taken and gains[index] <= 0:
            break
        gains -= beta * (unit @ unit[index])
        open_ones[index] = False
        left -= int(costs[index])
        taken.append(index)
    return tuple(taken)


def set_score(similarities: FloatArray, vectors: ArrayLike, beta: float, order: Order) -> float:
    """Return F of a set of candidates; arguments as for `greedy_set`."""
    relevance, unit = relevance_and_directions(similarities, vectors)
    chosen = unit[list(order)]
    pairs = (chosen @ chosen.T)[np.triu_indices(len(chosen), k=1)]
    return float(relevance[list(order)].sum() - beta * pairs.sum())


@dataclass(kw_only=True, eq=False)
class AdaGReS(EmbeddingSelector):
    """Chunks that are relevant and repeat each other little, until none adds to the score.

    Args:
        beta: Weight of redundancy, or None: `calibrated_beta` for each question.
        variant: `paper` ends where no chunk adds to the score, often early: a mean chunk adds nothing once half of the
            expected number is chosen. `code` goes on as long as one fits, as the public code goes on to the expected
            number.

    Other settings: see `EmbeddingSelector`.
    """

    beta: float | None = None
    variant: Variant = "paper"
    name = "adagres"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("variant", self.variant, Variant)
        if self.beta is not None:
            check_range("beta", self.beta, 0, 1000, "0.05 to 1 are usual, None finds it for each question")

    def _choose(self, problem: SelectionProblem) -> Choice:
        problem, vectors = self._embedded(problem)
        similarities, costs, budget = problem.relevance, problem.costs, problem.capacity
        expected = expected_chunks(costs, budget)
        beta = calibrated_beta(similarities, vectors, expected) if self.beta is None else self.beta
        order = greedy_set(similarities, vectors, beta, costs, budget, stop=self.variant == "paper")
        trace = {"beta": beta, "expected_chunks": expected, "score": set_score(similarities, vectors, beta, order)}
        return unscored(problem, order, trace)

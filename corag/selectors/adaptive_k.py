"""`adaptive-k`: the candidates before the largest drop of similarity.

Taguchi, Maekawa and Bhutani, "Efficient Context Selection for Long-Context QA: No Tuning, No Iteration, Just
Adaptive-k" (arXiv:2506.08479), section 3.3 and algorithm 1, and their public code
(github.com/megagonlabs/adaptive-k-retrieval). Letters: N candidates.

With the largest gap between the documents i and i + 1, counted from 0, algorithm 1 returns k = i as the number of
documents; the code keeps the documents 0 to i, one more, which is what the text of the paper describes ("the documents
before the gap"), and so does this. With one less as the buffer it keeps what algorithm 1 does.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from common.checks import check_count, check_range
from corag.selectors.base import Choice, ComparingSelector, finite_numbers, keep_best, unscored
from corag.selectors.problem import SelectionProblem


def largest_gap_cutoff(similarities: ArrayLike, *, head: float = 0.0, tail: float = 0.1, buffer: int = 5) -> int:
    """Return how many of the most similar documents to keep: those before the largest gap, and a few more.

    Args:
        similarities: Similarity of each document to the query, `[N]`, in any order; sorted here, as in algorithm 1.
        head: Share of the gaps at the top that are ignored, in [0, 1].
        tail: Share of the gaps at the bottom that are ignored, in [0, 1]; 0.1 is the paper's "top 90%".
        buffer: Documents kept beyond the gap; the paper's B.

    Returns:
        A number from 0 (of no documents) to N. Ties go to the first gap, so equal similarities keep min(N, 1 + buffer).
        If head and tail leave no gap, all N are kept.

    Raises:
        InputError: A similarity is not finite, the shape is not `[N]`, or a setting is out of its range.
    """
    check_range("head", head, 0, 1, "typical: 0")
    check_range("tail", tail, 0, 1, "typical: 0.1")
    check_count("buffer", buffer, "typical: 5", least=0)
    ranked = -np.sort(-finite_numbers("similarities", similarities))
    num_gaps = max(len(ranked) - 1, 0)
    first, last = int(num_gaps * head), num_gaps - int(num_gaps * tail)
    if first >= last:
        return len(ranked)
    before_gap = int(np.diff(ranked[first : last + 1]).argmin()) + first
    return min(before_gap + 1 + buffer, len(ranked))


@dataclass(kw_only=True, eq=False)
class AdaptiveK(ComparingSelector):
    """The candidates before the largest drop of similarity, and a few more, as far as they fit.

    Settings: see `largest_gap_cutoff` and `ComparingSelector`.
    """

    head: float = 0.0
    tail: float = 0.1
    buffer: int = 5
    name = "adaptive-k"
    compared = ("cosine", "score")

    def __post_init__(self) -> None:
        super().__post_init__()
        self._cutoff = partial(largest_gap_cutoff, head=self.head, tail=self.tail, buffer=self.buffer)
        self._cutoff(())  # refuses wrong settings

    def _choose(self, problem: SelectionProblem) -> Choice:
        problem = self._comparable(problem)
        cutoff = self._cutoff(problem.relevance)
        return unscored(problem, keep_best(problem, cutoff), {"cutoff": cutoff})

"""`adaptive-k`: as many candidates as stand before the largest drop of similarity.

Taguchi, Maekawa and Bhutani, "Efficient Context Selection for Long-Context QA: No Tuning, No Iteration, Just
Adaptive-k" (arXiv:2506.08479), section 3.3 and algorithm 1, and their public code
(github.com/megagonlabs/adaptive-k-retrieval). Letters: Q queries, N candidates of each.

Paper and code differ in what the index of the largest gap means. Both count documents from 0. With the gap between
the documents i and i + 1, algorithm 1 returns k = i as the number of documents, the code keeps the documents 0 to i,
one more, which is what the text of the paper describes ("the documents before the gap"). `variant` chooses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from corag.checks import check_choice, check_count, check_range
from corag.errors import InputError
from corag.selectors.base import Choice, ComparingSelector, keep_best, unscored
from corag.selectors.problem import SelectionProblem
from corag.types import FloatArray

Strategy = Literal["largest-gap", "moving-average", "second-difference"]
Variant = Literal["code", "paper"]
IntArray = NDArray[np.int64]

# Rows at a time, so that what is computed from them stays in the processor's cache.
_ROWS = 128


def largest_gap_cutoff(
    similarities: ArrayLike, *, head: float = 0.0, tail: float = 0.1, buffer: int = 5, variant: Variant = "code"
) -> int:
    """Return how many of the most similar documents to keep: those before the largest gap, and a few more.

    Args:
        similarities: Similarity of each document to the query, `[N]`, in any order; sorted here, as in algorithm 1.
        head: Share of the gaps at the top that are not looked at, in [0, 1].
        tail: Share of the gaps at the bottom that are not looked at, in [0, 1]; 0.1 is the paper's "top 90%".
        buffer: Documents kept beyond the gap; the paper's B.
        variant: `code` keeps min(N, i + 1 + buffer) documents, where i (from 0) is the last before the gap, and
            leaves out `int((N - 1) * tail)` gaps. `paper` keeps min(N, i + buffer) and looks at the gaps among the
            first `N - int(N * tail)` documents.

    Returns:
        A number from 0 (of no documents) to N. Of equal gaps the first wins, so equal similarities keep
        min(N, 1 + buffer). Where head and tail leave no gap to look at, all N are kept.

    Raises:
        InputError: A similarity is not finite, the shape is not `[N]`, or a setting is out of its range.
    """
    return _cutoff(similarities, "largest-gap", head, tail, buffer, 1, variant)


def moving_average_cutoff(
    similarities: ArrayLike, *, head: float = 0.0, tail: float = 0.1, buffer: int = 5, window: int = 5
) -> int:
    """Return how many documents to keep: those before the largest drop of a moving average (public code only).

    The average over `window` documents drops where the gaps between the documents j and j + window are large together.
    The cut is put at the largest of these gaps; the public code takes j itself, up to window - 1 documents too early.
    With fewer than window + 1 documents, or none of the drops left by head and tail, the largest gap counts. For the
    other arguments see `largest_gap_cutoff`.
    """
    return _cutoff(similarities, "moving-average", head, tail, buffer, window, "code")


def second_difference_cutoff(similarities: ArrayLike, *, head: float = 0.0, tail: float = 0.1, buffer: int = 5) -> int:
    """Return how many documents to keep: up to where a steepening curve first flattens again (public code only).

    The first positive second difference after any negative one marks the spot; as in the public code the first
    document after the drop is kept too. Without such a spot the largest gap counts, looked for in the same range;
    the public code looks in what is left of it after cutting it a second time. For the arguments see
    `largest_gap_cutoff`.
    """
    return _cutoff(similarities, "second-difference", head, tail, buffer, 1, "code")


def cutoffs(
    similarities: ArrayLike,
    *,
    strategy: Strategy = "largest-gap",
    head: float = 0.0,
    tail: float = 0.1,
    buffer: int = 5,
    window: int = 5,
    variant: Variant = "code",
) -> IntArray:
    """Return how many documents to keep for each query, `[Q]`, of similarities `[Q, N]`.

    Each strategy has a function above that explains it and its settings; the other settings have no effect on it.
    """
    given = np.asarray(similarities, dtype=np.float64)
    if given.ndim != 2:
        raise InputError(f"similarities have the shape {given.shape}; they must be [queries, documents]")
    _check_settings(strategy, head, tail, buffer, window, variant)
    num_queries, num_documents = given.shape
    kept = np.full(num_queries, num_documents, dtype=np.int64)
    for start in range(0, num_queries, _ROWS):
        block = given[start : start + _ROWS]
        if not np.isfinite(block).all():
            row, column = np.argwhere(~np.isfinite(block))[0]
            raise InputError(
                f"similarity {block[row, column]} of query {start + row}, document {column}, is not a finite number; "
                "check the embeddings for empty texts and division by zero"
            )
        if num_documents < 2:
            continue
        ranked = -np.sort(-block, axis=1)
        # The paper looks at the gaps among the first N - int(N * tail) documents.
        dropped = int(num_documents * tail) if variant == "paper" else int((num_documents - 1) * tail)
        gaps = slice(int((num_documents - 1) * head), max(num_documents - 1 - dropped, 0))
        if gaps.start < gaps.stop:
            last = _STRATEGIES[strategy](ranked, gaps, window)
            kept[start : start + _ROWS] = last + buffer + (variant == "code")
    return np.minimum(kept, num_documents)


def _largest_gap(ranked: FloatArray, searched: slice, window: int) -> IntArray:
    """Return the last document before the largest of the searched gaps, `[Q]`, for similarities `[Q, N]`."""
    last: IntArray = np.diff(ranked[:, searched.start : searched.stop + 1], axis=1).argmin(axis=1) + searched.start
    return last


def _moving_average(ranked: FloatArray, searched: slice, window: int) -> IntArray:
    # A drop of the average, times the window, is the sum of `window` gaps that lie side by side.
    first, end = searched.start, searched.stop - window + 1
    if end <= first:
        return _largest_gap(ranked, searched, window)
    drops = ranked[:, first:end] - ranked[:, first + window : end + window]
    spans = (drops.argmax(axis=1) + first)[:, None] + np.arange(window)
    gaps = np.take_along_axis(ranked, spans, axis=1) - np.take_along_axis(ranked, spans + 1, axis=1)
    last: IntArray = spans[:, 0] + gaps.argmax(axis=1)
    return last


def _second_difference(ranked: FloatArray, searched: slice, window: int) -> IntArray:
    last = _largest_gap(ranked, searched, window)
    bends = np.diff(ranked[:, searched.start : searched.stop + 1], n=2, axis=1)
    if bends.shape[1] < 2:
        return last
    spots = (bends[:, 1:] > 0) & (np.minimum.accumulate(bends, axis=1)[:, :-1] < 0)
    return np.where(spots.any(axis=1), spots.argmax(axis=1) + 2 + searched.start, last)


_STRATEGIES: dict[str, Callable[[FloatArray, slice, int], IntArray]] = {
    "largest-gap": _largest_gap,
    "moving-average": _moving_average,
    "second-difference": _second_difference,
}


def _cutoff(similarities: ArrayLike, *settings: Any) -> int:
    given = np.asarray(similarities, dtype=np.float64)
    if given.ndim != 1:
        raise InputError(f"similarities have the shape {given.shape}; give those of one query, [documents]")
    names = ("strategy", "head", "tail", "buffer", "window", "variant")
    return int(cutoffs(given[None], **dict(zip(names, settings, strict=True)))[0])


def _check_settings(strategy: str, head: float, tail: float, buffer: int, window: int, variant: str) -> None:
    check_choice("strategy", strategy, Strategy)
    check_choice("variant", variant, Variant)
    check_range("head", head, 0, 1, "it is a share of the gaps")
    check_range("tail", tail, 0, 1, "it is a share of the gaps; the paper has 0.1")
    check_count("buffer", buffer, "5 is usual", least=0)
    check_count("window", window, "5 is usual")


@dataclass(kw_only=True, eq=False)
class AdaptiveK(ComparingSelector):
    """The candidates before the largest drop of similarity, and a few more, as far as they fit.

    Settings: see `cutoffs` and `ComparingSelector`.
    """

    strategy: Strategy = "largest-gap"
    head: float = 0.0
    tail: float = 0.1
    buffer: int = 5
    window: int = 5
    variant: Variant = "code"
    name = "adaptive-k"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._settings = (self.strategy, self.head, self.tail, self.buffer, self.window, self.variant)
        _check_settings(*self._settings)

    def _choose(self, problem: SelectionProblem) -> Choice:
        problem = self._comparable(problem)
        cutoff = _cutoff(problem.relevance, *self._settings)
        return unscored(problem, keep_best(problem, cutoff), {"cutoff": cutoff})

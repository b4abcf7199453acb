"""The mean difference of two methods over the same questions, with a bootstrap interval.

Letters: `n` questions, `k` figures of a question, `g` groups, `s` samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag.errors import InputError
from corag.types import FloatArray

RESAMPLES = 2000

Statistic = Callable[[FloatArray], FloatArray]
"""What many questions amount to, given the means of their figures: `[..., k]` to `[...]`."""


@dataclass(frozen=True)
class Difference:
    """A mean difference over `n` pairs, with its 95% interval, and a two-sided p by the same bootstrap."""

    mean: float
    low: float
    high: float
    p: float
    n: int

    @property
    def is_certain(self) -> bool:
        """Whether 0 is outside the interval."""
        return not self.low <= 0 <= self.high

    def __format__(self, spec: str) -> str:
        spec = spec or ".3f"
        return f"{self.mean:+{spec}} ({self.low:+{spec}} to {self.high:+{spec}})"


def first(means: FloatArray) -> FloatArray:
    """Return the mean of the first figure: the statistic of most measures."""
    return means[..., 0]


def paired_difference(
    ours: Any,
    theirs: Any = None,
    *,
    groups: Sequence[str] | NDArray[Any] | None = None,
    statistic: Statistic = first,
) -> Difference:
    """Return how much more one method has than another on the same questions.

    Args:
        ours: Figures of the one, `[n]`, or `[n, k]` where the statistic takes several.
        theirs: Figures of the other, in the same order; None for 0, which gives the interval of a mean by itself.
        groups: The group of each question, `[n]`. Questions that share a document are right or wrong together, so
            groups are resampled as a whole; by default, and if all are of one group, each question by itself.
        statistic: Of the means.
    """
    ours = _columns(ours)
    theirs = np.zeros_like(ours) if theirs is None else _columns(theirs)
    if not len(ours) or ours.shape != theirs.shape:
        raise InputError(f"figures have shapes {ours.shape} and {theirs.shape}; give both for the same questions")
    names = np.arange(len(ours)) if groups is None or len(set(groups)) == 1 else np.asarray(groups, dtype=str)
    unique, index, sizes = np.unique(names, return_inverse=True, return_counts=True)
    sums = np.zeros((2, len(unique), ours.shape[1]))
    np.add.at(sums[0], index, ours)
    np.add.at(sums[1], index, theirs)
    counts = _counts(len(unique))
    ours_resampled, theirs_resampled = counts @ sums / (counts @ sizes)[:, None]
    samples = statistic(ours_resampled) - statistic(theirs_resampled)
    low, high = np.percentile(samples, [2.5, 97.5]).tolist()
    tail = min(float((samples <= 0).mean()), float((samples >= 0).mean()))
    mean = statistic(ours.mean(axis=0)) - statistic(theirs.mean(axis=0))
    return Difference(float(mean), low, high, min(1.0, max(2 * tail, 1 / RESAMPLES)), len(ours))


def _columns(values: Any) -> FloatArray:
    columns = np.asarray(values, dtype=np.float64)
    return columns[:, None] if columns.ndim == 1 else columns


@lru_cache(maxsize=2)
def _counts(groups: int) -> FloatArray:
    """Return how often each group is in each sample with replacement, `[s, g]`."""
    samples = np.random.default_rng(0).integers(0, groups, (RESAMPLES, groups))
    return np.stack([np.bincount(rows, minlength=groups) for rows in samples]).astype(np.float64)

"""The mean difference of two methods over the same questions, with a bootstrap interval.

Letters: `n` questions, `k` figures of a question, `g` groups, `s` samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from corag.errors import InputError
from corag.types import FloatArray

RESAMPLES = 2000

Statistic = Callable[[FloatArray], FloatArray]
"""What many questions amount to, given the means of their figures: `[..., k]` to `[...]`."""


@dataclass(frozen=True)
class Difference:
    """A mean difference of pairs.

    Attributes:
        mean: The difference.
        low: Lower end of its 95% interval.
        high: Upper end.
        p: Two-sided, by the same bootstrap, at least 1 / resamples.
        n: Number of questions.
    """

    mean: float
    low: float
    high: float
    p: float
    n: int

    @property
    def is_certain(self) -> bool:
        """Whether 0 is outside the interval."""
        return not self.low <= 0 <= self.high

    def __str__(self) -> str:
        return f"{self.mean:+.3f} ({self.low:+.3f} to {self.high:+.3f})"


def first(means: FloatArray) -> FloatArray:
    """Return the mean of the first figure: the statistic of most measures."""
    return means[..., 0]


def paired_difference(
    ours: Any,
    theirs: Any = None,
    *,
    groups: Sequence[str] | None = None,
    statistic: Statistic = first,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Difference:
    """Return how much more one method has than another on the same questions.

    Args:
        ours: Figures of the one, `[n]`, or `[n, k]` where the statistic takes several.
        theirs: Figures of the other, in the same order; None for 0, which gives the interval of a mean by itself.
        groups: The group of each question, `[n]`. Questions that share a document are right or wrong together, so
            groups are resampled as a whole; by default each question by itself.
        statistic: Of the means.
        resamples: Samples of the bootstrap.
        seed: Of the samples.

    Raises:
        InputError: There is no question.
    """
    ours = _columns(ours)
    theirs = np.zeros_like(ours) if theirs is None else _columns(theirs)
    if not len(ours) or ours.shape != theirs.shape:
        raise InputError(f"figures have shapes {ours.shape} and {theirs.shape}; give both for the same questions")
    sizes = np.ones(len(ours))
    if groups is not None:
        _, index = np.unique(np.asarray(groups, dtype=str), return_inverse=True)
        sizes = np.bincount(index).astype(np.float64)
    sums = [values if groups is None else _group_sums(values, index) for values in (ours, theirs)]
    counts = _counts(len(sizes), resamples, seed)
    total = (counts @ sizes)[:, None]
    samples = statistic(counts @ sums[0] / total) - statistic(counts @ sums[1] / total)
    low, high = np.percentile(samples, [2.5, 97.5]).tolist()
    tail = min(float((samples <= 0).mean()), float((samples >= 0).mean()))
    mean = statistic(ours.mean(axis=0)) - statistic(theirs.mean(axis=0))
    return Difference(float(mean), low, high, min(1.0, max(2 * tail, 1 / resamples)), len(ours))


def _columns(values: Any) -> FloatArray:
    """Return figures as `[n, k]`."""
    found = np.asarray(values, dtype=np.float64)
    return found[:, None] if found.ndim == 1 else found


def _group_sums(values: FloatArray, index: Any) -> FloatArray:
    """Return the sums of figures, `[n, k]`, over groups, `[g, k]`."""
    found = np.zeros((int(index.max()) + 1, values.shape[1]))
    np.add.at(found, index, values)
    return found


@lru_cache(maxsize=2)
def _counts(groups: int, resamples: int, seed: int) -> FloatArray:
    """Return how often each group is in each sample with replacement, `[s, g]`."""
    samples = np.random.default_rng(seed).integers(0, groups, (resamples, groups))
    return np.stack([np.bincount(rows, minlength=groups) for rows in samples]).astype(np.float64)

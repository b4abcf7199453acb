"""How much rerankers differ: which is best on which question, and what one gains who always picks the best.

q questions, r rerankers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from corag.errors import InputError
from corag.types import FloatArray

ROUNDING = 1e-9
"""Scores no further apart are equal."""


@dataclass(frozen=True, slots=True)
class Diversity:
    """How far a choice for each question could go beyond one choice for all.

    Attributes:
        questions: How many were scored.
        shares: Of each reranker, the share of the questions on which it is best; a tie is divided among the tied.
        differ: Share of the questions on which not all rerankers do alike.
        best: The reranker with the highest mean.
        best_mean: That mean.
        oracle_mean: Mean of the best score of each question.
        gain: Of the oracle over the best single one, relative to it.
        low: Lower end of the 95% interval of the gain, over resampled questions; the best single one is found anew in
            each sample.
        high: Its upper end.
    """

    questions: int
    shares: dict[str, float]
    differ: float
    best: str
    best_mean: float
    oracle_mean: float
    gain: float
    low: float
    high: float


def diversity(names: Sequence[str], scores: FloatArray, *, resamples: int = 2000, seed: int = 0) -> Diversity:
    """Compare rerankers question by question.

    Args:
        names: Of the rerankers.
        scores: `[q, r]`, higher is better, at least 0.
        resamples: Samples of the bootstrap.
        seed: Of the samples.

    Raises:
        InputError: No question, or not a column for each name.
    """
    if scores.ndim != 2 or scores.shape[1] != len(names) or not len(scores):
        raise InputError(f"scores have shape {scores.shape}; give one row or more, and a column for each of {names}")
    is_best = scores >= scores.max(axis=1, keepdims=True) - ROUNDING
    shares = (is_best / is_best.sum(axis=1, keepdims=True)).mean(axis=0)
    means = scores.mean(axis=0)
    best = int(np.argmax(means))
    rng = np.random.default_rng(seed)
    oracles = scores.max(axis=1)
    gains = np.array(
        [_gain(scores[rows], oracles[rows]) for rows in rng.integers(0, len(scores), (resamples, len(scores)))]
    )
    low, high = np.percentile(gains, [2.5, 97.5]).tolist()
    return Diversity(
        questions=len(scores),
        shares=dict(zip(names, shares.tolist(), strict=True)),
        differ=float(1 - is_best.all(axis=1).mean()),
        best=names[best],
        best_mean=float(means[best]),
        oracle_mean=float(oracles.mean()),
        gain=_gain(scores, oracles),
        low=low,
        high=high,
    )


def mean_interval(values: FloatArray, *, resamples: int = 2000, seed: int = 0) -> tuple[float, float]:
    """Return the 95% interval of the mean of values `[q]`, over resampled questions."""
    rows = np.random.default_rng(seed).integers(0, len(values), (resamples, len(values)))
    low, high = np.percentile(values[rows].mean(axis=1), [2.5, 97.5]).tolist()
    return low, high


def _gain(scores: FloatArray, oracles: FloatArray) -> float:
    best = float(scores.mean(axis=0).max())
    return float(oracles.mean()) / best - 1 if best > 0 else 0.0

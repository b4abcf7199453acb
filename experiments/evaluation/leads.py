"""What one method gains over another, and what one gains who always picks the best, with bootstrap intervals.

q questions, r rerankers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from corag.errors import InputError
from corag.naming import parse
from corag.types import FloatArray
from experiments.evaluation.averages import Row, average
from experiments.evaluation.config import EvaluateConfig
from experiments.evaluation.metrics import trade_off_efficiency

ROUNDING = 1e-9
"""Scores no further apart are equal."""
RESAMPLES = 2000

Statistic = Callable[[FloatArray], FloatArray]
"""What a figure of many questions is: of their means, `[..., figures]`, one number each, `[...]`."""


def _mean(means: FloatArray) -> FloatArray:
    return means[..., 0]


def _tes(means: FloatArray) -> FloatArray:
    return np.apply_along_axis(lambda pair: trade_off_efficiency(*pair.tolist()), -1, means)


def _balanced(means: FloatArray) -> FloatArray:
    accuracy, first, accuracy_on_first = np.moveaxis(means, -1, 0)
    both = (first > 0) & (first < 1)
    share = np.where(both, first, 0.5)
    halves = (accuracy_on_first / share + (accuracy - accuracy_on_first) / (1 - share)) / 2
    found: FloatArray = np.where(both, halves, accuracy)
    return found


LEADS: Mapping[str, tuple[tuple[str, ...], Statistic]] = {
    "full_evidence": (("full_evidence",), _mean),
    "f1": (("f1",), _mean),
    "tes": (("full_evidence", "chunks"), _tes),
    "recall_tes": (("evidence_recall", "chunks"), _tes),
    "accuracy": (("accuracy",), _mean),
    "balanced_accuracy": (("accuracy", "right_is_first", "accuracy_on_first"), _balanced),
}
"""What leads are measured in: figures of rows, and the statistic of their means."""


class Interval(NamedTuple):
    """A value with its 95% interval over resampled questions."""

    value: float
    low: float
    high: float

    @property
    def differs(self) -> bool:
        """Whether 0 is outside."""
        return not self.low <= 0 <= self.high


def definition(name: str) -> tuple[tuple[str, ...], Statistic]:
    """Return the figures of rows that a figure is made of, and their statistic: by default its mean."""
    return LEADS.get(name, ((name,), _mean))


def lead(
    challenger: Sequence[Row],
    baseline: Sequence[Row],
    *,
    names: Sequence[str] = tuple(LEADS),
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, Any]:
    """Return what a challenger gains over a baseline, given the rows of both for the same questions.

    Args:
        challenger: Its rows.
        baseline: Rows of the other, in the same order.
        names: Figures: `LEADS`, or any of rows.
        resamples: Samples of the bootstrap.
        seed: Of the samples.

    Returns:
        For each figure the difference, with its 95% interval (`_low`, `_high`) over resampled questions; those on which
        one of both failed are left out. `share_of_tokens`: of the challenger, relative to the baseline.
    """
    found: dict[str, Any] = {}
    for name in names:
        figures, statistic = definition(name)
        ours, theirs = paired(challenger, baseline, figures)
        if len(ours):
            gained = gain(ours, theirs, statistic, resamples=resamples, seed=seed)
            found |= {name: gained.value, f"{name}_low": gained.low, f"{name}_high": gained.high}
    ours, theirs = paired(challenger, baseline, ("cost_tokens",))
    found["share_of_tokens"] = float(ours.sum() / theirs.sum()) if theirs.any() else None
    return found


def gain(
    ours: FloatArray, theirs: FloatArray, statistic: Statistic = _mean, *, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Return how much more a statistic of one method is than of another, given figures of the same questions.

    Args:
        ours: Figures of the one, `[q, figures]`.
        theirs: Figures of the other; zeros give the interval of the statistic itself.
        statistic: Of the means.
        resamples: Samples of the bootstrap.
        seed: Of the samples.
    """
    value = statistic(ours.mean(axis=0)) - statistic(theirs.mean(axis=0))
    counts, num = _counts(len(ours), resamples, seed), len(ours)
    leads = statistic(counts @ ours / num) - statistic(counts @ theirs / num)
    low, high = np.percentile(leads, [2.5, 97.5]).tolist()
    return Interval(float(value), low, high)


def paired(challenger: Sequence[Row], baseline: Sequence[Row], figures: Sequence[str]) -> tuple[FloatArray, FloatArray]:
    """Return the figures of both where both have them, `[q, figures]` each."""
    pairs = [
        pair
        for pair in zip(challenger, baseline, strict=True)
        if all(row.get(name) is not None for row in pair for name in figures)
    ]
    ours, theirs = (
        np.array([[pair[side][name] for name in figures] for pair in pairs], dtype=float).reshape(-1, len(figures))
        for side in (0, 1)
    )
    return ours, theirs


def _samples(questions: int, resamples: int, seed: int) -> NDArray[np.int64]:
    """Return samples of questions with replacement, `[resamples, q]`."""
    return np.random.default_rng(seed).integers(0, questions, (resamples, questions))


@lru_cache(maxsize=2)
def _counts(questions: int, resamples: int, seed: int) -> FloatArray:
    """Return how often each question is in each sample, `[resamples, q]`."""
    samples = _samples(questions, resamples, seed)
    return np.stack([np.bincount(rows, minlength=questions) for rows in samples]).astype(np.float64)


def diversity(names: Sequence[str], scores: FloatArray, *, resamples: int = RESAMPLES, seed: int = 0) -> dict[str, Any]:
    """Return how far a choice of the reranker for each question could go beyond one choice for all.

    `scores` are `[q, r]`, a column for each of the rerankers' `names`; higher is better, at least 0.

    Returns:
        questions: How many were scored.
        shares: Of each reranker, the share of the questions on which it is best; a tie is divided among the tied.
        differ: Share of the questions on which not all rerankers do alike.
        best, best_mean: The reranker with the highest mean score, and that mean.
        oracle_mean: Mean of the best score of each question.
        gain: Of the oracle over the best single one, relative to it.
        low, high: 95% interval of the gain; the best single one is found anew in each sample.

    Raises:
        InputError: No question, or not a column for each name.
    """
    if scores.ndim != 2 or scores.shape[1] != len(names) or not len(scores):
        raise InputError(f"scores have shape {scores.shape}; give one row or more, and a column for each of {names}")
    is_best = scores >= scores.max(axis=1, keepdims=True) - ROUNDING
    shares = (is_best / is_best.sum(axis=1, keepdims=True)).mean(axis=0)
    means = scores.mean(axis=0)
    best = int(np.argmax(means))
    oracles = scores.max(axis=1)
    low, high = np.percentile(
        [_gain(scores[rows], oracles[rows]) for rows in _samples(len(scores), resamples, seed)], [2.5, 97.5]
    ).tolist()
    return {
        "questions": len(scores),
        "shares": dict(zip(names, shares.tolist(), strict=True)),
        "differ": float(1 - is_best.all(axis=1).mean()),
        "best": names[best],
        "best_mean": float(means[best]),
        "oracle_mean": float(oracles.mean()),
        "gain": _gain(scores, oracles),
        "low": low,
        "high": high,
    }


def _gain(scores: FloatArray, oracles: FloatArray) -> float:
    best = float(scores.mean(axis=0).max())
    return float(oracles.mean()) / best - 1 if best > 0 else 0.0


class Measured(Protocol):
    """A set of questions whose rows are known."""

    name: str
    budgets: tuple[int, ...]

    def rows(self, budget: int) -> Mapping[str, Sequence[Row]]:
        """Return the rows of each method."""


def gains(config: EvaluateConfig, runs: Sequence[Measured]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the leads of the challengers, and the diversity of the rerankers."""
    leads = []
    for run in runs:
        for budget in run.budgets if config.baselines else ():
            rows = run.rows(budget)
            baseline = max(config.baselines, key=lambda name: average(rows[name])["tes"] or 0.0)
            leads += [
                {"set": run.name, "budget_tokens": budget, "challenger": name, "baseline": baseline}
                | lead(rows[name], rows[baseline], seed=config.seed)
                for name in config.challengers
            ]
    names = [parse(text).name for text in config.rerankers]
    diversities = []
    for budget in runs[0].budgets if names else ():
        for method in (parse(text).name for text in config.method_texts):
            scores = {
                run.name: np.array(
                    [[row.get("f1", 0.0) for row in run.rows(budget)[f"{name} {method}"]] for name in names]
                ).T
                for run in runs
            }
            scores |= {"all": np.concatenate(list(scores.values()))} if len(runs) > 1 else {}
            diversities += [
                {"set": name, "budget_tokens": budget, "method": method} | diversity(names, of_set, seed=config.seed)
                for name, of_set in scores.items()
            ]
    return leads, diversities

"""What ways to choose a configuration achieve: means, regret, share of the oracle's gap, intervals and tests.

Letters: `s` seeds, `n` questions, `C` configurations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.agents.targets import TargetConfig, quality, utility
from experiments.labels.arrays import FloatArray, LabelArrays

RESAMPLES = 10_000
SIGNIFICANT = 0.05
BASE, CEILING = "best-single", "oracle"
COSTS = ("cost_tokens", "latency_ms", "orders_scored")

Choices = NDArray[np.int64]


def method_figures(
    arrays: LabelArrays, chosen: Mapping[str, Sequence[Choices]], target: TargetConfig
) -> list[dict[str, Any]]:
    """Return one row of figures per method.

    `gap_closed` is the share of the utility between the best single configuration and the oracle; its interval (95%)
    is a bootstrap over groups of questions that share documents. `p_questions` is a paired sign-flip test of the same
    groups against the best single configuration, on the mean over the seeds; `p_seeds` a paired t-test over the seeds.
    Both are two-sided. `chosen` holds for each method, `best-single` and `oracle` among them, the choices of each seed,
    `[n]`, on the test questions `arrays`.
    """
    values, metric = utility(arrays, target), quality(arrays, target)
    _, groups = np.unique(arrays.group, return_inverse=True)
    got = {name: _taken(values, choices) for name, choices in chosen.items()}
    base, ceiling = got[BASE], got[CEILING].mean(axis=0)
    rows = []
    for name, choices in chosen.items():
        mine = got[name].mean(axis=0)
        lead, gap = mine - base.mean(axis=0), ceiling - base.mean(axis=0)
        low, high = gap_interval(lead, gap, groups)
        per_seed, base_per_seed = got[name].mean(axis=1), base.mean(axis=1)
        paired = len(per_seed) == len(base)
        rows.append(
            {
                "method": name,
                "seeds": len(choices),
                "quality": float(_taken(metric, choices).mean()),
                "utility": float(mine.mean()),
                "utility_deviation": float(per_seed.std(ddof=1)) if len(choices) > 1 else 0.0,
                "regret": float((ceiling - mine).mean()),
                "gap_closed": float(lead.sum() / gap.sum()) if gap.sum() > 0 else 0.0,
                "gap_closed_low": low,
                "gap_closed_high": high,
                "p_questions": sign_flip_p(lead, groups),
                "p_seeds": paired_t_p(per_seed - base_per_seed) if paired else None,
                "seeds_above": int((per_seed > base_per_seed).sum()) if paired else None,
                **{figure: float(_taken(arrays.figures[figure], choices).mean()) for figure in COSTS},
            }
        )
    return rows


def by_folder(
    arrays: LabelArrays, chosen: Mapping[str, Sequence[Choices]], target: TargetConfig
) -> dict[str, dict[str, float]]:
    """Return each method's mean utility on the questions of each data folder."""
    values = utility(arrays, target)
    found: dict[str, dict[str, float]] = {}
    for folder in sorted(set(arrays.data)):
        rows = arrays.data == folder
        found[str(folder)] = {
            name: float(_taken(values, choices)[:, rows].mean()) for name, choices in chosen.items()
        } | {"questions": int(rows.sum())}
    return found


def gap_interval(lead: FloatArray, gap: FloatArray, groups: NDArray[np.int64], seed: int = 0) -> tuple[float, float]:
    """Return the 95% interval of sum(lead) / sum(gap), by drawing groups of questions with replacement.

    `lead` and `gap`, `[n]`: the utility of a method and of the ceiling above the base; `groups`, `[n]`, from 0 up.
    """
    leads, gaps = np.bincount(groups, weights=lead), np.bincount(groups, weights=gap)
    drawn = np.random.default_rng(seed).multinomial(len(leads), np.full(len(leads), 1 / len(leads)), size=RESAMPLES)
    tops, bottoms = drawn @ leads, drawn @ gaps
    shares = np.divide(tops, bottoms, out=np.zeros(RESAMPLES), where=bottoms > 0)
    low, high = np.quantile(shares, [0.025, 0.975])
    return float(low), float(high)


def sign_flip_p(lead: FloatArray, groups: NDArray[np.int64], seed: int = 0) -> float:
    """Return the two-sided p-value of a mean lead of 0, `[n]`, by flipping the signs of whole groups of questions."""
    sums = np.bincount(groups, weights=lead)
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(RESAMPLES, len(sums)))
    # A rounding error must not tell equal sums apart.
    extreme = np.abs(signs @ sums) >= abs(sums.sum()) - 1e-12
    return float((extreme.sum() + 1) / (RESAMPLES + 1))


def paired_t_p(differences: FloatArray) -> float | None:
    """Return the two-sided p-value of a paired t-test; None for fewer than two pairs, or without any spread."""
    if len(differences) < 2 or np.ptp(differences) == 0:
        return None
    from scipy import stats

    return float(stats.ttest_1samp(differences, 0.0).pvalue)


def _taken(values: FloatArray, choices: Sequence[Choices]) -> FloatArray:
    """Return what each seed's choices gave, `[s, n]`."""
    rows = np.arange(len(values))
    return np.array([values[rows, choice] for choice in choices])

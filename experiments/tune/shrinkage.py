"""What a configuration gains over the default, shrunk towards what other kinds of questions say: empirical Bayes.

The gain on the user's own questions is one estimate, with a variance that falls with their number. The priors of a
checkpoint (`AgentConfig.priors`), its mean over kinds of questions and how far kinds differ, are another. The posterior
mean weighs both by their precision (the normal model of Efron and Morris, 1973).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from corag.types import FloatArray

OWN_WEIGHT = 20
"""Degrees of freedom that the labels' variance within a kind has beside the own questions'."""
MIN_GROUPS = 5
"""With fewer groups, the variance between them is not known from the questions themselves."""
CAUTION = 1.0
"""Standard deviations of the posterior that a gain is counted below its mean, because the highest of many estimates is
too high by chance. At 30 own questions of nine kinds, half of it loses .001 to .008 on three and all of it .001 on two.
"""


@dataclass(frozen=True)
class GainPrior:
    """What labels say about the gain of a configuration on a kind of questions that they do not hold.

    `mean`, its `variance` between kinds and by estimation, and the variance `within` a kind, of one question's gain.
    """

    mean: float
    variance: float
    within: float


WITHOUT_LABELS = GainPrior(mean=-0.02, variance=0.06**2, within=0.22**2)
"""Measured on (F1 + evidence recall) / 2: five rerankers against one trained on multi-hop questions, on the five kinds
that it was not made for."""


def prior_for(name: str, priors: Mapping[str, Mapping[str, float]]) -> GainPrior:
    """Return the prior of a configuration; one that the labels lack is like the others, and in doubt not better."""
    known = {one: GainPrior(**figures) for one, figures in priors.items()}
    if name in known:
        return known[name]
    if not known:
        return WITHOUT_LABELS
    mean = min(0.0, float(np.mean([one.mean for one in known.values()])))
    variance = float(np.mean([one.variance + (one.mean - mean) ** 2 for one in known.values()]))
    return GainPrior(mean, variance, float(np.mean([one.within for one in known.values()])))


@dataclass(frozen=True)
class Estimate:
    """What is known about the gain of a configuration.

    Mean and standard deviation (`spread`) of the posterior, mean of the `own` questions, and their `weight` in it.
    """

    posterior: float
    spread: float
    own: float
    weight: float

    @property
    def cautious(self) -> float:
        """The gain that can be counted on."""
        return self.posterior - CAUTION * self.spread


def estimate(gains: FloatArray, groups: Sequence[str], prior: GainPrior) -> Estimate:
    """Return what own gains, `[n]`, of questions in `groups`, `[n]`, and a prior say together."""
    number, own = len(gains), float(gains.mean())
    squares = float(np.square(gains - own).sum())
    within = (OWN_WEIGHT * prior.within + squares) / (OWN_WEIGHT + number - 1)
    variance = within / number
    if len(set(groups)) >= MIN_GROUPS:
        variance = max(variance, standard_error(gains, groups) ** 2)
    weight = prior.variance / (prior.variance + variance)
    posterior = weight * own + (1 - weight) * prior.mean
    return Estimate(posterior, float(np.sqrt(weight * variance)), own, weight)


def standard_error(values: FloatArray, groups: Sequence[str]) -> float:
    """Return the standard error of the mean of values, `[n]`, that go together in `groups`, `[n]`."""
    _, index = np.unique(np.array(groups, dtype=str), return_inverse=True)
    sums = np.bincount(index, weights=values - values.mean())
    spread = len(sums) / max(1, len(sums) - 1)
    return float(np.sqrt(spread * np.square(sums).sum()) / len(values))

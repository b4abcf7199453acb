"""What a configuration gains over the default, shrunk towards what kinds of questions say: empirical Bayes.

The gain on the user's own questions is one estimate, with a variance that falls with their number. What labels over
kinds say about a kind that nobody has seen is another: its mean over kinds, and how far kinds differ. The posterior
mean weighs both by their precision (the normal model of Efron and Morris, 1973). Between-kind variances are by the
method of moments of DerSimonian and Laird (1986).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from corag.types import FloatArray
from experiments.protocol.leads import standard_error

OWN_WEIGHT = 20
"""Degrees of freedom that the labels' variance within a kind has beside the own questions'."""
MIN_GROUPS = 5
"""With fewer groups, the variance between them is not known from the questions themselves."""
LEAST_VARIANCE = 1e-6
CAUTION = 1.0
"""Standard deviations of the posterior that a gain is counted below its mean. On labels over kinds, at 30 own
questions, half of it loses .001 to .008 on three of nine kinds and all of it .001 on two."""


@dataclass(frozen=True)
class Prior:
    """What labels say about the gain of a configuration on a kind of questions that they do not hold.

    Attributes:
        mean: Its mean.
        variance: How far kinds differ, and how far the mean is unsure.
        within: Variance of one question's gain within a kind.
        kinds: Number of kinds that were measured; 0 where the labels lack the configuration.
    """

    mean: float
    variance: float
    within: float
    kinds: int


@dataclass(frozen=True)
class Estimate:
    """What is known about the gain of a configuration.

    Attributes:
        posterior: Posterior mean.
        spread: Posterior standard deviation.
        own: Mean of the own questions; None without any.
        prior: Mean of the prior.
        weight: Share of the own questions in the posterior.
        questions: Number of the own questions.
    """

    posterior: float
    spread: float
    own: float | None
    prior: float
    weight: float
    questions: int

    @property
    def cautious(self) -> float:
        """The gain that can be counted on: the highest of many estimates is too high by chance."""
        return self.posterior - CAUTION * self.spread


WITHOUT_LABELS = Prior(mean=-0.02, variance=0.06**2, within=0.22**2, kinds=0)
"""Measured with `checkpoints/labels` on (F1 + evidence recall) / 2: five rerankers against `minilm-multihop`, on the
five kinds that this one was not made for."""


def prior_of(gains: Mapping[str, FloatArray]) -> Prior:
    """Return the prior of a configuration, given the gains of one question each, `[n]`, by kind."""
    known = [values for values in gains.values() if len(values)]
    sizes = np.array([len(values) for values in known], dtype=np.float64)
    means = np.array([values.mean() for values in known])
    squares = sum(float(np.square(values - values.mean()).sum()) for values in known)
    within = max(squares / max(1.0, float((sizes - 1).sum())), LEAST_VARIANCE)
    weights = sizes / within
    center = float(weights @ means / weights.sum())
    excess = float(weights @ np.square(means - center)) - (len(known) - 1)
    between = (
        max(0.0, excess / float(weights.sum() - np.square(weights).sum() / weights.sum())) if len(known) > 1 else 0
    )
    precision = 1 / (between + within / sizes)
    mean = float(precision @ means / precision.sum())
    return Prior(mean, between + 1 / float(precision.sum()), within, len(known))


def together(priors: Mapping[str, Prior]) -> dict[str, Prior]:
    """Return priors whose kinds differ at least as much as those of all configurations do on average.

    How far kinds differ is itself badly known from few of them: five that happen to agree would outvote the user's own
    questions.
    """
    least = float(np.mean([one.variance for one in priors.values()])) if priors else 0.0
    return {name: replace(one, variance=max(one.variance, least)) for name, one in priors.items()}


def unknown_prior(priors: Sequence[Prior]) -> Prior:
    """Return the prior of a configuration that the labels lack: like the others, and in doubt not better."""
    if not priors:
        return WITHOUT_LABELS
    mean = min(0.0, float(np.mean([one.mean for one in priors])))
    variances = [one.variance + (one.mean - mean) ** 2 for one in priors]
    return Prior(mean, float(np.mean(variances)), float(np.mean([one.within for one in priors])), 0)


def estimate(gains: FloatArray, groups: Sequence[str], prior: Prior) -> Estimate:
    """Return what own gains, `[n]`, of questions in `groups`, `[n]`, and a prior say together."""
    number = len(gains)
    if not number:
        return Estimate(prior.mean, float(np.sqrt(prior.variance)), None, prior.mean, 0.0, 0)
    own = float(gains.mean())
    squares = float(np.square(gains - own).sum())
    within = (OWN_WEIGHT * prior.within + squares) / (OWN_WEIGHT + number - 1)
    variance = within / number
    if len(set(groups)) >= MIN_GROUPS:
        variance = max(variance, standard_error(gains, groups) ** 2)
    weight = prior.variance / (prior.variance + variance)
    posterior = weight * own + (1 - weight) * prior.mean
    return Estimate(posterior, float(np.sqrt(weight * variance)), own, prior.mean, weight, number)


def recentred(prior: Prior, center: Estimate) -> Prior:
    """Return the prior of a part of the own questions: around what is known of all of them."""
    return replace(prior, mean=center.posterior)

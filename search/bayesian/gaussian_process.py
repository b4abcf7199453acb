"""What the values seen so far say about the orders not yet scored.

A Gaussian process whose covariance is a weighted sum of inner products of what two orders have in common:
Bayesian linear regression on the effects of candidates, pairs and adjacent pairs, on length and cost, plus
what no effect explains. Several priors run side by side and are weighted by their evidence, because scorers
differ: nearly additive ones, ones full of interactions, rough ones. Values enter only as differences from
the first one, over the estimated amplitude, so that neither shifting nor scaling all values changes what is
expected to be better.

Sources: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, ch. 2; expected improvement,
Jones et al., 1998.

Letters: M priors, P orders in the pool, Q new ones, S scored orders, K components.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from functools import cache
from math import erfc, exp, pi, sqrt

import numpy as np

from search.bayesian.pool import Pool
from search.types import FloatArray


@dataclass(frozen=True, slots=True)
class Prior:
    """Variance of each effect on an order's value, relative to one another; in the order of `Pool.COMPONENTS`.

    Attributes:
        intercept: Common value of all orders.
        length: Mean effect of a candidate.
        pairs: Mean effect of a pair.
        cost: Effect of the share of the budget.
        squared_cost: Effect of its square.
        chunk: Effect of each candidate.
        pair: Effect of each unordered pair of candidates, wherever they stand.
        adjacent: Effect of each ordered pair of neighbours.
        combination: Effect of each set of candidates that no pair explains.
        order: Effect of each order that nothing else explains; it also keeps the algebra stable.
        trust: Not a variance: how far the expected value rises when a surrogate's guess rises by 1.
    """

    intercept: float = 25.0
    length: float = 1.0
    pairs: float = 0.1
    cost: float = 1.0
    squared_cost: float = 1.0
    chunk: float = 1.0
    pair: float = 0.1
    adjacent: float = 0.1
    combination: float = 0.0
    order: float = 1e-3
    trust: float = 0.0


PRIORS = (Prior(), Prior(pair=1e-3, adjacent=1e-4, order=1e-4), Prior(combination=0.1, order=0.02))
"""Interactions in pairs; almost additive, order hardly mattering; rough."""

TRUSTING = PRIORS + tuple(replace(prior, trust=trust) for prior in PRIORS for trust in (0.5, 2.0))
"""The same, and each of them once more for every degree of trust in a surrogate's guesses."""

FIRST_TRUST = 8.0
"""Trust in them while nothing else is known."""

MAX_Z = 8
STEPS_PER_UNIT = 256
MAX_PRODUCT = 2**18
"""Multiplications up to which OpenBLAS computes a matrix product in one thread."""


class Belief:
    """Mean and variance of every order in the pool under each prior, given the scored ones.

    It is a Cholesky factorisation that grows by one scored order at a time. The variances need no values, so
    the orders of a batch are foretold one after the other before any of their values is known (Desautels et
    al., 2014), and then learnt together. Call `extend` after each addition to the pool.

    Args:
        pool: The orders.
        priors: The priors.

    Attributes:
        open: Whether the order is neither scored nor foretold, `[P]`.
    """

    def __init__(self, pool: Pool, priors: Sequence[Prior] = PRIORS) -> None:
        self._pool = pool
        table = np.array([astuple(prior) for prior in priors])
        self._weights, self._trust = table[:, :-1], table[:, -1]  # [M, K], [M]
        num_priors = len(priors)
        self.open = np.empty(0, dtype=np.bool_)
        self._mean = np.empty((num_priors, 0))  # [M, P], in units of `_unit` from `_origin`
        self._variance = np.empty((num_priors, 0))  # [M, P], over the squared amplitude
        self._guesses = np.empty(0)  # [P]
        self._novelty = np.empty((num_priors, 0))  # [M, P]: what those of scored orders do not say about each guess
        self._scored: list[int] = []
        self._factor = np.empty((num_priors, 0, 0))  # [M, >=S, P]: whitened covariance of scored orders with all
        self._inverse = np.empty((num_priors, 0, 0))
        self._deviation = np.empty((num_priors, 0))  # [M, S]: of each scored order before it was scored
        self._surprise = np.empty((num_priors, 0))  # [M, <=S]: of each value, in those deviations
        self._hint = np.empty((num_priors, 0))  # [M, S]: the surprise if each value were its guess
        self._amplitude = np.ones(num_priors)
        self._shares = np.full(num_priors, 1 / num_priors)
        self._origin, self._unit, self._magnitude = 0.0, 0.0, 0.0

    @property
    def flat(self) -> bool:
        """Whether all values so far were the same."""
        return not self._unit

    @property
    def all_chunks_seen(self) -> bool:
        """Whether every candidate in the pool is in a scored order."""
        return bool((self._pool.present[self._scored].any(0) == self._pool.present.any(0)).all())

    def extend(self, new: slice, guesses: FloatArray | None = None) -> None:
        """Take in the newest orders of the pool, with a surrogate's guesses at their values, `[num_new]`, if any."""
        num_scored = len(self._scored)
        num_old, num_new = new.start, new.stop - new.start
        self.open = np.concatenate((self.open, np.ones(num_new, dtype=np.bool_)))
        variance = self._weights @ self._pool.variances(new)
        mean = np.zeros_like(variance)
        guesses = np.zeros(num_new) if guesses is None else guesses
        self._guesses = np.concatenate((self._guesses, guesses))
        novelty = np.broadcast_to(guesses, variance.shape)
        factor = np.zeros((len(self._weights), max(64, self._factor.shape[1]), new.stop))
        factor[:, : self._factor.shape[1], :num_old] = self._factor
        if num_scored:
            components = self._pool.components(np.array(self._scored), new)
            covariance = np.einsum("mk,ksq->msq", self._weights, components)
            whitened = _product(self._whitening(), covariance)
            factor[:, :num_scored, new] = whitened
            variance = np.maximum(variance - (whitened**2).sum(1), 0)
            mean = (self._surprise[:, None] @ whitened)[:, 0]
            novelty = novelty - self._guesses[self._scored[0]] - (self._hint[:, None] @ whitened)[:, 0]
        self._factor = factor
        self._variance = np.concatenate((self._variance, variance), axis=1)
        self._mean = np.concatenate((self._mean, mean), axis=1)
        self._novelty = np.concatenate((self._novelty, novelty), axis=1)

    def foretell(self, row: int) -> None:
        """Narrow the variances as if the order at `row` were scored."""
        num_scored = len(self._scored)
        if num_scored == self._factor.shape[1]:
            self._factor = np.concatenate((self._factor, np.zeros_like(self._factor)), axis=1)
        components = self._pool.components(np.array([row]), slice(0, len(self._pool)))[:, 0]
        known = self._factor[:, :num_scored]
        column = self._weights @ components - (known[:, None, :, row] @ known)[:, 0]
        deviation = np.sqrt(np.maximum(column[:, row], 1e-12))
        column /= deviation[:, None]
        self._factor[:, num_scored] = column
        self._variance = np.maximum(self._variance - column**2, 0)
        if not num_scored:
            self._novelty = self._novelty - self._guesses[row]  # values, too, are counted from the first one
        hint = self._novelty[:, row] / deviation
        self._novelty -= hint[:, None] * column
        self._hint = np.concatenate((self._hint, hint[:, None]), axis=1)
        self._deviation = np.concatenate((self._deviation, deviation[:, None]), axis=1)
        self._scored.append(row)
        self.open[row] = False

    def learn(self, values: FloatArray) -> None:
        """Take in the values of the orders foretold since the last call, in that order."""
        first = self._surprise.shape[1]
        if not first:
            self._origin = float(values[0])
        self._magnitude = max(self._magnitude, float(np.abs(values).max()))
        differences = self._from_origin(values)
        if not self._unit:
            self._unit = float(np.abs(differences).max())
        if self._unit:
            differences = differences / self._unit
        for place, difference in enumerate(differences.tolist(), start=first):
            surprise = (difference - self._mean[:, self._scored[place]]) / self._deviation[:, place]
            self._mean += surprise[:, None] * self._factor[:, place]
            self._surprise = np.concatenate((self._surprise, surprise[:, None]), axis=1)
        if self._unit:
            self._weigh()

    def hopes(self) -> FloatArray:
        """Mean plus two deviations, over the priors by their shares, `[P]`."""
        hopes: FloatArray = self._shares @ (self.means() + 2 * self.deviations())
        return hopes

    def means(self) -> FloatArray:
        """Expected value of each order under each prior, `[M, P]`, in units from the first value."""
        means: FloatArray = self._mean + (self._amplitude * self._trust)[:, None] * self._novelty
        return means

    def deviations(self) -> FloatArray:
        """Standard deviation of each order under each prior, `[M, P]`."""
        deviations: FloatArray = np.sqrt(self._variance) * self._amplitude[:, None]
        return deviations

    def expected_gains(self, best: float) -> FloatArray:
        """Expected improvement on the value `best`, over the priors by their shares, `[P]`; -inf where not open."""
        plausible = np.flatnonzero(self._shares > 0.01)
        deviation = np.sqrt(self._variance[plausible]) * self._amplitude[plausible, None] + 1e-300
        ahead = self.means()[plausible] - float(self._from_origin(best)) / self._unit
        gains = self._shares[plausible] @ (deviation * unit_gain(ahead / deviation))
        return np.where(self.open, gains, -np.inf)

    def promises(self) -> FloatArray:
        """Expected improvement on the best guess of the orders foretold, guesses being near the truth, `[P]`.

        It needs no value yet: variances keep the orders of a batch apart. -inf where not open.
        """
        if not self._scored:
            return np.where(self.open, self._guesses, -np.inf)
        best = self._guesses[self._scored].max()
        deviation = np.sqrt(self._variance) + 1e-300
        gains = self._shares @ (deviation * unit_gain(FIRST_TRUST * (self._guesses - best) / deviation))
        return np.where(self.open, gains, -np.inf)

    def least_gain(self, patience: float) -> float:
        """The gain below which scoring on is not worth while: a share of the amplitude, but no rounding error."""
        rounding = 1e-12 * (self._magnitude / self._unit)
        return float(max(10.0**-patience * (self._shares @ self._amplitude), rounding))

    def _from_origin(self, values: FloatArray | float) -> FloatArray:
        # Halves, whose difference cannot overflow.
        return np.asarray(values) / 2 - self._origin / 2

    def _whitening(self) -> FloatArray:
        """Inverse of the Cholesky factor of the scored orders, `[M, S, S]`, grown by those new since the last call."""
        num_old, num_scored = self._inverse.shape[1], len(self._scored)
        rows = self._factor[:, :num_scored, self._scored[num_old:]].transpose(0, 2, 1)
        corner = np.linalg.inv(np.tril(rows[..., num_old:]))
        grown = np.zeros((len(corner), num_scored, num_scored))
        grown[:, :num_old, :num_old] = self._inverse
        grown[:, num_old:, :num_old] = -corner @ (rows[..., :num_old] @ self._inverse)
        grown[:, num_old:, num_old:] = corner
        self._inverse = grown
        return grown

    def _weigh(self) -> None:
        """Estimate the amplitude under each prior and weigh the priors by their evidence, the amplitude profiled out.

        The first value is the origin from which the others are counted, so the degrees of freedom are one fewer.
        """
        num_values = self._surprise.shape[1]
        power = (self._surprise**2).sum(1)
        slope = self._trust * (self._surprise * self._hint).sum(1)
        self._amplitude = 2 * power / (slope + np.sqrt(slope**2 + 4 * (num_values - 1) * power))
        misfit = ((self._surprise / self._amplitude[:, None] - self._trust[:, None] * self._hint) ** 2).sum(1)
        evidence = -num_values * np.log(self._amplitude) - misfit / 2 - np.log(self._deviation).sum(1)
        shares = np.exp(evidence - evidence.max())
        self._shares = shares / shares.sum()


def _product(left: FloatArray, right: FloatArray) -> FloatArray:
    """`left @ right`, in pieces for which BLAS starts no threads: these would cost more than they save."""
    width = max(8, MAX_PRODUCT // (left.shape[1] * left.shape[2]))
    pieces = [left @ right[..., start : start + width] for start in range(0, right.shape[-1], width)]
    return np.concatenate(pieces, axis=-1) if pieces else right


def unit_gain(z: FloatArray) -> FloatArray:
    """Expected improvement of a normal variable of mean `z` and deviation 1 on 0: phi(z) + z * Phi(z).

    From a table, between whose entries it is straight; at most 1e-6 too large.
    """
    scaled = np.clip(z, -MAX_Z, MAX_Z - 1e-9) * STEPS_PER_UNIT + MAX_Z * STEPS_PER_UNIT
    steps = scaled.astype(np.int64)
    gains, slopes = _table()
    between: FloatArray = gains.take(steps) + slopes.take(steps) * (scaled - steps)
    return np.maximum(between, z)


@cache
def _table() -> tuple[FloatArray, FloatArray]:
    """`unit_gain` at every step from -MAX_Z to MAX_Z, and its rise to the next."""
    places = [step / STEPS_PER_UNIT for step in range(-MAX_Z * STEPS_PER_UNIT, MAX_Z * STEPS_PER_UNIT + 1)]
    gains = np.array([exp(-z * z / 2) / sqrt(2 * pi) + z * erfc(-z / sqrt(2)) / 2 for z in places])
    return gains, np.append(np.diff(gains), 0)

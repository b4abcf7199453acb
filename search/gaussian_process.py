"""Gaussian process over the values of orders.

The covariance is a weighted sum of inner products of what two orders have in common: Bayesian linear regression on
the effects of candidates, pairs and adjacent pairs, on length and cost, plus what no effect explains. Scorers differ
(nearly additive, full of interactions, rough), so several priors run side by side, weighted by their evidence. Values
enter as differences from the first one, over the estimated amplitude, so that shifting or scaling all values does not
change what is scored.

Letters: P orders in the pool, A and B some of them, S observed ones, C candidates, L longest order, M priors, K
components.

Source: Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, chapters 2 and 5; for batches
Desautels et al., "Parallelizing Exploration-Exploitation Tradeoffs in Gaussian Process Bandit Optimization", 2014.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import erfc, exp, pi, sqrt

import numpy as np

from search.types import FloatArray, IntArray, Order

MAX_PRODUCT = 2**18
"""Multiplications up to which OpenBLAS computes a matrix product in one thread."""
_INTERACTIONS = {
    "intercept": 25.0,  # common to all orders
    "length": 1.0,  # effect of each further candidate
    "pairs": 0.1,  # effect of the number of pairs
    "cost": 1.0,  # effect of the whole budget
    "squared_cost": 1.0,  # effect of the whole budget, squared
    "chunk": 1.0,  # effect of each candidate
    "pair": 0.1,  # effect of each pair of candidates in one order
    "adjacent": 0.1,  # effect of each pair of candidates, one right after the other
    "combination": 0.0,  # effect of each set of candidates, that no pair explains
    "order": 1e-3,  # effect of each order that nothing else explains; it also keeps the algebra stable
}
COMPONENTS = tuple(_INTERACTIONS)
NUM_SCALARS = 5
"""The first components, with one feature each."""
_ADDITIVE = {**_INTERACTIONS, "pair": 1e-3, "adjacent": 1e-4, "order": 1e-4}
_ROUGH = {**_INTERACTIONS, "combination": 0.1, "order": 0.02}
PRIORS = np.array([[prior[name] for name in COMPONENTS] for prior in (_INTERACTIONS, _ADDITIVE, _ROUGH)])
"""Prior variances of the components over the squared amplitude of the values, `[M, K]`."""
SHORTLIST = 48
"""Orders among which a batch is chosen: those of largest expected improvement by themselves."""
MIN_SHARE = 0.01
"""Posterior weight of a prior below which it does not count towards the expected improvement."""
MIN_VALUES, MIN_SHARE_KEPT = 16, 1e-3
"""From this many values on, a prior of less posterior weight is dropped."""
TIE = 1e-9
"""Scores that differ by less than this share of the largest one tie."""
_Z = np.linspace(-8, 8, 8 * 512 + 1)
_GAINS = np.array([exp(-z * z / 2) / sqrt(2 * pi) + z * erfc(-z / sqrt(2)) / 2 for z in _Z])


class OrderPool:
    """Orders as rows padded with C, and the features from which covariances are computed.

    A component is the inner product of two orders in one group of features; see `COMPONENTS`.

    Attributes:
        rows: The orders, `[P, L]`.
        length: Candidates in each order, `[P]`.
    """

    def __init__(self, costs: IntArray, budget: int, max_length: int) -> None:
        self.num_candidates = len(costs)
        self._shares = np.append(costs, 0) / budget
        self._known: set[bytes] = set()
        self._pair_ids = np.zeros((len(costs) + 1) ** 2, dtype=np.int64)  # all zero between calls
        self.rows = np.empty((0, max_length), dtype=np.int64)
        self.length = np.empty(0, dtype=np.int64)
        self._scalars = np.empty((NUM_SCALARS, 0))
        self._pairs = np.empty((0, max_length - 1), dtype=np.int64)  # codes of adjacent pairs

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, rows: IntArray) -> slice:
        """Add the orders `[A, L]` that are new and return their slice of the pool."""
        keys = np.ascontiguousarray(rows).view(f"V{rows.itemsize * rows.shape[1]}").ravel().tolist()
        fresh = {key: index for index, key in enumerate(keys) if key not in self._known}
        self._known.update(fresh)
        rows = rows[list(fresh.values())]
        new = slice(len(self), len(self) + len(rows))
        length = (rows < self.num_candidates).sum(1)
        share = self._shares[rows].sum(1)
        scalars = np.array((np.ones(len(rows)), length, length * (length - 1) / 2, share, share**2))
        pairs = np.where(rows[:, 1:] < self.num_candidates, rows[:, :-1] * self.num_candidates + rows[:, 1:], -1)
        self.rows = np.concatenate((self.rows, rows))
        self.length = np.concatenate((self.length, length))
        self._scalars = np.concatenate((self._scalars, scalars), axis=1)
        self._pairs = np.concatenate((self._pairs, pairs))
        return new

    def keep(self, rows: IntArray) -> None:
        """Drop all orders but those at `rows`; the dropped ones cannot be added again."""
        for name in ("rows", "length", "_pairs"):
            setattr(self, name, getattr(self, name)[rows])
        self._scalars = self._scalars[:, rows]

    def order(self, row: int) -> Order:
        """Return the order at `row`."""
        return tuple(self.rows[row, : self.length[row]].tolist())

    def variance(self, weights: FloatArray, rows: slice | IntArray) -> FloatArray:
        """Return the prior variance of orders, `[M, A]`, given the weights of the components, `[M, K]`."""
        length = self.length[rows]
        one = np.ones(len(length))
        rest = np.array((length, length * (length - 1) / 2, length - 1, one, one))
        return weights @ np.concatenate((self._scalars[:, rows] ** 2, rest))

    def covariance(self, weights: FloatArray, these: IntArray, those: IntArray | slice) -> FloatArray:
        """Return the prior covariance of orders, `[M, A, B]`, given the weights of the components, `[M, K]`."""
        length = self.length[those]
        rest = np.empty((len(COMPONENTS) - NUM_SCALARS, len(these), len(length)))
        rest[0] = _num_common(self.rows[these], self.rows[those], self.num_candidates, self.num_candidates)
        np.multiply(rest[0], (rest[0] - 1) / 2, out=rest[1])
        rest[2] = self._num_adjacent(self._pairs[these], self._pairs[those])
        rest[3] = (rest[0] == length) & (rest[0] == self.length[these, None])
        rest[4] = these[:, None] == np.arange(len(self))[those]
        scaled = weights[:, :NUM_SCALARS, None] * self._scalars[:, these]
        flat = rest.reshape(len(rest), len(these) * len(length))
        out = product(weights[:, NUM_SCALARS:], flat).reshape(len(weights), len(these), len(length))
        out += scaled.transpose(0, 2, 1) @ self._scalars[:, those]
        return out

    def _num_adjacent(self, these: IntArray, those: IntArray) -> FloatArray:
        """Count the adjacent pairs in common, given their codes `[A, L-1]` and `[B, L-1]`, `[A, B]`."""
        # Small numbers for the pairs of `these`, and 0 for the rest, keep the table of `_num_common` small.
        self._pair_ids[these] = np.arange(1, these.size + 1).reshape(these.shape)
        self._pair_ids[-1] = 0  # padding
        common = _num_common(self._pair_ids.take(these), self._pair_ids.take(those), 0, these.size)
        self._pair_ids[these] = 0
        return common


def _num_common(these: IntArray, those: IntArray, blank: int, most: int) -> FloatArray:
    """Count what the rows `[A, .]` share with the rows `[B, .]`, blanks aside, `[A, B]`; entries are at most `most`."""
    holds = np.zeros((most + 1, len(these)), dtype=np.float32)
    holds[these, np.arange(len(these))[:, None]] = 1
    holds[blank] = 0
    return np.asarray(holds.take(those.T, axis=0).sum(0).T)


def product(left: FloatArray, right: FloatArray) -> FloatArray:
    """`left @ right`, in pieces for which BLAS starts no threads: these would cost more than they save."""
    size = max(8, MAX_PRODUCT // max(1, left.shape[-2] * left.shape[-1]))
    pieces = [left @ right[..., start : start + size] for start in range(0, max(1, right.shape[-1]), size)]
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=-1)


class GaussianProcess:
    """Posterior over the value of every order in the pool, given the observed ones.

    It grows a Cholesky factor by a block of orders at a time. Variances do not depend on values, so `condition` may
    come before the values are known, and `observe` after. Call `extend` after each addition to the pool.

    Attributes:
        open: Whether the order is not conditioned on, `[P]`.
        rows: Pool rows of the orders conditioned on.
    """

    _BY_PRIOR = (
        "_weights", "_factor", "_inverse", "_variance", "_mean", "_white_values", "_log_determinant", "_amplitude",
        "_shares",
    )  # fmt: skip

    def __init__(self, pool: OrderPool) -> None:
        self._pool = pool
        self._weights = PRIORS
        num_priors = len(PRIORS)
        self.open = np.empty(0, dtype=np.bool_)
        self.rows: list[int] = []
        self._num_observed = 0
        self._factor = np.empty((num_priors, 0, 0))  # [M, S, P]: whitened covariance of the rows with all orders
        self._inverse = np.empty((num_priors, 0, 0))  # [M, S, S]: inverse of the Cholesky factor
        self._variance = np.empty((num_priors, 0))  # [M, P], over the squared amplitude
        self._mean = np.empty((num_priors, 0))  # [M, P], in units of `_unit` from `_origin`
        self._white_values = np.empty((num_priors, 0))  # [M, S]: values, whitened
        self._log_determinant = np.zeros(num_priors)
        self._amplitude = np.ones(num_priors)
        self._shares = np.full(num_priors, 1 / num_priors)  # posterior weights of the priors
        self._origin, self._unit, self._magnitude = 0.0, 0.0, 0.0

    @property
    def flat(self) -> bool:
        """Whether all values so far were equal."""
        return not self._unit

    def extend(self, new: slice) -> None:
        """Add the newest orders of the pool."""
        self.open = np.concatenate((self.open, np.ones(new.stop - new.start, dtype=np.bool_)))
        covariance = self._pool.covariance(self._weights, np.array(self.rows, dtype=np.int64), new)
        whitened = product(self._inverse, covariance)
        variance = self._pool.variance(self._weights, new) - np.einsum("msq,msq->mq", whitened, whitened)
        mean = (self._white_values[:, None] @ whitened[:, : self._num_observed])[:, 0]
        self._factor = np.concatenate((self._factor, whitened), axis=2)
        self._variance = np.concatenate((self._variance, np.maximum(variance, 0)), axis=1)
        self._mean = np.concatenate((self._mean, mean), axis=1)

    def keep(self, rows: IntArray) -> None:
        """Drop all orders but those at `rows`, ascending, from the process and its pool; keep those conditioned on."""
        self._factor = self._factor[:, :, rows]
        self.rows = rows.searchsorted(self.rows).tolist()
        self.open = self.open[rows]
        self._variance, self._mean = self._variance[:, rows], self._mean[:, rows]
        self._pool.keep(rows)

    def condition(self, rows: Sequence[int]) -> None:
        """Reduce the variances as if the orders at `rows`, all of them open, were observed."""
        batch = np.array(rows)
        across = self._factor[:, :, batch].transpose(0, 2, 1)
        column = self._pool.covariance(self._weights, batch, slice(None))
        # Far below the variance `order`, so that it counts only where rounding would break the factorisation.
        jitter = 1e-13 * column.max()
        column -= product(across, self._factor)
        factor = np.linalg.cholesky(column[:, :, batch] + jitter * np.eye(len(rows)))
        inverse = np.tril(np.linalg.inv(factor))
        whitened = inverse @ column
        below = np.concatenate((-inverse @ (across @ self._inverse), inverse), axis=2)
        self._inverse = np.concatenate((np.pad(self._inverse, ((0, 0), (0, 0), (0, len(rows)))), below), axis=1)
        self._factor = np.concatenate((self._factor, whitened), axis=1)
        self._variance = np.maximum(self._variance - np.einsum("msq,msq->mq", whitened, whitened), 0)
        self._log_determinant += np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(1)
        self.rows += rows
        self.open[batch] = False

    def observe(self, values: FloatArray) -> None:
        """Update the means with the values of the orders conditioned on since the last call, in that order."""
        first, last = self._num_observed, len(self.rows)
        if not first:
            self._origin = float(values[0])
        self._magnitude = max(self._magnitude, float(np.abs(values).max()))
        differences = self._from_origin(values)
        if not self._unit:
            self._unit = float(np.abs(differences).max())
        if self._unit:
            differences = differences / self._unit
        batch = self.rows[first:]
        inverse = self._inverse[:, first:last, first:last]
        whitened = self._factor[:, first:last]
        values = np.einsum("mab,mb->ma", inverse, differences - self._mean[:, batch])
        self._mean += (values[:, None] @ whitened)[:, 0]
        self._white_values = np.concatenate((self._white_values, values), axis=1)
        self._num_observed = last
        if self._unit:
            self._weigh_priors()

    def prior_deviation(self) -> FloatArray:
        """Return the standard deviation of each order, summed over the priors, before any amplitude is known, `[P]`."""
        return np.asarray(np.sqrt(self._variance).sum(0))

    def upper_confidence_bound(self, rows: slice = slice(None)) -> FloatArray:
        """Return mean plus two standard deviations, averaged over the priors, `[len(rows)]`."""
        bound: FloatArray = self._shares @ self._mean[:, rows]
        bound += 2 * ((self._shares * self._amplitude) @ np.sqrt(self._variance[:, rows]))
        return bound

    def expected_improvement(self, best: float, rows: slice = slice(None)) -> FloatArray:
        """Return the expected improvement on the value `best`, averaged over the priors, `[len(rows)]`."""
        likely = self._shares > MIN_SHARE
        ahead = self._mean[likely][:, rows] - float(self._from_origin(best)) / self._unit
        deviation = self._amplitude[likely, None] * np.sqrt(self._variance[likely][:, rows]) + 1e-300
        return np.asarray(self._shares[likely] @ (deviation * unit_expected_improvement(ahead / deviation)))

    def batch(self, gains: FloatArray, size: int, least: float) -> list[int]:
        """Return up to `size` open rows of large expected improvement that tell little about each other.

        Rows are chosen one by one, by gain `[P]` times the share of the variance that the rows before leave
        unexplained, until it is at most `least`. The effect of a row on variances does not depend on its value.
        """
        shortlist = np.sort(largest(np.where(self.open & (gains > least), gains, -np.inf), SHORTLIST))
        if not len(shortlist):
            return []
        gains = gains[shortlist]
        scale = self._shares * self._amplitude**2
        known = np.sqrt(scale)[:, None, None] * self._factor[:, :, shortlist]
        known = known.reshape(-1, len(shortlist))
        covariance = self._pool.covariance((scale @ self._weights)[None], shortlist, shortlist)[0]
        covariance -= known.T @ known
        variance = covariance.diagonal()  # a view
        gains /= np.maximum(variance, 1e-300)
        picks: list[int] = []
        for _ in range(min(size, len(shortlist))):
            left = gains * variance
            left[picks] = -np.inf
            if left.max() <= least:
                break
            picks.append(first_largest(left))
            column = covariance[picks[-1]] / np.sqrt(np.maximum(variance[picks[-1]], 1e-300))
            covariance -= column[:, None] * column
        rows: list[int] = shortlist[picks].tolist()
        return rows

    def least_gain(self, share: float) -> float:
        """Return the expected improvement below which the search ends: this share of the amplitude, above rounding."""
        rounding = 1e-12 * (self._magnitude / self._unit)
        return float(max(share * (self._shares * self._amplitude).sum(), rounding))

    def _from_origin(self, values: FloatArray | float) -> FloatArray:
        # Halves, whose difference cannot overflow.
        return np.asarray(values) / 2 - self._origin / 2

    def _weigh_priors(self) -> None:
        """Estimate the amplitude under each prior and weigh the priors by their evidence, the amplitude profiled out.

        The first value is the origin from which the others are counted, so the degrees of freedom are one fewer.
        """
        num_values = self._white_values.shape[1]
        self._amplitude = np.sqrt((self._white_values**2).sum(1) / (num_values - 1))
        evidence = -num_values * np.log(self._amplitude) - self._log_determinant
        shares = np.exp(evidence - evidence.max())
        self._shares = shares / shares.sum()
        plausible = self._shares > MIN_SHARE_KEPT
        if num_values >= MIN_VALUES and not plausible.all():
            for name in self._BY_PRIOR:
                setattr(self, name, getattr(self, name)[plausible])
            self._shares /= self._shares.sum()


def first_largest(scores: FloatArray) -> int:
    """Return the index of the largest score, the first of near ties: rounding errors do not decide between them."""
    top = scores.max()
    return int((scores >= top - TIE * abs(top)).argmax()) if np.isfinite(top) else int(scores.argmax())


def largest(scores: FloatArray, num: int) -> IntArray:
    """Return the indices of the `num` largest finite scores, largest first, the earlier of near ties."""
    indices = np.flatnonzero(scores > -np.inf)
    scores = scores[indices]
    if not len(scores):
        return indices
    tie = TIE * float(np.abs(scores).max()) or 1.0
    if num < len(scores):
        near = scores >= np.partition(scores, -num)[-num] - tie
        indices, scores = indices[near], scores[near]
    return indices[np.argsort(-(scores / tie).round(), kind="stable")[:num]]


def unit_expected_improvement(z: FloatArray) -> FloatArray:
    """Return the expected improvement on 0 of a normal variable of mean `z` and deviation 1: phi(z) + z * Phi(z).

    Interpolated from a table; at most 1e-6 too large.
    """
    return np.asarray(np.maximum(np.interp(z, _Z, _GAINS), z))

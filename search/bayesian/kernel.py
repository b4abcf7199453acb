"""The pool of orders that may be scored, and the covariance of their values.

Letters: P orders in the pool, A and B some of them, C candidates, L longest order, K components, M priors.
"""

from __future__ import annotations

import numpy as np

from search.types import FloatArray, IntArray, Order

MAX_PRODUCT = 2**18
"""Multiplications up to which OpenBLAS computes a matrix product in one thread."""


COMPONENTS = (
    "intercept", "length", "pairs", "cost", "squared_cost",  # one feature each
    "chunk",  # candidates in common
    "pair",  # unordered pairs in common
    "adjacent",  # ordered pairs of neighbours in common
    "combination",  # 1 for the same set
    "order",  # 1 for the same order
)  # fmt: skip
NUM_SCALARS = 5
"""The first components, with one feature each."""


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

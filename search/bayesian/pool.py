"""Orders that may be scored, and what any two of them have in common.

Letters: P orders in the pool, Q some of them, S scored ones, C candidates, L longest order, K components.
"""

from __future__ import annotations

import numpy as np

from search.types import FloatArray, IntArray, Order

NO_PAIR = -1


class Pool:
    """Orders, as rows padded with C, and the features of which their values are thought to be made.

    A component is the inner product of two orders in one group of features; see `COMPONENTS`.

    Args:
        costs: Cost of each candidate, `[C]`.
        budget: The most that an order may cost.
        max_length: L.

    Attributes:
        present: Whether the order holds the candidate, `[P, C]`.
        length: Candidates in the order, `[P]`.
    """

    COMPONENTS = (
        "intercept", "length", "pairs", "cost", "squared_cost",  # one feature each
        "chunk",  # candidates in common
        "pair",  # unordered pairs in common
        "adjacent",  # ordered pairs of neighbours in common
        "combination",  # 1 for the same set
        "order",  # 1 for the same order
    )  # fmt: skip

    def __init__(self, costs: IntArray, budget: int, max_length: int) -> None:
        self._padded_costs = np.append(costs, 0)
        self._budget = budget
        self._rows = np.empty((0, max_length), dtype=np.int64)
        self._known: set[bytes] = set()
        self._pair_ids = {NO_PAIR: 0}
        self.present = np.empty((0, len(costs)))
        self.length = np.empty(0)
        self._means = np.empty((5, 0))
        self._adjacent = np.empty((max_length - 1, 0), dtype=np.int64)  # [L-1, P]: ids of pairs

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, rows: IntArray) -> slice:
        """Take in the orders `[Q, L]` that are new, and return where they lie."""
        keys = [row.tobytes() for row in rows]
        rows = rows[[key not in self._known for key in keys]]
        self._known.update(keys)
        num_chunks = len(self._padded_costs) - 1
        present = np.zeros((len(rows), num_chunks + 1))
        np.put_along_axis(present, rows, 1.0, axis=1)
        present = present[:, :num_chunks]
        length = present.sum(1)
        share = self._padded_costs[rows].sum(1) / self._budget
        means = np.stack((np.ones_like(length), length, length * (length - 1) / 2, share, share**2))
        new = slice(len(self), len(self) + len(rows))
        self._rows = np.concatenate((self._rows, rows))
        self.present = np.concatenate((self.present, present))
        self.length = np.concatenate((self.length, length))
        self._means = np.concatenate((self._means, means), axis=1)
        self._adjacent = np.concatenate((self._adjacent, self._pairs(rows.T, num_chunks)), axis=1)
        return new

    def order(self, row: int) -> Order:
        """Return the order at `row`."""
        return tuple(self._rows[row, : int(self.length[row])].tolist())

    def variances(self, rows: slice) -> FloatArray:
        """Components of each order with itself, `[K, Q]`."""
        length = self.length[rows]
        one = np.ones_like(length)
        return np.concatenate((self._means[:, rows] ** 2, [length, length * (length - 1) / 2, length - 1, one, one]))

    def components(self, scored: IntArray, rows: slice) -> FloatArray:
        """Components of orders `scored` with orders `rows`, `[K, S, Q]`."""
        length = self.length[rows]
        out = np.empty((len(self.COMPONENTS), len(scored), len(length)))
        np.multiply(self._means[:, scored, None], self._means[:, None, rows], out=out[:5])
        common = _num_common(self._rows[scored].T, self._rows[rows].T, self.present.shape[1], out[5])
        np.multiply(common, (common - 1) / 2, out=out[6])
        _num_common(self._adjacent[:, scored], self._adjacent[:, rows], 0, out[7])
        same_set = (common == length) & (common == self.length[scored, None])
        out[8] = same_set
        out[9] = same_set & (out[7] == length - 1)
        return out

    def _pairs(self, columns: IntArray, num_chunks: int) -> IntArray:
        """Ids of the adjacent pairs of orders, `[L-1, Q]`, given `[L, Q]`."""
        ahead, after = columns[:-1], columns[1:]
        codes, places = np.unique(
            np.where(after < num_chunks, ahead * num_chunks + after, NO_PAIR), return_inverse=True
        )
        ids = [self._pair_ids.setdefault(code, len(self._pair_ids)) for code in codes.tolist()]
        return np.array(ids, dtype=np.int64)[places].reshape(ahead.shape)


def _num_common(these: IntArray, those: IntArray, blank: int, out: FloatArray) -> FloatArray:
    """Count what each column of `these`, `[., S]`, shares with each of `those`, `[., Q]`, but blanks, `[S, Q]`.

    By look-up, not as a matrix product: BLAS would start threads for it, which costs more than it saves.
    """
    num_columns = these.shape[1]
    holds = np.zeros((num_columns, 1 + max(blank, these.max(initial=0), those.max(initial=0))))
    holds[np.arange(num_columns), these] = 1.0
    holds[:, blank] = 0.0
    return holds.take(those, axis=1).sum(1, out=out)

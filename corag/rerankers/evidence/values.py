"""Values of ordered combinations from the probability that each set of chunks is the evidence.

N hypotheses, n candidates. Knows no text and no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from corag.rerankers.evidence.hypotheses import Hypotheses
from corag.rerankers.scorers import ChunkScorer, by_length
from corag.types import FloatArray, Order

BLOCK = 512
"""Orders valued at a time, so that memory stays small."""
NEGLIGIBLE = 1e-7
"""Hypotheses less probable than this are left out: thousands of them together change no value by 0.001."""
LARGEST_EXPONENT = 500.0


@dataclass(frozen=True)
class Weights:
    """Weights of a value, which is sigmoid(slope * utility + offset).

    Attributes:
        temperature: Softmax temperature of the probabilities of the hypotheses.
        share: Weight of the expected share of the evidence, beside 1 for the probability that it is complete.
        sequence: Weight of the reading order.
    """

    temperature: float = 1.0
    share: float = 1.0
    sequence: float = 0.02
    slope: float = 5.0
    offset: float = -3.0


class EvidenceScorer(ChunkScorer):
    """Values orders in [0, 1]: higher with more of the evidence, and in a telling order; length costs nothing.

    `tokens`, `[n]`, are those of each candidate: an order without any is worth 0. `before`, `[n, n]`, is how surely a
    chunk is to be read before another, in [-1, 1] and antisymmetric.

    Attributes:
        answerable: Probability that the evidence is among the candidates.
        probabilities: Of the sets that it could be, if it is, those that are negligible left out.
        shares: Expected share of the evidence that each candidate is, if it is among them, `[n]`.
    """

    def __init__(
        self,
        hypotheses: Hypotheses,
        tokens: FloatArray,
        before: FloatArray,
        weights: Weights,
        truncated: NDArray[np.bool_],
    ) -> None:
        super().__init__(truncated)
        self._weights = weights
        self._blanks = frozenset(np.flatnonzero(tokens == 0).tolist())
        # The empty hypothesis stands first. It says how much any value is worth, and nothing about which is best.
        probabilities = hypotheses.probabilities(weights.temperature)
        self.answerable = float(probabilities[1:].sum())
        probabilities = probabilities[1:] / max(self.answerable, 1e-300)
        kept = probabilities >= NEGLIGIBLE
        self.probabilities: FloatArray = probabilities[kept]
        self._members = hypotheses.members[1:][kept].astype(np.float64)
        self._masks = _packed(hypotheses.members[1:][kept])
        self.shares: FloatArray = (self.probabilities / self._members.sum(axis=1)) @ self._members
        # How much it matters that one chunk is read before another: as probable as it is that both are evidence.
        self._before: FloatArray = ((self._members.T * self.probabilities) @ self._members) * before
        self.order_matters = bool(weights.sequence and np.any(self._before))

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Return one value per order, `[len(orders)]`."""
        self.count_truncated(orders)
        blocks = [self._utilities(orders[row : row + BLOCK]) for row in range(0, len(orders), BLOCK)]
        utilities = np.concatenate([np.zeros(0), *blocks])
        exponents = self._weights.slope * self.answerable * utilities + self._weights.offset
        values = np.asarray(1 / (1 + np.exp(-np.clip(exponents, -LARGEST_EXPONENT, LARGEST_EXPONENT))))
        if self._blanks:
            values[[self._blanks.issuperset(order) for order in orders]] = 0.0
        return values

    def complete(self, orders: Sequence[Order]) -> FloatArray:
        """Return the probability that each order holds all of the evidence if the candidates do, `[len(orders)]`."""
        chosen = _packed(self._chosen(orders) > 0)
        lacking = np.zeros((len(self._masks), len(orders)), dtype=bool)
        for of_members, of_orders in zip(self._masks.T, chosen.T, strict=True):
            lacking |= (of_members[:, None] & ~of_orders) != 0
        # Not by BLAS, here and below: it sums some rows in another sequence, and equal sets would differ by a bit.
        return np.asarray(np.einsum("n,nb->b", self.probabilities, ~lacking))

    def _utilities(self, orders: Sequence[Order]) -> FloatArray:
        weights = self._weights
        shares = np.einsum("bn,n->b", self._chosen(orders), weights.share * self.shares)
        utilities: FloatArray = self.complete(orders) + shares
        if self.order_matters:
            utilities += weights.sequence * self._sequences(orders)
        return utilities

    def _chosen(self, orders: Sequence[Order]) -> FloatArray:
        chosen = np.zeros((len(orders), len(self.shares)))
        rows = np.repeat(np.arange(len(orders)), [len(order) for order in orders])
        chosen[rows, np.fromiter(chain.from_iterable(orders), dtype=np.intp, count=len(rows))] = 1.0
        return chosen

    def _sequences(self, orders: Sequence[Order]) -> FloatArray:
        """Return the sum over all pairs of an order of how surely the first goes first."""
        sums = np.zeros(len(orders))
        for rows, chunks in by_length(orders):
            first, second = np.triu_indices(chunks.shape[1], 1)
            sums[rows] = self._before[chunks[:, first], chunks[:, second]].sum(axis=1)
        return sums


def _packed(rows: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Return rows of booleans as bits, 64 to a number, `[rows, ceil(n / 64)]`."""
    padded = np.zeros((len(rows), -(-rows.shape[1] // 64) * 64), dtype=bool)
    padded[:, : rows.shape[1]] = rows
    return np.packbits(padded, axis=1).view(np.uint64)

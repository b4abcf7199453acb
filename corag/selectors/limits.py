"""Budget and window as one knapsack: a search knows one limit only."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a search may choose: orders whose costs add up to at most the budget.

    Attributes:
        costs: Cost of each candidate, `[n]`.
        budget: The most that an order may cost, in the unit of `costs`.
        window_binds: Whether costs and budget are other than the tokens given, so that the window holds too.
    """

    costs: Int64
    budget: int
    window_binds: bool = False

    @property
    def fitting(self) -> NDArray[np.intp]:
        """Candidates that fit alone, best-ranked first."""
        return np.flatnonzero(self.costs <= self.budget)


def combined(costs: Int64, budget: int, lengths: Int64, window: int) -> Limits:
    """Return one limit that holds only where both do: the sum of costs, and the sum of lengths.

    Where the budget alone keeps every order within the window, it stays as it is; where the window alone keeps every
    order within the budget, it takes its place. Otherwise a candidate costs its share of the budget or of the window,
    whichever is larger, in units of `1 / (budget * window)`. This never admits an order that is too long or too dear,
    and is exact where one of the shares is the larger one for all candidates; else it excludes some orders that would
    just have fitted.

    Args:
        costs: Cost of each candidate, `[n]`, at least 0.
        budget: The most that an order may cost, at least 1.
        lengths: Length of each candidate, `[n]`, at least 0.
        window: The most that an order's lengths may add up to, at least 1.
    """
    if most(lengths, costs, budget) <= window:
        return Limits(costs, budget)
    if most(costs, lengths, window) <= budget:
        return Limits(lengths, window, window_binds=True)
    # What does not fit alone is cut down to what does not, which keeps the products small.
    shares = np.maximum(np.minimum(costs, budget + 1) * window, np.minimum(lengths, window + 1) * budget)
    return Limits(shares, budget * window, window_binds=True)


def most(gains: Int64, costs: Int64, budget: int) -> int:
    """Return a bound on what the gains of candidates may add up to, `[n]` each, when their costs fit the budget.

    It takes the last candidate in part (Dantzig, 1957).
    """
    fitting = costs <= budget
    given = list(zip(gains[fitting].tolist(), costs[fitting].tolist(), strict=True))
    total: int = sum(gain for gain, cost in given if not cost)
    # Fractions: rounded, the order of near equals could make the bound too low.
    dense = sorted((pair for pair in given if pair[1]), key=lambda pair: Fraction(*pair), reverse=True)
    for gain, cost in dense:
        if cost > budget:
            return total + int(gain * budget // cost)
        total += gain
        budget -= cost
    return total

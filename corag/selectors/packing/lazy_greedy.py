"""Sets that maximise a monotone submodular function under a budget, by gain per token.

Two chunks together are worth at most what they are worth alone (diminishing returns). Taking the largest gain per
token, and in the end the better of that set and the best single item, is then worth at least (1 - 1/e) / 2 of the best
set within the budget (Khuller, Moss and Naor, "The budgeted maximum coverage problem", 1999; Krause and Guestrin, "A
note on the budgeted maximization of submodular functions", 2005).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Protocol

GUARANTEE = 0.316
"""(1 - 1/e) / 2, rounded down: the least share of the best set's value."""


class SetFunction(Protocol):
    """A monotone submodular function of a set that grows."""

    def gain(self, item: int) -> float:
        """Return what an item would add, at least 0, and never more than when the set was smaller."""

    def add(self, item: int) -> None:
        """Add an item to the set."""


def lazy_greedy(function: SetFunction, costs: Sequence[int], budget: int) -> list[int]:
    """Return items in the order of their gain per token, and add them to the function's set, which is empty before.

    A gain is worked out again only when it would be the largest, since it can only have fallen (Minoux, 1978; Leskovec
    et al., "Cost-effective outbreak detection in networks", 2007). Of equal ratios the first in the list. Ends where no
    item that fits adds anything.

    Args:
        function: What to maximise.
        costs: Of each item, at least 0; a free item comes before all others.
        budget: The most that the items may cost together.
    """
    fitting = [item for item, cost in enumerate(costs) if cost <= budget]
    # The largest ratio that each can still have, and how many items were taken when it was worked out.
    bounds = [(-_ratio(function.gain(item), costs[item]), item, 0) for item in fitting]
    heapq.heapify(bounds)
    taken: list[int] = []
    while bounds:
        bound, item, known = heapq.heappop(bounds)
        if bound == 0:
            break
        if costs[item] > budget:
            continue
        if known < len(taken):
            heapq.heappush(bounds, (-_ratio(function.gain(item), costs[item]), item, len(taken)))
            continue
        function.add(item)
        budget -= costs[item]
        taken.append(item)
    return taken


def _ratio(gain: float, cost: int) -> float:
    if gain <= 0:
        return 0.0
    return gain / cost if cost else float("inf")

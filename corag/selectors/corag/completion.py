"""What a search leaves of the budget, spent on what is worth most: titles that units share, and depth it has not."""

from __future__ import annotations

import numpy as np

from corag.rerankers.scorers import CachedScorer
from corag.selectors.problem import SelectionProblem
from corag.selectors.units import UnitProblem
from corag.types import Order

TRIED = 4
"""Of the chunks that a combination would gain most by, so many are looked at: whether their text still fits."""
SLACK = 2
"""Tokens by which the cost of a joined text may be overestimated from the costs of its parts."""


def completed(problem: SelectionProblem, order: Order, scorer: CachedScorer, price: float = 0.0) -> Order:
    """Return an order with further chunks, each the one that is worth most, while the whole text fits the budget.

    `price` is what a token costs in units of value: a chunk has to bring more than it costs.

    A search pays the title of every unit, since it knows one cost for each. What the text really costs is counted here.
    A tree search adds at most one chunk an iteration.
    """
    left = problem.budget_tokens - problem.text_tokens([order])[0]
    while True:
        affordable = {(*order, index): cost for index, cost in _affordable(problem, order, left)}
        extended = [one for one in affordable if _visible(scorer, one)]
        value = scorer([order])[0] if order else -np.inf
        values = scorer(extended) - price * np.array([affordable[one] for one in extended])
        best = [int(place) for place in np.argsort(-values, kind="stable")[:TRIED] if values[place] > value]
        costs = problem.text_tokens([extended[place] for place in best])
        fitting = [place for place, cost in zip(best, costs, strict=True) if cost <= problem.budget_tokens]
        if not fitting:
            return order
        order = extended[fitting[0]]
        left = problem.budget_tokens - costs[best.index(fitting[0])]


def _affordable(problem: SelectionProblem, order: Order, left: int) -> list[tuple[int, int]]:
    """Return the chunks that cost about so many tokens or less beside those of an order, best first, with that cost."""
    costs = problem.costs
    if isinstance(problem, UnitProblem):
        titled = {problem.documents[index] for index in order}
        named = zip(problem.title_costs, problem.documents, strict=True)
        costs = costs - np.array([title if name in titled else 0 for title, name in named], dtype=np.int64)
    affordable = np.flatnonzero(costs <= left + SLACK)
    return [(index, int(costs[index])) for index in affordable.tolist() if index not in order]


def _visible(scorer: CachedScorer, order: Order) -> bool:
    """Return whether the reranker sees all of an order, or its policy values what it does not see."""
    window = scorer.window
    if window is None or scorer.policy != "forbid":
        return True
    return int(window.lengths[list(order)].sum()) <= window.tokens + window.separator_tokens

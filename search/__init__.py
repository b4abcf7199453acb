"""Search over ordered combinations of candidates under a budget.

The package sees costs and scores only: no text, model, device or tokenizer. A problem is the cost of each candidate
and a budget, an order is a tuple of candidate indices, and a function of the caller scores orders. Nothing is drawn
at random.

    result = search([120, 80, 200], score_orders, budget=256, config=SearchConfig(iterations=20))
    result.order, result.value, result.cost

Source: "CORAG: A Cost-Constrained Retrieval Optimization System for Retrieval-Augmented Generation",
section 4. Its symbols are kept: value V, total reward W, visits n, all visits N, budget B,
exploration c, cost weight lambda, utility U.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from common.errors import InputError
from search.bayesian import bayesian_search
from search.exhaustive import exhaustive as exhaustive
from search.tree import SearchTree as SearchTree
from search.tree import tree_search
from search.types import PRESETS as PRESETS
from search.types import Backup as Backup
from search.types import Choice as Choice
from search.types import IntArray, SearchCoroutine, checked_problem, checked_values
from search.types import Order as Order
from search.types import Policy as Policy
from search.types import Preset as Preset
from search.types import ScoreOrders as ScoreOrders
from search.types import ScoreProblemOrders as ScoreProblemOrders
from search.types import SearchConfig as SearchConfig
from search.types import SearchResult as SearchResult
from search.types import Visits as Visits

_DEFAULT = SearchConfig()

POLICIES: dict[Policy, Callable[[IntArray, int, SearchConfig], SearchCoroutine]] = {
    "paper": tree_search,
    "bayesian": bayesian_search,
}


def search(costs: ArrayLike, score_orders: ScoreOrders, budget: int, config: SearchConfig = _DEFAULT) -> SearchResult:
    """Search for the best order within the budget.

    Args:
        costs: Cost of each candidate, best-ranked first, `[num_candidates]`, whole numbers >= 0.
        score_orders: Gives one finite value per order, higher is better; called once per round.
        budget: Upper bound on the cost of an order, in the unit of the costs, a whole number >= 1.
        config: The settings.

    Raises:
        InputError: The problem or the scorer's answer breaks a rule.
    """
    [result] = search_many([(costs, budget)], lambda pairs: score_orders([order for _, order in pairs]), config)
    return result


def search_many(
    problems: Sequence[tuple[ArrayLike, int]],
    score_orders: ScoreProblemOrders,
    config: SearchConfig | Sequence[SearchConfig] = _DEFAULT,
) -> list[SearchResult]:
    """Search many problems in lock-step, with one scorer call per round for all that still run.

    Every result equals that of `search` on its problem alone.

    Args:
        problems: Costs and budget of each problem, as in `search`.
        score_orders: Gives one finite value per (problem index, order) pair, higher is better.
        config: The settings of all problems, or a sequence with those of each.

    Raises:
        InputError: A problem or the scorer's answer breaks a rule, or the number of configs is wrong.
    """
    configs = config if isinstance(config, Sequence) else [config] * len(problems)
    if len(configs) != len(problems):
        raise InputError(f"expected one config per problem, or one for all; got {len(configs)} for {len(problems)}")
    checked = [checked_problem(costs, budget) for costs, budget in problems]
    running = [POLICIES[own.policy](*problem, own) for problem, own in zip(checked, configs, strict=True)]
    results: dict[int, SearchResult] = {}
    answers: dict[int, Any] = dict.fromkeys(range(len(running)))  # None starts a search
    while answers:
        orders: dict[int, list[Order]] = {}
        for index, answer in answers.items():
            try:
                orders[index] = running[index].send(answer)
            except StopIteration as end:
                results[index] = end.value
        answers = {}
        if orders:
            asked = [(index, order) for index, own in orders.items() for order in own]
            values = checked_values(score_orders(asked), asked)
            ends = list(accumulate(map(len, orders.values())))
            answers = dict(zip(orders, np.split(values, ends[:-1]), strict=True))
    return [results[index] for index in range(len(running))]

"""Drivers of the search core: one search or many in lock-step, for a scorer that is a plain function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate

import numpy as np
from numpy.typing import ArrayLike

from search.bayesian.policy import bayesian
from search.config import Policy, SearchConfig
from search.rounds import beam, run_rounds
from search.tree.mcts import paper, public_code
from search.types import (
    IntArray,
    Order,
    Problem,
    ScoreOrders,
    ScoreProblemOrders,
    SearchCoroutine,
    SearchError,
    SearchResult,
)
from search.validation import checked_problem, checked_values

_DEFAULT = SearchConfig()

POLICIES: dict[Policy, Callable[[IntArray, int, SearchConfig], SearchCoroutine]] = {
    "bayesian": partial(run_rounds, bayesian),
    "beam": partial(run_rounds, beam),
    "paper": paper,
    "public-code": public_code,
}


def search_coroutine(costs: ArrayLike, budget: int, config: SearchConfig = _DEFAULT) -> SearchCoroutine:
    """Return a coroutine that yields orders to be scored and returns the result.

    It does no I/O, so that one core serves single searches, lock-step batches and awaited scorers. Each yield is one
    round: a non-empty list of feasible orders, none of which was yielded before. Send one finite value per order,
    `[len(orders)]`, higher is better. The arguments are those of `search`.

    Raises:
        SearchError: At the call for a bad problem or config, at a `send` for bad values.
    """
    if not isinstance(config, SearchConfig):
        raise SearchError(
            f"config is a {type(config).__name__}; it must be a SearchConfig, such as SearchConfig(iterations=20)"
        )
    return POLICIES[config.policy](*checked_problem(costs, budget), config)


def search(costs: ArrayLike, score_orders: ScoreOrders, budget: int, config: SearchConfig = _DEFAULT) -> SearchResult:
    """Search for the best order within the budget.

    Args:
        costs: Cost of each candidate, best-ranked first, `[num_candidates]`, whole numbers >= 0.
        score_orders: Gives one finite value per order, higher is better; called once per round.
        budget: Upper bound on the cost of an order, in the unit of the costs, a whole number >= 1.
        config: The settings.

    Raises:
        SearchError: The problem, the config or the scorer's answer breaks a rule.
    """
    core = search_coroutine(costs, budget, config)
    orders, result = _advanced(core)
    while result is None:
        orders, result = _advanced(core, score_orders(orders))
    return result


def search_many(
    problems: Sequence[Problem | tuple[ArrayLike, int]],
    score_orders: ScoreProblemOrders,
    config: SearchConfig | Sequence[SearchConfig] = _DEFAULT,
) -> list[SearchResult]:
    """Search many problems in lock-step, with one scorer call per round for all that still run.

    Every result equals that of `search` on its problem alone.

    Args:
        problems: Costs and budget of each problem.
        score_orders: Gives one finite value per (problem index, order) pair, higher is better.
        config: The settings of all problems, or a sequence with those of each.

    Raises:
        SearchError: A problem, a config or the scorer's answer breaks a rule.
    """
    configs = config if isinstance(config, Sequence) else [config] * len(problems)
    if len(configs) != len(problems):
        raise SearchError(f"{len(configs)} configs for {len(problems)} problems; give one per problem, or one for all")
    cores = [_started(index, problem, configs[index]) for index, problem in enumerate(problems)]
    states = [_advanced(core) for core in cores]
    while running := [index for index, (_, result) in enumerate(states) if result is None]:
        asked = [(index, order) for index in running for order in states[index][0]]
        values = checked_values(score_orders(asked), asked)
        ends = list(accumulate(len(states[index][0]) for index in running))
        for index, own in zip(running, np.split(values, ends[:-1]), strict=True):
            states[index] = _advanced(cores[index], own)
    return [result for _, result in states if result is not None]


def _advanced(core: SearchCoroutine, values: ArrayLike | None = None) -> tuple[list[Order], SearchResult | None]:
    """Return the orders that a search asks for next, once it has the values of the last ones, or its result."""
    try:
        return next(core) if values is None else core.send(values), None
    except StopIteration as end:
        return [], end.value


def _started(index: int, problem: Problem | tuple[ArrayLike, int], config: SearchConfig) -> SearchCoroutine:
    try:
        costs, budget = problem
    except (TypeError, ValueError) as error:
        raise SearchError(f"problems[{index}] is {problem!r}; it must be Problem(costs, budget)") from error
    try:
        return search_coroutine(costs, budget, config)
    except SearchError as error:
        raise SearchError(f"problems[{index}]: {error}") from error

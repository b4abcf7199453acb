"""Drivers of the search core for a scorer that is a plain function."""

from __future__ import annotations

from collections.abc import Sequence

from numpy.typing import ArrayLike

from search.config import SearchConfig
from search.errors import SearchError
from search.mcts import Searching, searching
from search.result import SearchResult
from search.types import Order, Problem, ScoreOrders, ScoreProblemOrders
from search.validation import checked_values

_DEFAULT = SearchConfig()


def search(costs: ArrayLike, score_orders: ScoreOrders, budget: int, config: SearchConfig = _DEFAULT) -> SearchResult:
    """Search for the best order within the budget.

    Args:
        costs: Cost of each candidate, best-ranked first, `[num_candidates]`, whole numbers >= 0.
        score_orders: Gives one finite value per order, higher is better; called once per iteration.
        budget: The most that an order may cost, a whole number >= 1.
        config: The settings.

    Raises:
        SearchError: If the problem, the config or the scorer's answer breaks a rule.
    """
    running = searching(costs, budget, config)
    state = _advance(running)
    while not isinstance(state, SearchResult):
        state = _advance(running, score_orders(state))
    return state


def search_many(
    problems: Sequence[Problem | tuple[ArrayLike, int]],
    score_orders: ScoreProblemOrders,
    config: SearchConfig | Sequence[SearchConfig] = _DEFAULT,
) -> list[SearchResult]:
    """Search many problems in lock-step, with one call of the scorer per round over all that still run.

    Every result equals that of `search` on its problem alone.

    Args:
        problems: Costs and budget of each problem.
        score_orders: Gives one finite value per (problem index, order) pair, higher is better.
        config: The settings of all problems, or a sequence with those of each.

    Raises:
        SearchError: If a problem, a config or the scorer's answer breaks a rule.
    """
    runs = [
        _started(index, problem, its_config)
        for index, (problem, its_config) in enumerate(zip(problems, _configs(config, len(problems)), strict=True))
    ]
    states = [_advance(run) for run in runs]
    while asked := _pairs(states):
        values = checked_values(score_orders(asked), asked)
        start = 0
        for index, state in enumerate(states):
            if not isinstance(state, SearchResult):
                stop = start + len(state)
                states[index] = _advance(runs[index], values[start:stop])
                start = stop
    return [state for state in states if isinstance(state, SearchResult)]


def _advance(running: Searching, values: ArrayLike | None = None) -> list[Order] | SearchResult:
    """Send values and return the next orders, or the result."""
    try:
        return running.send(values)
    except StopIteration as stop:
        result: SearchResult = stop.value
        return result


def _pairs(states: Sequence[list[Order] | SearchResult]) -> list[tuple[int, Order]]:
    return [
        (index, order) for index, state in enumerate(states) if not isinstance(state, SearchResult) for order in state
    ]


def _started(index: int, problem: Problem | tuple[ArrayLike, int], config: SearchConfig) -> Searching:
    try:
        costs, budget = problem
    except (TypeError, ValueError) as error:
        raise SearchError(f"problems[{index}] is {problem!r}; it must be Problem(costs, budget)") from error
    try:
        return searching(costs, budget, config)
    except SearchError as error:
        raise SearchError(f"problems[{index}]: {error}") from error


def _configs(config: SearchConfig | Sequence[SearchConfig], num_problems: int) -> Sequence[SearchConfig]:
    if not isinstance(config, Sequence):
        return [config] * num_problems
    if len(config) != num_problems:
        raise SearchError(f"{len(config)} configs for {num_problems} problems; give one per problem, or one for all")
    return config

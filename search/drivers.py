"""Drivers of the search core: one search or many in lock-step, for a scorer that is a plain function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from time import perf_counter

import numpy as np
from numpy.typing import ArrayLike

from search.baselines import at_random, beam, best_first, greedy
from search.bayesian.policy import bayesian
from search.config import Policy, SearchConfig
from search.result import SearchCoroutine, SearchResult
from search.rounds import run_rounds
from search.surrogate import Surrogate
from search.tree.mcts import paper, public_code
from search.types import FloatArray, IntArray, Order, Problem, ScoreOrders, ScoreProblemOrders, SearchError, StopSearch
from search.validation import checked_problem, checked_values

_DEFAULT = SearchConfig()

POLICIES: dict[Policy, Callable[[IntArray, int, SearchConfig, Surrogate | None], SearchCoroutine]] = {
    "bayesian": partial(run_rounds, bayesian),
    "paper": paper,
    "public-code": public_code,
    "best-first": partial(run_rounds, best_first),
    "beam": partial(run_rounds, beam),
    "greedy": partial(run_rounds, greedy),
    "random": partial(run_rounds, at_random),
}


def search_coroutine(
    costs: ArrayLike, budget: int, config: SearchConfig, surrogate: ScoreOrders | None = None
) -> SearchCoroutine:
    """Return a coroutine that yields orders to be scored and returns the result.

    It does no I/O, so that one core serves single searches, lock-step batches and awaited scorers. Each yield is one
    round: a non-empty list of feasible orders, none of which was yielded before. Send one finite value per order,
    `[len(orders)]`, higher is better, or throw a `StopSearch` to end the search. The arguments are those of `search`;
    the surrogate is called, not yielded to.

    Raises:
        SearchError: At the call for a bad problem or config, at a `send` for bad values; under `on_error="raise"`
            also at either end of a yield for bad values of the surrogate.
    """
    if not isinstance(config, SearchConfig):
        raise SearchError(
            f"config is a {type(config).__name__}; it must be a SearchConfig, such as SearchConfig(iterations=20)"
        )
    if config.prefilter < 1 and surrogate is None:
        raise SearchError(
            f"prefilter is {config.prefilter}, but there is no surrogate to rank the orders; "
            f"give one, or set prefilter to 1"
        )
    ranker = None if surrogate is None or config.prefilter == 1 else Surrogate(surrogate, config)
    return POLICIES[config.policy](*checked_problem(costs, budget), config, ranker)


class Run:
    """A search in progress, for any kind of driver: plain, in lock-step, awaited.

    Score `asked` and `send` the values until there is a `result`. The arguments are those of `search`.

    Attributes:
        asked: Orders whose values the search waits for; empty once there is a result.
        result: The result, or None while the search runs.
    """

    def __init__(
        self, costs: ArrayLike, budget: int, config: SearchConfig = _DEFAULT, surrogate: ScoreOrders | None = None
    ) -> None:
        self._core = search_coroutine(costs, budget, config, surrogate)
        self._config = config
        self._started_s = perf_counter()
        self.asked: list[Order] = []
        self.result: SearchResult | None = None
        self._go_on(lambda: next(self._core))

    def send(self, values: FloatArray) -> None:
        """Continue with the values of `asked`, `[len(asked)]`; end at the deadline.

        Bad values raise `SearchError` and lose the search; check them with `checked_values` to `fail` instead.
        """
        self._go_on(lambda: self._core.send(values))
        deadline_ms = self._config.deadline_ms
        is_late = deadline_ms is not None and 1000 * (perf_counter() - self._started_s) >= deadline_ms
        if self.result is None and is_late:
            self.stop()

    def fail(self, error: Exception) -> None:
        """Raise the error or end with what was found, depending on `on_error`."""
        if self._config.on_error == "raise":
            raise error
        self.stop(error)

    def stop(self, error: Exception | None = None) -> None:
        """End the search with what was found."""
        self._go_on(lambda: self._core.throw(StopSearch(error)))

    def _go_on(self, step: Callable[[], list[Order]]) -> None:
        try:
            self.asked = step()
        except StopIteration as stop:
            self.asked, self.result = [], stop.value


def search(
    costs: ArrayLike,
    score_orders: ScoreOrders,
    budget: int,
    config: SearchConfig = _DEFAULT,
    surrogate: ScoreOrders | None = None,
) -> SearchResult:
    """Search for the best order within the budget.

    Args:
        costs: Cost of each candidate, best-ranked first, `[num_candidates]`, whole numbers >= 0.
        score_orders: Gives one finite value per order, higher is better; called once per round.
        budget: Upper bound on the cost of an order, in the unit of the costs, a whole number >= 1.
        config: The settings.
        surrogate: A cheap scorer on any scale, asked when `prefilter` is below 1; its answers obey the same rules.

    Raises:
        SearchError: If the problem or the config breaks a rule, or the scorer's answer does and `on_error` is `raise`.
    """
    run = Run(costs, budget, config, surrogate)
    while run.result is None:
        try:
            values = checked_values(score_orders(run.asked), run.asked)
        except Exception as error:  # noqa: BLE001  (a scorer may raise anything; the config says what is done with it)
            run.fail(error)
        else:
            run.send(values)
    return run.result


def search_many(
    problems: Sequence[Problem | tuple[ArrayLike, int]],
    score_orders: ScoreProblemOrders,
    config: SearchConfig | Sequence[SearchConfig] = _DEFAULT,
    surrogate: ScoreProblemOrders | None = None,
) -> list[SearchResult]:
    """Search many problems in lock-step, with one scorer call per round for all that still run.

    Every result equals that of `search` on its problem alone. A failing call ends every search that waited for it.

    Args:
        problems: Costs and budget of each problem.
        score_orders: Gives one finite value per (problem index, order) pair, higher is better.
        config: The settings of all problems, or a sequence with those of each.
        surrogate: A cheap scorer of pairs on any scale, asked for one problem at a time where `prefilter` is below 1.

    Raises:
        SearchError: If a problem or a config breaks a rule, or the scorer's answer does and `on_error` is `raise`.
    """
    configs = config if isinstance(config, Sequence) else [config] * len(problems)
    if len(configs) != len(problems):
        raise SearchError(f"{len(configs)} configs for {len(problems)} problems; give one per problem, or one for all")
    runs = [_started(index, problem, configs[index], surrogate) for index, problem in enumerate(problems)]
    while waiting := [run for run in runs if run.result is None]:
        asked = [(index, order) for index, run in enumerate(runs) for order in run.asked]
        try:
            values = checked_values(score_orders(asked), asked)
        except Exception as error:  # noqa: BLE001  (as in `search`)
            for run in waiting:
                run.fail(error)
        else:
            ends = list(accumulate(len(run.asked) for run in waiting))
            for run, own in zip(waiting, np.split(values, ends[:-1]), strict=True):
                run.send(own)
    return [run.result for run in runs if run.result is not None]


def _started(
    index: int, problem: Problem | tuple[ArrayLike, int], config: SearchConfig, surrogate: ScoreProblemOrders | None
) -> Run:
    try:
        costs, budget = problem
    except (TypeError, ValueError) as error:
        raise SearchError(f"problems[{index}] is {problem!r}; it must be Problem(costs, budget)") from error
    own = None if surrogate is None else lambda orders: surrogate([(index, order) for order in orders])
    try:
        return Run(costs, budget, config, own)
    except SearchError as error:
        raise SearchError(f"problems[{index}]: {error}") from error

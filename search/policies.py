"""Policies: what is scored next.

A search does no I/O: it yields orders to be scored and is sent their values, so that one core serves one
query, many in lock-step, and scorers that are awaited.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from numpy.typing import ArrayLike

from search.baselines import at_random, beam, best_first, greedy
from search.bayesian.policy import guided
from search.config import Policy, SearchConfig, checked_config
from search.errors import SearchError
from search.result import Searching
from search.rounds import in_rounds
from search.surrogate import Surrogate
from search.tree.mcts import paper, public_code
from search.types import IntArray, ScoreOrders
from search.validation import checked_problem

POLICIES: dict[Policy, Callable[[IntArray, int, SearchConfig, Surrogate | None], Searching]] = {
    "bayesian": partial(in_rounds, guided),
    "paper": paper,
    "public-code": public_code,
    "best-first": partial(in_rounds, best_first),
    "beam": partial(in_rounds, beam),
    "greedy": partial(in_rounds, greedy),
    "random": partial(in_rounds, at_random),
}


def searching(costs: ArrayLike, budget: int, config: SearchConfig, surrogate: ScoreOrders | None = None) -> Searching:
    """Return a coroutine that yields orders to be scored and returns the result.

    Each yield is one round: a non-empty list of feasible orders, none of which was yielded before.
    Send one finite value per order, `[len(orders)]`, higher is better, or throw a `Stop` to end with what was found.

    Args:
        costs: Cost of each candidate, best-ranked first, `[num_candidates]`, whole numbers >= 0.
        budget: The most that an order may cost, a whole number >= 1.
        config: The settings.
        surrogate: A cheap scorer on any scale, for `prefilter` below 1; it is called, where the others are yielded.

    Raises:
        SearchError: At the call for a bad problem or config, at a `send` for bad values; from the surrogate's values
            at either end of a yield, if `on_error` is `raise`.
    """
    config = checked_config(config)
    return POLICIES[config.policy](*checked_problem(costs, budget), config, _asked(surrogate, config))


def _asked(surrogate: ScoreOrders | None, config: SearchConfig) -> Surrogate | None:
    if config.prefilter == 1:
        return None
    if surrogate is None:
        raise SearchError(
            f"prefilter is {config.prefilter}, but there is no surrogate to say which orders are promising; "
            f"give one, or set prefilter to 1"
        )
    return Surrogate(surrogate, config)

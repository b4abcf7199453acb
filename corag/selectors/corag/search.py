"""How questions are searched, one or many in lock-step; what serves a question also labels it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal

import numpy as np

import search
from corag.rerankers.scorers import CHARGED_FOR, CachedScorer, PricedScorer, score_together
from corag.rerankers.window import DEFAULT_POLICY, WindowPolicy
from corag.selectors.base import Choice
from corag.selectors.corag.completion import completed
from corag.selectors.problem import Limits, SelectionProblem
from corag.selectors.units import UnitProblem
from corag.types import FloatArray, Order, PolicyReranker, Reranker

Scale = Literal["query", "raw"]

SCALE_FREE: tuple[search.Policy, ...] = ("bayesian", "beam", "greedy", "random")
"""Policies that choose the same orders when all values are shifted or stretched."""
ENDING: tuple[search.Policy, ...] = ("beam", "greedy")
"""Policies that end by themselves when no chunk fits any more, for rerankers whose values cost next to nothing."""
NO_BOUND = 10**6
"""More rounds than there are chunks."""
FLAT = 1e-6
"""Values of single candidates that differ by no more than this, or this share of the largest, differ by the
rounding of float32 models: stretched to [0, 1] they would drown what combinations are worth."""


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """How to search one problem.

    Attributes:
        reranker: Values orders.
        config: Settings of the search.
        window: How orders longer than the reranker's window are valued.
        surrogate: Ranks orders for `config.prefilter` below 1.
        trace: What the selection's trace tells about where the settings come from.
        thrift: What a token costs, as a multiple of what the reranker's values charge; None for `usual_thrift`.
    """

    reranker: Reranker
    config: search.SearchConfig
    window: WindowPolicy = DEFAULT_POLICY
    surrogate: Reranker | None = None
    trace: Mapping[str, Any] = field(default_factory=dict)
    thrift: float | None = 1.0

    def scorer(self, problem: SelectionProblem) -> CachedScorer:
        """Return what values orders of a problem."""
        return problem.scorer(self.reranker, self.window, thrift=self.thrift_for(problem))

    def thrift_for(self, problem: SelectionProblem) -> float:
        """Return what a token of a problem costs."""
        return usual_thrift(problem.budget_tokens) if self.thrift is None else self.thrift


def usual_thrift(budget_tokens: int) -> float:
    """Return what a token costs where nothing is said: less within a large budget, so that all of it costs the same."""
    return min(1.0, CHARGED_FOR / budget_tokens)


@dataclass(frozen=True, slots=True)
class Scaling:
    """Shifts and stretches values: `low` becomes 0, and what lies `spread` above it 1."""

    low: float = 0.0
    spread: float = 1.0

    @classmethod
    def of(cls, singles: FloatArray) -> Scaling:
        """Return what makes the values of the single candidates, `[n]`, span [0, 1]; nothing for equal ones."""
        low, spread = (float(singles.min()), float(np.ptp(singles))) if len(singles) else (0.0, 0.0)
        if spread <= FLAT * max(1.0, float(np.abs(singles).max(initial=0.0))):
            return cls()
        return cls(low, spread)

    def __call__(self, values: FloatArray) -> FloatArray:
        """Return values on the new scale, `[n]`."""
        return values if self == Scaling() else (values - self.low) / self.spread


@dataclass(frozen=True, slots=True)
class Searched:
    """A problem, how it was searched, and what was found.

    Attributes:
        scaling: What the values went through on their way into the search.
    """

    problem: SelectionProblem
    plan: SearchPlan
    scorer: CachedScorer
    limits: Limits
    scaling: Scaling
    result: search.SearchResult

    @property
    def completes(self) -> bool:
        """Whether what is left of the budget is spent on what is worth most, since values are cheap.

        Left is what units save by sharing titles, and, within a large budget, what a search is not deep enough for.
        """
        config, reranker = self.plan.config, self.plan.reranker
        wanted = reranker.search_policy if isinstance(reranker, PolicyReranker) else config.policy
        leaves = isinstance(self.problem, UnitProblem) or self.thrift < 1
        return leaves and wanted in ENDING and config.max_scored is None

    @property
    def thrift(self) -> float:
        """What a token costs, as a multiple of what the reranker's values charge; 1 where they charge nothing."""
        return self.plan.thrift_for(self.problem) if isinstance(self.scorer.scorer, PricedScorer) else 1.0

    @property
    def cost(self) -> int:
        """Tokens of the text of the order found."""
        return self.problem.text_tokens([self.result.order])[0]

    @property
    def summed(self) -> int:
        """Tokens of the parts of the order found, each with its own title."""
        return self.problem.summed_tokens(self.result.order)

    @property
    def price(self) -> float:
        """What a token costs in units of the reranker's values, where the answer is picked by value minus cost."""
        config = self.plan.config
        if config.choice != "value-minus-cost":
            return 0.0
        return config.cost_weight * self.scaling.spread / self.problem.capacity

    def choice(self) -> Choice:
        """Return the order found, with its value and a trace."""
        result, config, scorer = self.result, self.plan.config, self.scorer
        order = result.order
        if self.completes:
            order = completed(self.problem, order, scorer, self.price)
        value = float(scorer([order])[0]) if order else 0.0
        singles = [(index,) for index in order]
        surrogate: dict[str, Any] = {}
        if self.plan.surrogate is not None:
            surrogate = {
                "prefilter": config.prefilter,
                "surrogate": self.plan.surrogate.name,
                "orders_ranked": result.num_ranked,
            }
        trace = {
            "reranker": self.plan.reranker.name,
            "policy": config.policy,
            "iterations": result.num_calls if config.iterations == NO_BOUND else config.iterations,
            **_noted(config),
            **({"thrift": self.thrift} if self.thrift != 1 else {}),
            "orders_scored": result.num_scored,
            "scorer_calls": result.num_calls,
            "orders_computed": scorer.num_computed,
            "truncated": scorer.num_truncated,
            # With a surrogate the reranker is asked as little as possible, so not for this either.
            **({} if surrogate and scorer.missing(singles) else {"chunk_values": scorer(singles).tolist()}),
            **surrogate,
            # If the window binds, the tree's costs are in the unit of `limits`; the result's are always tokens.
            "result": replace(result, cost=int(self.problem.costs[list(result.order)].sum())),
            **({"completed": len(order) - len(result.order)} if self.completes else {}),
            **self.problem.window_trace(scorer, self.limits),
            **self.plan.trace,
        }
        return Choice(order, value, trace, spent=self.completes)


def search_problems(
    problems: Sequence[SelectionProblem],
    plans: Sequence[SearchPlan],
    scale: Scale = "query",
    score_together: Callable[[Sequence[tuple[CachedScorer, Sequence[Order]]]], list[FloatArray]] = score_together,
) -> list[Searched]:
    """Search problems in lock-step, their orders scored in shared batches.

    Args:
        problems: Queries with their candidates and budgets; they remember values between calls.
        plans: How to search each problem.
        scale: The scale on which values enter the search; see `corag.selectors.corag.selector.Corag`.
        score_together: Scores the orders of one round, as `corag.rerankers.scorers.score_together` does. It is called
            once before the first round, with the single candidates of every problem whose values have to be scaled.
    """
    scorers = [plan.scorer(problem) for problem, plan in zip(problems, plans, strict=True)]
    limits = [problem.limits(scorer) for problem, scorer in zip(problems, scorers, strict=True)]
    # The first expansion of a tree scores the same orders, and then finds them remembered.
    singles: list[list[Order]] = []
    for of_one, plan in zip(limits, plans, strict=True):
        scaled = scale == "query" and (plan.config.policy not in SCALE_FREE or plan.config.choice != "value")
        singles.append([(int(index),) for index in of_one.fitting] if scaled else [])
    scalings = [Scaling.of(values) for values in score_together(list(zip(scorers, singles, strict=True)))]

    def score(pairs: Sequence[tuple[int, Order]]) -> FloatArray:
        # The pairs of a problem are neighbours, so its values are.
        orders = {index: [order for _, order in of_one] for index, of_one in groupby(pairs, key=itemgetter(0))}
        values = score_together([(scorers[index], of_one) for index, of_one in orders.items()])
        return np.concatenate([scalings[index](of_one) for index, of_one in zip(orders, values, strict=True)])

    def rank(pairs: Sequence[tuple[int, Order]]) -> FloatArray:
        # All pairs are of one problem.
        first = pairs[0][0]
        surrogate = plans[first].surrogate
        assert surrogate is not None
        return problems[first].scorer(surrogate)([order for _, order in pairs])

    knapsacks = [(of_one.costs, of_one.budget) for of_one in limits]
    results = search.search_many(knapsacks, score, [plan.config for plan in plans], rank)
    return [Searched(*found) for found in zip(problems, plans, scorers, limits, scalings, results, strict=True)]


def _noted(config: search.SearchConfig) -> dict[str, Any]:
    """Return the settings of a search that a trace tells beside its policy: those that matter, and are not usual."""
    usual = asdict(search.SearchConfig())
    weighs = config.choice == "value-minus-cost"
    of_tree = config.policy in search.TREE_POLICIES
    unusual = {name: getattr(config, name) for name in ("choice", "backup", "visits", "parallel")}
    return {
        **({"exploration": config.exploration} if of_tree else {}),
        **({"cost_weight": config.cost_weight} if of_tree or weighs else {}),
        **{name: value for name, value in unusual.items() if value != usual[name]},
    }

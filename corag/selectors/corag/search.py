"""How `corag` searches questions, one or many in lock-step; what serves a question also labels it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np

import search
from corag.errors import InputError, search_errors
from corag.rerankers.scorers import CachedScorer, score_together
from corag.rerankers.window import DEFAULT_POLICY, WindowPolicy
from corag.selectors.base import Choice
from corag.selectors.price import COST_WEIGHT, REFERENCE_TOKENS, Scaling, gives_probabilities
from corag.selectors.problem import Limits, SelectionProblem
from corag.types import FloatArray, Order, Reranker

EXPLORATION = 0.3
"""The paper's 2.4 is for rerankers that give raw logits. On values in [0, 1] it drowns every difference: with
it and 10 iterations `minilm-maxsim` selects the whole evidence of 43 of 100 HotpotQA training questions at
256 tokens, with 0.3 of 48, as many as exhaustive search."""
NO_BOUND = 10**6
"""Rounds of `beam`, which ends by itself when no chunk fits any more."""


def search_config(
    reranker: Reranker, preset: search.Preset | None = None, given: Mapping[str, Any] | None = None
) -> search.SearchConfig:
    """Return the settings of a search: those given, then the preset's, then the defaults for a reranker.

    Raises:
        InputError: A field is unknown, is the price of tokens, has no use under the policy, or breaks a rule.
    """
    given = dict(given or {})
    base: Mapping[str, Any] = {} if preset is None else search.PRESETS[preset]
    fields = search.SearchConfig.__dataclass_fields__
    for name in given:
        if name == "cost_weight" or name not in fields:
            known = ", ".join(one for one in fields if one != "cost_weight")
            remedy = "set cost_weight beside search" if name == "cost_weight" else f"its fields are {known}"
            raise InputError(f"search has no field {name!r}; {remedy}")
    wanted = getattr(reranker, "search_policy", None)
    policy = given.get("policy") or base.get("policy") or wanted or "bayesian"
    defaults = {"policy": policy, "exploration": EXPLORATION, "choice": "value-minus-cost"}
    if policy == "beam":
        defaults["iterations"] = NO_BOUND
    for name in ("backup", "visits"):
        if name in given and policy != "paper":
            raise InputError(
                f"search sets {name}, which policy {policy!r} does not have; leave it out, or set policy to paper"
            )
    with search_errors():
        return search.SearchConfig(**{**defaults, **base, **given})


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """How to search one problem.

    Attributes:
        reranker: Values orders.
        config: Settings of the search, but for its `cost_weight`.
        cost_weight: lambda: what 256 tokens cost, in units of value on the scale on which values enter the search; with
            `paper`, what the whole budget costs.
        paper: Whether values enter as they are and lambda is that of eq. 5, as in the presets.
        window: How orders longer than the reranker's window are valued.
        trace: What the selection's trace tells about where the settings come from.
    """

    reranker: Reranker
    config: search.SearchConfig
    cost_weight: float = COST_WEIGHT
    paper: bool = False
    window: WindowPolicy = DEFAULT_POLICY
    trace: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_raw(self) -> bool:
        """Whether values enter the search as they are: probabilities do, others are standardised per question."""
        return self.paper or gives_probabilities(self.reranker)

    def config_for(self, problem: SelectionProblem) -> search.SearchConfig:
        """Return the settings of a search of a problem, which counts lambda for the whole of what may be spent."""
        share = 1.0 if self.paper else problem.capacity / REFERENCE_TOKENS
        return replace(self.config, cost_weight=self.cost_weight * share)


@dataclass(frozen=True, slots=True)
class Searched:
    """A problem, how it was searched, and the result.

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
    def token_price(self) -> float:
        """What a token costs in units of the reranker's values; 0 where the answer is picked without it."""
        config = self.plan.config_for(self.problem)
        if config.choice != "value-minus-cost":
            return 0.0
        return config.cost_weight * self.scaling.spread / self.problem.capacity

    def choice(self) -> Choice:
        """Return the order with its value and a trace."""
        result, config, scorer = self.result, self.plan.config, self.scorer
        trace = {
            "reranker": self.plan.reranker.name,
            "policy": config.policy,
            "iterations": result.num_calls if config.iterations == NO_BOUND else config.iterations,
            "cost_weight": self.plan.cost_weight,
            "token_price": self.token_price,
            **_unusual(config),
            "orders_scored": result.num_scored,
            "scorer_calls": result.num_calls,
            "orders_computed": scorer.num_computed,
            "truncated": scorer.num_truncated,
            "chunk_values": scorer([(index,) for index in result.order]).tolist(),
            # If the window binds, the tree's costs are in the unit of `limits`; the result's are always tokens.
            "result": replace(result, cost=int(self.problem.costs[list(result.order)].sum())),
            **self.problem.window_trace(scorer, self.limits),
            **self.plan.trace,
        }
        return Choice(result.order, float(scorer([result.order])[0]) if result.order else 0.0, trace)


def search_problems(problems: Sequence[SelectionProblem], plans: Sequence[SearchPlan]) -> list[Searched]:
    """Search problems in lock-step, their orders scored in shared batches.

    Args:
        problems: Queries with their candidates and budgets; they remember values between calls.
        plans: How to search each problem.
    """
    scorers = [problem.scorer(plan.reranker, plan.window) for problem, plan in zip(problems, plans, strict=True)]
    limits = [problem.limits(scorer) for problem, scorer in zip(problems, scorers, strict=True)]
    # The first expansion of a tree scores the same orders, and then finds them remembered.
    singles: list[list[Order]] = [
        [] if plan.is_raw else [(int(index),) for index in of_one.fitting]
        for of_one, plan in zip(limits, plans, strict=True)
    ]
    scalings = [Scaling.of(values) for values in score_together(list(zip(scorers, singles, strict=True)))]

    def score(pairs: Sequence[tuple[int, Order]]) -> FloatArray:
        # The pairs of a problem are neighbours, so its values are.
        orders = {index: [order for _, order in of_one] for index, of_one in groupby(pairs, key=itemgetter(0))}
        values = score_together([(scorers[index], of_one) for index, of_one in orders.items()])
        return np.concatenate([scalings[index](of_one) for index, of_one in zip(orders, values, strict=True)])

    knapsacks = [(of_one.costs, of_one.budget) for of_one in limits]
    configs = [plan.config_for(problem) for plan, problem in zip(plans, problems, strict=True)]
    with search_errors():
        results = search.search_many(knapsacks, score, configs)
    return [Searched(*one) for one in zip(problems, plans, scorers, limits, scalings, results, strict=True)]


def _unusual(config: search.SearchConfig) -> dict[str, Any]:
    """Return the settings of a search that a trace tells beside its policy: those that matter, and are not usual."""
    usual = {**asdict(search.SearchConfig()), "choice": "value-minus-cost"}
    shown = {name: getattr(config, name) for name in ("choice", "backup", "visits", "parallel", "max_scored")}
    return {
        **({"exploration": config.exploration} if config.policy in search.TREE_POLICIES else {}),
        **{name: value for name, value in shown.items() if value != usual[name]},
    }

"""How `corag` searches questions, one or many in lock-step; labelling uses the same search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np

import search
from corag.errors import InputError, search_errors
from corag.rerankers.scorers import CachedScorer, score_together
from corag.rerankers.window import WindowPolicy
from corag.selectors.base import Choice
from corag.selectors.price import REFERENCE_TOKENS, Scaling, gives_probabilities
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
            known = ", ".join(field for field in fields if field != "cost_weight")
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
class Search:
    """How `corag` searches.

    Attributes:
        reranker: Values orders.
        config: Settings of the search, but for its `cost_weight`.
        cost_weight: lambda: what 256 tokens cost, in units of value on the scale on which values enter the search; with
            a preset, what the whole budget costs.
        preset: With one, values enter as they are and lambda is that of eq. 5.
        window: How orders longer than the reranker's window are valued.
    """

    reranker: Reranker
    config: search.SearchConfig
    cost_weight: float
    preset: search.Preset | None
    window: WindowPolicy

    def config_for(self, problem: SelectionProblem) -> search.SearchConfig:
        """Return the settings of a search of a problem, with lambda for the whole of what may be spent."""
        share = problem.capacity / REFERENCE_TOKENS if self.preset is None else 1.0
        return replace(self.config, cost_weight=self.cost_weight * share)

    def choices(self, problems: Sequence[SelectionProblem]) -> list[Choice]:
        """Search problems in lock-step, their orders scored in shared batches; values are cached in the problems."""
        scorers = [problem.scorer(self.reranker, self.window) for problem in problems]
        limits = [problem.limits(scorer) for problem, scorer in zip(problems, scorers, strict=True)]
        # Probabilities enter as they are, other values are standardised per question. The first expansion of a tree
        # scores the same orders, and then they are cached.
        raw = self.preset is not None or gives_probabilities(self.reranker)
        singles: list[list[Order]] = [[] if raw else [(int(i),) for i in limit.fitting] for limit in limits]
        scalings = [Scaling.of(values) for values in score_together(list(zip(scorers, singles, strict=True)))]

        def score(pairs: Sequence[tuple[int, Order]]) -> FloatArray:
            # The pairs of a problem are neighbours, so its values are.
            orders = {index: [order for _, order in group] for index, group in groupby(pairs, key=itemgetter(0))}
            values = score_together([(scorers[index], of_problem) for index, of_problem in orders.items()])
            return np.concatenate([scalings[index](some) for index, some in zip(orders, values, strict=True)])

        configs = [self.config_for(problem) for problem in problems]
        with search_errors():
            results = search.search_many([(limit.costs, limit.budget) for limit in limits], score, configs)
        return [
            self._choice(*searched)
            for searched in zip(problems, scorers, limits, scalings, configs, results, strict=True)
        ]

    def _choice(
        self,
        problem: SelectionProblem,
        scorer: CachedScorer,
        limits: Limits,
        scaling: Scaling,
        config: search.SearchConfig,
        result: search.SearchResult,
    ) -> Choice:
        """Return the order of a result with its value and a trace."""
        # What a token costs in units of the reranker's values; 0 if the answer is chosen without it.
        price = config.cost_weight * scaling.spread / problem.capacity if config.choice == "value-minus-cost" else 0.0
        trace: dict[str, Any] = {
            "reranker": self.reranker.name,
            "policy": config.policy,
            "iterations": result.num_calls if config.iterations == NO_BOUND else config.iterations,
            "cost_weight": self.cost_weight,
            "token_price": price,
            **_unusual(config),
            "orders_scored": result.num_scored,
            "scorer_calls": result.num_calls,
            "orders_computed": scorer.num_computed,
            "truncated": scorer.num_truncated,
            "chunk_values": scorer([(index,) for index in result.order]).tolist(),
            # If the window binds, the tree's costs are in the unit of `limits`; the result's are always tokens.
            "result": replace(result, cost=int(problem.costs[list(result.order)].sum())),
            **problem.window_trace(scorer, limits),
        }
        if self.preset is not None:
            trace |= {"preset": self.preset, "logits": getattr(self.reranker, "output", None) == "logit"}
        return Choice(result.order, float(scorer([result.order])[0]) if result.order else 0.0, trace)


def _unusual(config: search.SearchConfig) -> dict[str, Any]:
    """Return the settings of a search that a trace has beside its policy: those that matter, and are not usual."""
    usual = {**asdict(search.SearchConfig()), "choice": "value-minus-cost"}
    names = ("choice", "backup", "visits", "parallel", "max_scored")
    return {
        **({"exploration": config.exploration} if config.policy in search.TREE_POLICIES else {}),
        **{name: value for name in names if (value := getattr(config, name)) != usual[name]},
    }

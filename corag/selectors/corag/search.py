"""`corag`: search over ordered combinations, by the best single configuration or by what an agent names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from common.checks import check_choice, check_range
from common.configuration import parse
from corag.errors import InputError
from corag.optional import warn_once
from corag.registry import EMBEDDERS
from corag.rerankers.scorers import CachedScorer, JoinedTextScorer, gives_probabilities, scale_of, score_together
from corag.rerankers.window import WindowedScorer
from corag.selectors.base import Assembled, BudgetedSelector, Choice, RerankingSelector, checked
from corag.selectors.corag.agents import AgentSelectors, AgentSource, decides
from corag.selectors.problem import SelectionProblem
from corag.types import Candidate, Embedder, FloatArray, Order, Reranker, Scorer, Selection
from search import PRESETS, Policy, Preset, SearchConfig, SearchResult, search_many

if TYPE_CHECKING:
    from agent import AgentPrediction

LOGITS: Mapping[str, Any] = {"output": "logit"}
"""What a preset offers to a reranker that is given by name: its numbers were chosen for logits."""
MAX_PROBABILITY = 1 - 1e-5
"""The largest probability of which a preset takes the logit, 11.5: about the largest logit of a cross-encoder."""

REFERENCE_TOKENS = 256
"""lambda is the price of this many tokens, in units of value, whatever the budget is."""
ROUNDING = 1e-12
"""By which a value may miss a promise."""
ITERATIONS, EXPLORATION = 40, 0.001
"""Of the tree, on values in [0, 1]. The paper's c of 2.4 is for raw logits. From 0.1 on it keeps the tree shallow: with
60 sentences, 40 iterations reach a net value of .740 up to 0.02, .728 with 0.1 and .632 with 0.3. An order has at most
as many chunks as there are iterations, so there are more where more fit."""


COMPLETE = ("unit", "reranker", "cost_weight")
"""What a configuration has to name, or an agent names it."""
SINGLE: Mapping[str, Any] = MappingProxyType({"unit": "sentence", "reranker": "fused", "keep": 0.98})
"""The best single configuration on kinds of questions that the value did not learn from."""
GIVEN = (*COMPLETE, "keep", "max_units", "order", "search", "window")
"""Settings of the selector that a configuration has, too; those that the user gives replace it."""


@dataclass(kw_only=True, eq=False)
class Corag(RerankingSelector):
    """Searches for the ordered combination with the highest value, net of the price of its tokens.

    Without an agent, what is not given of unit, reranker and promise is that of the best single configuration. An agent
    names unit, reranker and search for each question; whatever is given stays as it is. A preset is complete: what is
    not given is as published.

    Args:
        cost_weight: lambda: what 256 tokens cost, whatever the budget is. The search maximises
            value - lambda * tokens / 256. Values are probabilities if the reranker gives these, else the single
            candidates of a question span 0 to 1. With a preset, the price of the whole budget, by default 0.1.
        keep: Promise: the share, from 0 to 1, of the value of a full budget that the selection has to hold. Of the
            order that the search fills the budget with, the shortest beginning that does is taken. With a value that
            is mostly an expected share of the evidence, as that of `fused`, the promise is about the evidence. A
            price of tokens or a preset takes its place; with another reranker the best order is taken as it is, unless
            this is given.
        preset: `paper` or `public-code`: the search of the paper, or of the code published with it, with their settings
            (`search.PRESETS`) on logits, for which these were chosen: those of a reranker given by name that has them
            (`output=logit`), or of its probabilities. Other values enter as they are, with a warning;
            `trace.details["logits"]` says so.
        search: Settings of the search, laid over the preset or the defaults: a mapping of fields of
            `search.SearchConfig`. For the policy see `default_policy`.
        agent: `none` or None; a folder that `corag train` or `tune` wrote; `owner/name` on the Hugging Face hub; or a
            loaded agent. Afterwards the loaded one, None if there is nothing for it to name.
        embedder: Embeds questions for the agent; by default the one that its checkpoint names.

    Raises:
        InputError: A setting breaks a rule.
    """

    unit: str | None = None  # type: ignore[assignment]  # a text once it is built
    cost_weight: float | None = checked(None, check_range, low=0, high=100, hint="typical: 0 to 0.5")
    keep: float | None = checked(None, check_range, low=0, high=1, hint="typical: 0.8 to 1")
    preset: Preset | None = checked(None, check_choice, names=PRESETS)
    search: Mapping[str, Any] | None = None
    agent: AgentSource = None
    embedder: str | Embedder | None = None
    name = "corag"

    def __post_init__(self) -> None:
        given = {name: value for name in GIVEN if (value := getattr(self, name)) != getattr(type(self), name)}
        self._chooser: AgentSelectors | None = None
        if self.preset is None and decides(self.agent) and not given.keys() >= set(COMPLETE):
            self.unit = self.unit or "passage"
            BudgetedSelector.__post_init__(self)
            search_config("paper", None, self.search)  # refused now, not with the first question
            embeds = None if self.embedder is None else EMBEDDERS.make(self.embedder)
            self._chooser = AgentSelectors(self.agent, self.tokenizer, embeds, given)
            self.agent = self._chooser.agent
            return
        self.agent = None
        for name, value in (given if self.preset is not None else completed(given)).items():
            setattr(self, name, value)
        self.unit = self.unit or "passage"
        super().__post_init__()
        config = search_config("paper", self.preset, self.search)
        self._given = self.search or {}
        self._price = config.cost_weight if self.cost_weight is None else self.cost_weight
        if self.keep is not None:
            if self.cost_weight or self.preset is not None:
                other = f"preset={self.preset}" if self.preset is not None else f"cost_weight={self.cost_weight}"
                raise InputError(f"keep={self.keep} and {other} both decide how much is spent; give one of them")
            self._price = 0.0

    def _offered(self) -> Mapping[str, Any]:
        return {} if self.preset is None else LOGITS

    def predict(self, query: str, candidates: Sequence[Candidate], budget_tokens: int) -> AgentPrediction | None:
        """Return what the agent says of a question, with its candidates best first; None without an agent.

        What is given to the selector replaces what the prediction says of it.
        """
        if self._chooser is None:
            return None
        problem = SelectionProblem(query, candidates, self.tokenizer, budget_tokens).prefiltered()
        return self._chooser.predict([problem])[0]

    def prepared(self, passages: SelectionProblem) -> SelectionProblem:
        """Return what is chosen from; see `BudgetedSelector`."""
        return super().prepared(passages) if self._chooser is None else self._chooser.prepared(passages)

    def select_from(self, problem: SelectionProblem, choice: Choice | None = None) -> Selection:
        """Choose from a problem that is set up already; see `BudgetedSelector`."""
        if self._chooser is None:
            return super().select_from(problem, choice)
        return replace(self._chooser.select_from(problem, choice), method=self.name)

    def search_of(self, problem: SelectionProblem) -> SearchConfig:
        """Return the settings of the search of a problem, with lambda for its whole budget."""
        price = self._price * (problem.capacity / REFERENCE_TOKENS if self.preset is None else 1.0)
        policy: Policy = "paper"
        if self.preset is None:
            policy = default_policy(self._scorer(problem).scorer)
        config = replace(search_config(policy, self.preset, self._given), cost_weight=price)
        if self.preset is None and config.policy == "paper" and "iterations" not in self._given:
            most = int((np.cumsum(np.sort(problem.costs)) <= problem.capacity).sum())
            config = replace(config, iterations=max(config.iterations, most))
        return config

    def _choose_many(self, problems: Sequence[SelectionProblem]) -> list[Choice]:
        if self._chooser is not None:
            return self._chooser._choose_many(problems)
        # In lock-step, their orders scored in shared batches; values are cached in the problems.
        scorers = [self._scorer(problem) for problem in problems]
        # Probabilities enter as they are, other values are standardised per question. The first expansion of a tree
        # scores the same orders, and then they are cached.
        raw = self.preset is not None or gives_probabilities(self._reranker)
        singles: list[list[Order]] = [[] if raw else [(index,) for index in problem.fitting] for problem in problems]
        scales = [scale_of(values) for values in score_together(list(zip(scorers, singles, strict=True)))]
        as_logits = self.preset is not None and _is_probable(self._reranker)

        def score(pairs: Sequence[tuple[int, Order]]) -> FloatArray:
            # The pairs of a problem are neighbours, so its values are.
            orders = {index: [order for _, order in group] for index, group in groupby(pairs, key=itemgetter(0))}
            values = score_together([(scorers[index], of_problem) for index, of_problem in orders.items()])
            if as_logits:
                kept = np.concatenate(values).clip(1 - MAX_PROBABILITY, MAX_PROBABILITY)
                return np.asarray(np.log(kept / (1 - kept)))
            scaled = [(some - scales[index][0]) / scales[index][1] for index, some in zip(orders, values, strict=True)]
            return np.concatenate(scaled)

        configs = [self.search_of(problem) for problem in problems]
        results = search_many([(problem.costs, problem.capacity) for problem in problems], score, configs)
        spreads = [spread for _, spread in scales]
        return list(map(self._choice, problems, scorers, spreads, configs, results))

    def _trimmed(self, problem: SelectionProblem, chosen: Assembled) -> Assembled:
        """Return the shortest beginning of an order that holds the promised share of its value."""
        order, choice = chosen.choice.order, chosen.choice
        if self.keep is None or not order:
            return chosen
        values = self._scorer(problem)([order[: length + 1] for length in range(len(order))])
        full = float(values[-1])
        # Of a value below 0, such as a logit, no share is less than all. Rounding must not ask for one chunk more.
        enough = np.flatnonzero(values >= min(self.keep * full, full) - ROUNDING).tolist()
        assembled = (self._assembled(problem, Choice(order[: last + 1], float(values[last]))) for last in enough)
        # The mark for a chunk that is left out may cost more than the chunk.
        trimmed = next(one for one in assembled if one.cost <= chosen.cost)
        length, value = len(trimmed.choice.order), trimmed.choice.value
        notes = {"keep": self.keep, "share_kept": value / full if full > 0 else 1.0, "full_tokens": chosen.cost}
        trace = {**choice.trace, "chunk_values": choice.trace["chunk_values"][:length], **notes}
        trace["because"] = (
            f"expected to hold {notes['share_kept']:.0%} of what {chosen.cost} tokens hold, in {trimmed.cost} of "
            f"{problem.budget_tokens:,} tokens"
        )
        return trimmed._replace(choice=replace(trimmed.choice, trace=trace))

    def _choice(
        self, problem: SelectionProblem, scorer: CachedScorer, spread: float, config: SearchConfig, result: SearchResult
    ) -> Choice:
        """Return the order of a result with its value and a trace."""
        # What a token costs in units of the reranker's values; 0 if the answer is chosen without it.
        price = config.cost_weight * spread / problem.capacity if config.choice == "value-minus-cost" else 0.0
        trace: dict[str, Any] = {
            "reranker": self._reranker.name,
            "policy": config.policy,
            "iterations": config.iterations,
            "cost_weight": self._price,
            "token_price": price,
            **({"exploration": config.exploration} if config.policy == "paper" else {}),
            **self._given,
            "orders_scored": result.num_scored,
            "scorer_calls": result.num_calls,
            "truncated": scorer.num_truncated,
            "chunk_values": scorer([(index,) for index in result.order]).tolist(),
            "result": result,
        }
        if self.preset is not None:
            has_logits = _is_probable(self._reranker) or getattr(self._reranker, "output", None) == "logit"
            trace |= {"preset": self.preset, "logits": has_logits}
            if not has_logits:
                trace["warning"] = (
                    f"preset {self.preset!r} is made for logits, which reranker {self._reranker.name!r} does not give, "
                    f"so exploration ({config.exploration}) may outweigh its values; use a cross-encoder or no preset"
                )
                warn_once(trace["warning"])
        return Choice(result.order, float(scorer([result.order])[0]) if result.order else 0.0, trace)


def completed(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with those that are not given: of the best single configuration, or, for another reranker, plain.

    The promise of the best single configuration is about its own value: with another reranker, or a price of tokens,
    there is none unless it is given.
    """
    reranker = given.get("reranker", SINGLE["reranker"])
    if (parse(reranker).name if isinstance(reranker, str) else getattr(reranker, "name", "")) != SINGLE["reranker"]:
        return {"unit": "passage", "cost_weight": 0.0, **given}
    price = {"keep": None} if "cost_weight" in given else {}
    return {**SINGLE, **price, **given}


def _is_probable(reranker: Reranker) -> bool:
    """Return whether a reranker's values are probabilities, whose logits a preset takes."""
    return gives_probabilities(reranker) or getattr(reranker, "output", None) == "probability"


def default_policy(scorer: Scorer) -> Policy:
    """Return the policy of a search whose settings name none, by what it costs to value an order.

    Where values are computed from what is known of each chunk, the tree finds better orders than `bayesian`, sooner.
    Where a model reads the text of every order, `bayesian` finds as good ones from fewer orders; but not from fewer
    tokens if the scorer `shares_prefixes`, which children in the tree do and orders of `bayesian` do not.
    """
    reads_all = isinstance(scorer, JoinedTextScorer | WindowedScorer) and not getattr(scorer, "shares_prefixes", False)
    return "bayesian" if reads_all else "paper"


def search_config(policy: Policy, preset: Preset | None = None, given: Mapping[str, Any] | None = None) -> SearchConfig:
    """Return the settings of a search: those given, then the preset's, then the defaults for a policy.

    Raises:
        InputError: They are no mapping; or a field is unknown, is the price of tokens, has no use under the policy, or
            breaks a rule.
    """
    if not isinstance(given, Mapping | None):
        raise InputError(f"search: expected a mapping of fields of search.SearchConfig, got {given!r:.100}")
    given = dict(given or {})
    known = [name for name in SearchConfig.__dataclass_fields__ if name != "cost_weight"]
    for name in given:
        if name not in known:
            raise InputError(
                f"search has no field {name!r}, but {', '.join(known)}; cost_weight is a setting beside it"
            )
    defaults: dict[str, Any] = {"policy": policy}
    if preset is None:
        defaults |= {"exploration": EXPLORATION, "choice": "value-minus-cost"}
        if given.get("policy", policy) == "paper":
            defaults["iterations"] = ITERATIONS
    return SearchConfig(**{**defaults, **(PRESETS[preset] if preset else {}), **given})

"""`corag`: search over ordered combinations, with settings that are fixed or predicted for each question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

import search
from corag.errors import InputError
from corag.rerankers.scorers import CachedScorer, score_together
from corag.rerankers.window import DEFAULT_POLICY, WindowPolicy, check_policy
from corag.selectors.base import BudgetedSelector, Choice, Problem
from corag.selectors.corag.agents import (
    DEFAULT_AGENT,
    SHIPPED_AGENT,
    AgentSource,
    Shipped,
    UsableRerankers,
    agent_embedder,
    load_agent,
    shipped_agent,
)
from corag.selectors.corag.features import MEAN_OF, feature_vectors, mean_vector
from corag.selectors.defaults import UNTRAINED, default_reranker
from corag.selectors.limits import Limits
from corag.types import Candidate, Embedder, FloatArray, Order, Reranker, ScoreOrders, TokenCounter

if TYPE_CHECKING:
    from agent import AgentPrediction

Scale = Literal["query", "raw"]

DEFAULT_SURROGATE = "minilm-pooled"

SCALE_FREE: tuple[search.Policy, ...] = ("bayesian", "beam", "greedy", "random")
"""Policies that choose the same orders when all values are shifted or stretched."""

ENDING: tuple[search.Policy, ...] = ("beam", "greedy")
"""Policies that end of themselves when no chunk fits any more."""
NO_BOUND = 10**6
"""More rounds than there are chunks."""
DEFAULT_ITERATIONS = 10
DEFAULT_COST_WEIGHT = 0.1
DEFAULT_EXPLORATION = 0.3
"""The paper's 2.4 is for rerankers that give raw logits. On values in [0, 1] it drowns every difference: with
it and 10 iterations `minilm-maxsim` selects the whole evidence of 43 of 100 HotpotQA training questions at
256 tokens, with 0.3 of 48, as many as exhaustive search."""

FLAT = 1e-6
"""Values of single candidates that differ by no more than this, or this share of the largest, differ by the
rounding of float32 models: stretched to [0, 1] they would drown what combinations are worth."""


class Corag(BudgetedSelector):
    """Searches for the ordered combination that the reranker values most.

    Args:
        reranker: Name or object; in place of the one that an agent names. Without both, the default
            of `corag.selectors.defaults`.
        policy: What is scored next; see `search.SearchConfig`. By default what the reranker names as its
            `search_policy`, such as `beam` where orders cost next to nothing, else `bayesian`, which needs the fewest
            scored orders for the same value: on 23 HotpotQA questions at 256 tokens with `minilm-cosine` it reaches
            0.9996 of the exhaustive value with 38, where `paper` reaches 0.995 with 46. With many candidates of which
            hardly two fit together it can miss the best single one. With an agent by default `paper`: what it predicts
            are settings of that search.
        iterations: Rounds of scoring; of the tree policies, nodes to expand with all their children in one batch. By
            default what an agent predicts, else 10, and for `beam` and `greedy`, which add one chunk a round and end
            of themselves, no bound.
        max_scored: The most orders to score, or None for no bound but `iterations`.
        exploration: c of the utility (paper, eq. 5); tree policies only. By default 0.3, or what an agent predicts.
        cost_weight: lambda of the utility (paper, eq. 5); tree policies only. By default 0.1, or what an agent
            predicts.
        prefilter: Share of the children of an expansion that the reranker is asked about, those that a surrogate ranks
            highest; 1 is exact and asks no surrogate. Policy `bayesian` starts from the surrogate's best for any share
            below 1, and learns how far to trust it; see `search.SearchConfig`.
        surrogate: Name or object: ranks orders at next to no cost, on any scale, for `prefilter` below 1.
        scale: How values enter the search. `query`: shifted and stretched so that the single candidates of
            this query span [0, 1], which makes c and lambda mean the same for every reranker. `raw`: as they
            are. Policies to which this makes no difference leave it out, because finding the scale takes the value
            of every single candidate.
        window: What becomes of orders that are longer than the reranker's window; see `corag.rerankers.window`.
            Under `forbid`, where the window binds, a cost in the utility is the larger share of budget or window.
        agent: A checkpoint folder or a loaded agent; it then predicts reranker, iterations, c and lambda for
            each question. None or `none`: all is as given above. `default`: the agent that ships with the project, if
            it can be used here and nothing above from `reranker` to `prefilter` is given; where it cannot, the trace
            says why under `no_agent`.
        strict: Whether it is an error when a reranker that the agent names, or the agent by default, cannot be used
            here. Else a warning says so, and the next most probable reranker is taken, or no agent.
        embedder: Embeds questions for the agent; by default the one that its checkpoint names.
        tokens: The answering model's token counter.
    """

    name = "corag"

    def __init__(
        self,
        *,
        reranker: str | Reranker | None = None,
        policy: search.Policy | None = None,
        iterations: int | None = None,
        max_scored: int | None = None,
        exploration: float | None = None,
        cost_weight: float | None = None,
        prefilter: float = 1.0,
        surrogate: str | Reranker | None = None,
        scale: Scale = "query",
        window: WindowPolicy = DEFAULT_POLICY,
        agent: AgentSource = DEFAULT_AGENT,
        strict: bool = False,
        embedder: Embedder | None = None,
        tokens: TokenCounter | None = None,
    ) -> None:
        super().__init__(tokens=tokens)
        if scale not in get_args(Scale):
            raise InputError(f"scale is {scale!r}; it must be one of {', '.join(get_args(Scale))}")
        self.scale = scale
        self.window = check_policy(window)
        given = (reranker, policy, iterations, max_scored, exploration, cost_weight)
        self._shipped: Shipped | None = None
        if agent != DEFAULT_AGENT:
            self.agent = load_agent(agent, strict=strict and reranker is None)
        elif prefilter == 1 and all(setting is None for setting in given):
            self._shipped = shipped_agent(embedder, strict=strict)
            self.agent, embedder = self._shipped.agent, self._shipped.embedder
        else:
            self.agent = None
        self._given_embedder = embedder
        self._rerankers = UsableRerankers(strict=strict)
        self._reranker = self._rerankers.get(reranker) if isinstance(reranker, str) else reranker
        if self._reranker is None and self.agent is None:
            self._reranker = self._rerankers.get(default_reranker())
        policy = policy or self._default_policy(prefilter)
        if iterations is None:
            iterations = NO_BOUND if policy in ENDING else DEFAULT_ITERATIONS
        self.config = search.SearchConfig(
            policy=policy,
            iterations=iterations,
            max_scored=max_scored,
            exploration=DEFAULT_EXPLORATION if exploration is None else exploration,
            cost_weight=DEFAULT_COST_WEIGHT if cost_weight is None else cost_weight,
            prefilter=prefilter,
        )
        self._surrogate: Reranker | None = None
        if prefilter < 1:
            surrogate = DEFAULT_SURROGATE if surrogate is None else surrogate
            self._surrogate = self._rerankers.get(surrogate) if isinstance(surrogate, str) else surrogate

    def _default_policy(self, prefilter: float) -> search.Policy:
        if self.agent is not None:
            return "paper"
        wanted: search.Policy = getattr(self._reranker, "search_policy", None) or "bayesian"
        return wanted if prefilter == 1 else "bayesian"

    @cached_property
    def _embedder(self) -> Embedder:
        assert self.agent is not None
        return agent_embedder(self.agent, self._given_embedder)

    def predict(self, query: str, candidates: Sequence[Candidate] = ()) -> AgentPrediction | None:
        """Return what the agent says about a question; None without an agent.

        Args:
            query: The question.
            candidates: What the retriever offers for it, best first; an agent may look at the question alone.
        """
        return self._predict_many([Problem(query, candidates, self.tokens)])[0]

    def _choose(self, problem: Problem, budget_tokens: int) -> Choice:
        plan = self._plan(self._predict_many([problem])[0])
        return search_choices([problem], [budget_tokens], [plan], self.scale)[0]

    def _choose_many(self, problems: Sequence[Problem], budget_tokens: int) -> Sequence[Choice | None]:
        budgets = [budget_tokens + problem.separator_tokens for problem in problems]
        plans = [self._plan(prediction) for prediction in self._predict_many(problems)]
        return search_choices(problems, budgets, plans, self.scale)

    def _predict_many(self, problems: Sequence[Problem]) -> Sequence[AgentPrediction | None]:
        if self.agent is None or not problems:
            return [None] * len(problems)
        predictions = self.agent.predict(_features(problems, self._embedder, self.agent.config.features))
        assert isinstance(predictions, list)
        return predictions

    def _plan(self, prediction: AgentPrediction | None) -> Plan:
        """Return how to search: as predicted, or with the fixed settings."""
        if prediction is None:
            assert self._reranker is not None
            reason = {} if self._shipped is None else {"no_agent": self._shipped.reason}
            return Plan(self._reranker, self.config, self.window, self._surrogate, reason)
        config = replace(
            self.config,
            iterations=prediction.iterations,
            exploration=prediction.exploration,
            cost_weight=prediction.cost_weight,
        )
        by_default = self._shipped is not None
        trace: dict[str, Any] = {"agent": SHIPPED_AGENT} if by_default else {}
        trace["probabilities"] = dict(prediction.probabilities)
        reranker = self._reranker
        if reranker is None:
            spare = (UNTRAINED,) if by_default else ()
            reranker, passed_over = self._rerankers.predicted(prediction, spare)
            trace |= {"passed_over": passed_over} if passed_over else {}
        return Plan(reranker, config, self.window, self._surrogate, trace)


class CoragFixed(Corag):
    """The best single setting that an agent's checkpoint records: what the agent has to beat.

    Args:
        agent: A checkpoint folder, a loaded agent, or `default`: the one that ships with the project.
        scale: See `Corag`.
        window: See `Corag`.
        tokens: The answering model's token counter.
    """

    name = "corag-fixed"

    def __init__(
        self,
        *,
        agent: AgentSource,
        scale: Scale = "query",
        window: WindowPolicy = DEFAULT_POLICY,
        tokens: TokenCounter | None = None,
    ) -> None:
        loaded = load_agent(agent)
        if loaded is None:
            raise InputError(f"agent is {agent!r}; corag-fixed takes its setting from a checkpoint: give one")
        fixed = loaded.config.fixed
        if fixed is None:
            raise InputError(
                f"the checkpoint {agent!s} records no best single setting; train it again with `corag train`, "
                "or use method 'corag'"
            )
        super().__init__(
            reranker=fixed.reranker,
            policy="paper",  # what the setting was measured with
            iterations=fixed.iterations,
            exploration=fixed.exploration,
            cost_weight=fixed.cost_weight,
            scale=scale,
            window=window,
            agent=None,
            tokens=tokens,
        )


def _features(problems: Sequence[Problem], embedder: Embedder, recipe: Sequence[str]) -> NDArray[np.float32]:
    """Return the agent's feature vectors, `[n, d]`; candidates are embedded only where the recipe asks for them."""
    most = MEAN_OF if "candidates" in recipe else 0
    best = [[chunk.text for chunk in problem.chunks[:most]] for problem in problems]
    vectors = embedder.embed([problem.query for problem in problems] + [text for texts in best for text in texts])
    queries, rest = vectors[: len(problems)], vectors[len(problems) :]
    ends = np.cumsum([len(texts) for texts in best])
    means = [mean_vector(part, embedder.dimension) for part in np.split(rest, ends[:-1])]
    return feature_vectors(recipe, queries, means, [problem.similarities for problem in problems])


@dataclass(frozen=True, slots=True)
class Plan:
    """How to search one problem.

    Attributes:
        reranker: Values orders.
        config: Settings of the search.
        window: What becomes of orders that are longer than the reranker's window.
        surrogate: Ranks orders for `config.prefilter` below 1.
        trace: What to note about where they come from.
    """

    reranker: Reranker
    config: search.SearchConfig
    window: WindowPolicy = DEFAULT_POLICY
    surrogate: Reranker | None = None
    trace: Mapping[str, Any] = field(default_factory=dict)


def search_choices(
    problems: Sequence[Problem], budgets: Sequence[int], plans: Sequence[Plan], scale: Scale = "query"
) -> list[Choice]:
    """Search problems in lock-step, their orders scored in shared batches.

    Args:
        problems: Queries with their candidates; they remember values between calls.
        budgets: The most that `problem.costs` of an order may add up to, for each problem.
        plans: How to search each problem.
        scale: See `Corag`.
    """
    scorers = [problem.scorer(plan.reranker, plan.window) for problem, plan in zip(problems, plans, strict=True)]
    limits = [
        problem.limits(scorer, budget) for problem, scorer, budget in zip(problems, scorers, budgets, strict=True)
    ]
    scalings = _scalings(scorers, limits, [scale if _needs_scale(plan.config) else "raw" for plan in plans])

    def score(pairs: Sequence[tuple[int, Order]]) -> FloatArray:
        orders: dict[int, list[Order]] = {}
        for index, order in pairs:
            orders.setdefault(index, []).append(order)
        values = score_together([(scorers[index], orders[index]) for index in orders])
        # The pairs of a problem lie side by side, so its values do.
        return np.concatenate([scalings[index](found) for index, found in zip(orders, values, strict=True)])

    surrogates = [
        None if plan.surrogate is None else problem.scorer(plan.surrogate)
        for problem, plan in zip(problems, plans, strict=True)
    ]

    def rank(pairs: Sequence[tuple[int, Order]]) -> FloatArray:
        # All pairs are of one problem.
        surrogate = surrogates[pairs[0][0]]
        assert surrogate is not None
        return surrogate([order for _, order in pairs])

    given = [(of_one.costs, of_one.budget) for of_one in limits]
    results = search.search_many(given, score, [plan.config for plan in plans], rank)
    return [_choice(*found) for found in zip(results, problems, scorers, limits, plans, strict=True)]


def _choice(result: search.SearchResult, problem: Problem, scorer: CachedScorer, limits: Limits, plan: Plan) -> Choice:
    value = float(scorer([result.order])[0]) if result.order else 0.0
    singles = [(index,) for index in result.order]
    surrogate: dict[str, Any] = {}
    if plan.surrogate is not None:
        surrogate = {
            "prefilter": plan.config.prefilter,
            "surrogate": plan.surrogate.name,
            "orders_ranked": result.num_ranked,
        }
    return Choice(
        result.order,
        value,
        {
            "reranker": plan.reranker.name,
            "policy": plan.config.policy,
            "iterations": result.num_calls if plan.config.iterations == NO_BOUND else plan.config.iterations,
            **({"exploration": plan.config.exploration, "cost_weight": plan.config.cost_weight} if result.tree else {}),
            "orders_scored": result.num_scored,
            "scorer_calls": result.num_calls,
            "orders_computed": scorer.num_computed,
            "truncated": scorer.num_truncated,
            # Where the reranker is asked as little as can be, not for this either.
            **({} if surrogate and scorer.missing(singles) else {"chunk_values": scorer(singles).tolist()}),
            **surrogate,
            # Where the window binds, the tree's costs are in the unit of `limits`; the result's are tokens always.
            "result": replace(result, cost=int(problem.costs[list(result.order)].sum())),
            **problem.window_trace(scorer, limits),
            **plan.trace,
        },
    )


@dataclass(frozen=True, slots=True)
class Scaling:
    """Shifts and stretches values: the scale on which they enter the search."""

    low: float = 0.0
    spread: float = 1.0

    def __call__(self, values: FloatArray) -> FloatArray:
        """Return the values, `[n]`, on the scale."""
        return (values - self.low) / self.spread


def scaled(scorer: CachedScorer, problem: Problem, budget_tokens: int, scale: Scale) -> ScoreOrders:
    """Return the scorer on the scale on which values enter the search; see `Corag`."""
    (scaling,) = _scalings([scorer], [problem.limits(scorer, budget_tokens)], [scale])
    return lambda orders: scaling(scorer(orders))


def _scalings(scorers: Sequence[CachedScorer], limits: Sequence[Limits], scales: Sequence[Scale]) -> list[Scaling]:
    # The first expansion of a tree scores the same orders: they are remembered.
    singles = [
        [] if scale == "raw" else [(int(index),) for index in of_one.fitting]
        for of_one, scale in zip(limits, scales, strict=True)
    ]
    values = score_together(list(zip(scorers, singles, strict=True)))
    return [_scaling(of_problem) for of_problem in values]


def _needs_scale(config: search.SearchConfig) -> bool:
    return config.policy not in SCALE_FREE or config.choice != "value"


def _scaling(values: FloatArray) -> Scaling:
    if not len(values):
        return Scaling()
    low, spread = float(values.min()), float(np.ptp(values))
    return Scaling(low, spread) if spread > FLAT * max(1.0, float(np.abs(values).max())) else Scaling()

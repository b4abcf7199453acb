"""`corag`: search over ordered combinations, with settings that are fixed or predicted for each question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

import search
from corag.errors import InputError
from corag.registry import RERANKERS
from corag.registry import embedder as make_embedder
from corag.registry import reranker as make_reranker
from corag.selectors.base import BudgetedSelector, Choice, Problem
from corag.selectors.naive import DEFAULT_RERANKER
from corag.types import Embedder, FloatArray, Order, Reranker, TokenCounter

if TYPE_CHECKING:
    from agent import AgentPrediction, ConfigurationAgent

Scale = Literal["query", "raw"]

QUERY_ONLY = ("query",)
"""The feature recipe that this selector follows: the query embedding alone."""

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
        reranker: Name or object; without an agent, or in place of the one that the agent names.
        iterations: Nodes to expand, each with all its children in one batch.
        exploration: c of the utility (paper, eq. 5).
        cost_weight: lambda of the utility (paper, eq. 5).
        scale: How values enter the search. `query`: shifted and stretched so that the single candidates of
            this query span [0, 1], which makes c and lambda mean the same for every reranker. `raw`: as they
            are.
        agent: A checkpoint folder or a loaded agent; it then predicts reranker, iterations, c and lambda for
            each question.
        embedder: Embeds questions for the agent; by default the one that its checkpoint names.
        tokens: The answering model's token counter.
    """

    name = "corag"

    def __init__(
        self,
        *,
        reranker: str | Reranker | None = None,
        iterations: int = 10,
        exploration: float = DEFAULT_EXPLORATION,
        cost_weight: float = 0.1,
        scale: Scale = "query",
        agent: str | Path | ConfigurationAgent | None = None,
        embedder: Embedder | None = None,
        tokens: TokenCounter | None = None,
    ) -> None:
        super().__init__(tokens=tokens)
        if scale not in get_args(Scale):
            raise InputError(f"scale is {scale!r}; it must be one of {', '.join(get_args(Scale))}")
        self.config = search.SearchConfig(iterations=iterations, exploration=exploration, cost_weight=cost_weight)
        self.scale = scale
        self.agent = load_agent(agent)
        self._rerankers: dict[str, Reranker] = {}
        self._reranker = self._by_name(reranker) if isinstance(reranker, str) else reranker
        if self._reranker is None and self.agent is None:
            self._reranker = self._by_name(DEFAULT_RERANKER)
        self._given_embedder = embedder

    def _by_name(self, name: str) -> Reranker:
        if name not in self._rerankers:
            self._rerankers[name] = make_reranker(name)
        return self._rerankers[name]

    @cached_property
    def _embedder(self) -> Embedder:
        assert self.agent is not None
        wanted = self.agent.config.embedder
        if self._given_embedder is None:
            return make_embedder(wanted)
        if self._given_embedder.name != wanted:
            raise InputError(
                f"the agent was trained on embeddings by {wanted!r}, but the embedder given is "
                f"{self._given_embedder.name!r}; leave it out, or give corag.embedder({wanted!r})"
            )
        return self._given_embedder

    def predict(self, query: str) -> AgentPrediction | None:
        """Return what the agent says about a question; None without an agent."""
        if self.agent is None:
            return None
        prediction = self.agent.predict(self._embedder.embed([query])[0])
        assert not isinstance(prediction, list)
        return prediction

    def _choose(self, problem: Problem, budget_tokens: int) -> Choice:
        prediction = self.predict(problem.query)
        if prediction is None:
            assert self._reranker is not None
            return search_choice(problem, budget_tokens, self._reranker, self.config, self.scale)
        config = search.SearchConfig(
            iterations=prediction.iterations,
            exploration=prediction.exploration,
            cost_weight=prediction.cost_weight,
        )
        reranker = self._reranker or self._by_name(prediction.reranker)
        choice = search_choice(problem, budget_tokens, reranker, config, self.scale)
        return Choice(
            choice.order,
            choice.value,
            {**choice.trace, "probabilities": dict(prediction.probabilities)},
        )


class CoragFixed(Corag):
    """The best single setting that an agent's checkpoint records: what the agent has to beat.

    Args:
        agent: A checkpoint folder or a loaded agent.
        scale: See `Corag`.
        tokens: The answering model's token counter.
    """

    name = "corag-fixed"

    def __init__(
        self,
        *,
        agent: str | Path | ConfigurationAgent,
        scale: Scale = "query",
        tokens: TokenCounter | None = None,
    ) -> None:
        loaded = load_agent(agent)
        assert loaded is not None
        fixed = loaded.config.fixed
        if fixed is None:
            raise InputError(
                f"the checkpoint {agent!s} records no best single setting; train it again with `corag train`, "
                "or use method 'corag'"
            )
        super().__init__(
            reranker=fixed.reranker,
            iterations=fixed.iterations,
            exploration=fixed.exploration,
            cost_weight=fixed.cost_weight,
            scale=scale,
            tokens=tokens,
        )


def search_choice(
    problem: Problem,
    budget_tokens: int,
    reranker: Reranker,
    config: search.SearchConfig,
    scale: Scale = "query",
) -> Choice:
    """Search one problem with one reranker and one setting.

    Args:
        problem: The query with its candidates; remembers values between calls.
        budget_tokens: The most that `problem.costs` of the order may add up to.
        reranker: Values orders.
        config: Settings of the search.
        scale: See `Corag`.
    """
    scorer = problem.scorer(reranker)
    result = search.search(problem.costs, scaled(scorer, problem, budget_tokens, scale), budget_tokens, config)
    value = float(scorer([result.order])[0]) if result.order else 0.0
    alone = scorer([(index,) for index in result.order])
    return Choice(
        result.order,
        value,
        {
            "reranker": reranker.name,
            "iterations": config.iterations,
            "exploration": config.exploration,
            "cost_weight": config.cost_weight,
            "orders_scored": result.num_scored,
            "scorer_calls": result.num_calls,
            "orders_computed": scorer.num_computed,
            "truncated": scorer.num_truncated,
            "chunk_values": alone.tolist(),
            "result": result,
        },
    )


def scaled(
    scorer: Callable[[Sequence[Order]], FloatArray], problem: Problem, budget_tokens: int, scale: Scale
) -> Callable[[Sequence[Order]], FloatArray]:
    """Return the scorer on the scale on which values enter the search; see `Corag`."""
    singles = [(int(index),) for index in np.flatnonzero(problem.costs <= budget_tokens)]
    if scale == "raw" or not singles:
        return scorer
    values = scorer(singles)  # the first expansion scores the same orders: they are remembered
    low, spread = float(values.min()), float(np.ptp(values))
    if spread <= FLAT * max(1.0, float(np.abs(values).max())):
        return scorer
    return lambda orders: (scorer(orders) - low) / spread


def load_agent(agent: str | Path | ConfigurationAgent | None) -> ConfigurationAgent | None:
    """Return a loaded agent, whether given as such or as a checkpoint folder; check that its rerankers exist.

    Raises:
        InputError: The agent names a reranker that the registry does not have, or wants other features.
        agent.CheckpointError: The folder is not a readable checkpoint.
    """
    if agent is None:
        return None
    loaded = _load_folder(agent) if isinstance(agent, str | Path) else agent
    if loaded.config.features != QUERY_ONLY:
        raise InputError(
            f"the agent {agent!s} wants the features {', '.join(loaded.config.features)}; this version of the selector "
            f"makes {', '.join(QUERY_ONLY)} only: use another checkpoint, or a newer corag"
        )
    for name in loaded.config.rerankers:
        if name not in RERANKERS.names:
            raise InputError(
                f"the agent {agent!s} was trained with the reranker {name!r}, which is unknown here; the names "
                f"are {', '.join(RERANKERS.names)}: register it under that name, or use another checkpoint"
            )
    return loaded


def _load_folder(path: str | Path) -> ConfigurationAgent:
    import agent

    return agent.load(path)

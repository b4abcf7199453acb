"""`corag`: search over ordered combinations, with settings that are fixed or predicted for each question."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import search
from agent.config import setting_of
from corag.checks import check_choice, check_range
from corag.errors import InputError
from corag.naming import Spelling
from corag.registry import RERANKERS, trusted
from corag.registry import embedder as make_embedder
from corag.registry import tokens as make_tokens
from corag.rerankers.window import DEFAULT_POLICY, WindowPolicy, check_policy
from corag.selectors.base import BudgetedSelector, Choice
from corag.selectors.corag.agents import (
    DEFAULT_AGENT,
    NO_AGENT,
    SHIPPED_AGENT,
    AgentSource,
    Shipped,
    UsableRerankers,
    agent_embedder,
    load_agent,
    shipped_agent,
)
from corag.selectors.corag.features import agent_features
from corag.selectors.corag.routing import Prefer
from corag.selectors.corag.search import Scale, SearchPlan, search_problems
from corag.selectors.corag.settings import SearchSettings
from corag.selectors.corag.tuned import Tuned, tuned_folder
from corag.selectors.corag.tuned_choice import TunedChoice
from corag.selectors.problem import SelectionProblem
from corag.selectors.reranking import UNTRAINED, default_reranker
from corag.selectors.units import DEFAULT_MAX_UNITS, UnitProblem
from corag.text.units import SENTENCE
from corag.types import Candidate, Embedder, Reranker, Selection, TokenCounter

if TYPE_CHECKING:
    from agent import AgentPrediction
    from corag.index.search import Retrieval

DEFAULT_SURROGATE = "minilm-pooled"
MOST_THRIFT = 100.0


class Corag(BudgetedSelector):
    """Searches for the ordered combination that the reranker values most.

    Args:
        reranker: Name or object; in place of the one that an agent names. Without both, the default
            of `corag.selectors.reranking`.
        preset: `paper` or `public-code`: the search of the paper, or of the code published with it, with their settings
            (`search.PRESETS`), `scale=raw`, and, for a reranker given by name that has them, `output=logit`, for which
            these settings were chosen. `trace.details["logits"]` says whether values are logits. What is given beside a
            preset wins over it; iterations, c and lambda that an agent predicts do, too.
        policy: What is scored next; see `search.SearchConfig`. By default what the reranker names as its
            `search_policy`, such as `beam` where orders cost next to nothing, else `bayesian`, which needs the fewest
            scored orders for the same value. With many candidates of which hardly two fit together it can miss the best
            single one. With an agent by default `paper`: what it predicts are settings of that search.
        iterations: Rounds of scoring; of the tree policies, each expands a node into all its children in one batch. By
            default what an agent predicts, else 10, and for `beam` and `greedy`, which add one chunk a round and end
            when no chunk fits, no bound.
        max_scored: The most orders to score, or None for no bound but `iterations`.
        exploration: c of the utility (paper, eq. 5); tree policies only. By default 0.3, or what an agent predicts.
        cost_weight: lambda (paper, eq. 5): what a whole budget of tokens costs, in units of value on the search's
            scale. Set here, or predicted by an agent whose labels were made so, it decides the answer under every
            policy: see `choice`. Not set, it is 0.1 and only guides the walk of the tree policies.
        choice: What the answer maximises: `value`, `value-minus-cost` (value - lambda * cost / budget), or, for tree
            policies, `mean` or `utility`; see `search.SearchConfig`. By default the preset's, else `value-minus-cost`
            where `cost_weight` is set, else what an agent's labels were made with, else `value`.
        backup: What goes up the tree of policy `paper`: `best-child`, `all-children` or `utility`.
        visits: N of the utility of policy `paper`: the visits of all nodes, `total`, or of the `parent`.
        parallel: Nodes that the tree policies expand each round, in one batch.
        prefilter: Share of the children of an expansion that the reranker is asked about, those that a surrogate ranks
            highest; 1 is exact and asks no surrogate. Policy `bayesian` starts from the surrogate's best for any share
            below 1, and learns how far to trust it; see `search.SearchConfig`.
        surrogate: Name or object: ranks orders at next to no cost, on any scale, for `prefilter` below 1.
        thrift: What a token costs, as a multiple of what the reranker's values charge, where they do (the adapters
            that ship): 0 goes on as long as something fits, 2 stops early. By default 256 / budget where the budget is
            larger and reranker and search are left to this selector, else 1. With a checkpoint of `corag tune` or of a
            router it is for those of its configurations that say nothing else.
        scale: How values enter the search. `query`: shifted and stretched so that the single candidates of
            this query span [0, 1], which makes c and lambda mean the same for every reranker. `raw`: as they
            are. By default `query`, with a preset `raw`. Policies to which this makes no difference leave it out,
            because finding the scale takes the value of every single candidate.
        window: How orders longer than the reranker's window are valued; see `corag.rerankers.window`.
            Under `forbid`, where the window binds, a cost in the utility is the larger share of budget or window.
        agent: The folder of a checkpoint, or a loaded agent; it then predicts what is not given of reranker,
            iterations, c and lambda for each question. With a checkpoint of `corag tune`, or of a router over kinds of
            questions, a selector that it names chooses, and nothing above from `reranker` to `prefilter` may be given.
            None or `none`: all is as given above. `default`: the agent that ships with the project, if it can be used
            here, passages are chosen, of which it has learnt, and nothing above from `reranker` to `prefilter` is
            given; where it cannot, the trace says why under `no_agent`.
        prefer: What such a checkpoint's choice counts: `quality`, `balanced`, `tokens`, `latency`, or the price of a
            whole budget of tokens in units of quality, such as 0.1. By default as it was made.
        strict: Whether it is an error when a reranker that the agent names, or the agent by default, cannot be used
            here. Else a warning says so, and the next most probable reranker is taken, or no agent.
        embedder: Embeds questions for the agent; by default the one that its checkpoint names.
        tokens: Counts tokens as the answering model does: name or object; MiniLM's by default.
        unit: See `BudgetedSelector`. By default `auto` where reranker, search and agent are left to this selector, else
            `passage`, of which the rerankers of others have learnt.
        max_units: Likewise.
    """

    name = "corag"
    max_refunds = 1

    def __init__(
        self,
        *,
        reranker: str | Reranker | None = None,
        preset: search.Preset | None = None,
        policy: search.Policy | None = None,
        iterations: int | None = None,
        max_scored: int | None = None,
        exploration: float | None = None,
        cost_weight: float | None = None,
        choice: search.Choice | None = None,
        backup: search.Backup | None = None,
        visits: search.Visits | None = None,
        parallel: int | None = None,
        prefilter: float = 1.0,
        surrogate: str | Reranker | None = None,
        thrift: float | None = None,
        scale: Scale | None = None,
        window: WindowPolicy = DEFAULT_POLICY,
        agent: AgentSource = DEFAULT_AGENT,
        prefer: Prefer | None = None,
        strict: bool = False,
        embedder: Spelling | Embedder | None = None,
        tokens: Spelling | TokenCounter | None = None,
        unit: str | None = None,
        max_units: int = DEFAULT_MAX_UNITS,
    ) -> None:
        self._settings = SearchSettings(
            preset=preset,
            policy=policy,
            iterations=iterations,
            max_scored=max_scored,
            exploration=exploration,
            cost_weight=cost_weight,
            choice=choice,
            backup=backup,
            visits=visits,
            parallel=parallel,
            prefilter=prefilter,
        )
        plain = reranker is None and self._settings.plain
        given_unit = unit
        if unit is None:
            unit = "auto" if plain and agent == DEFAULT_AGENT else "passage"
        super().__init__(unit=unit, max_units=max_units, tokens=make_tokens(tokens or "minilm"))
        self.scale: Scale = self._settings.scale if scale is None else scale
        check_choice("scale", self.scale, Scale)
        self.window = check_policy(window)
        if thrift is not None:
            check_range("thrift", thrift, 0, MOST_THRIFT, "1 is as the reranker was made, 0 spends the budget")
        # What is chosen by settings of one's own stays as these say.
        self.thrift = thrift if thrift is not None or plain else 1.0
        embedder = None if embedder is None else make_embedder(embedder)
        self._tuned: TunedChoice | None = None
        if (folder := tuned_folder(agent)) is not None:
            if not plain or given_unit is not None:
                raise InputError(
                    f"agent {str(agent)!r} is a checkpoint of corag tune, which chose selector, reranker and unit; "
                    "leave these settings out, or leave out the agent"
                )
            self._tuned = TunedChoice(
                Tuned.load(folder), self.tokens, embedder, prefer=prefer, thrift=thrift, strict=strict
            )
            agent = NO_AGENT
        elif prefer is not None:
            raise InputError(
                f"prefer is {prefer!r}, but agent {str(agent)!r:.100} is no checkpoint of corag tune or of a router, "
                "which alone know what configurations cost; give one as agent, or leave out prefer and set thrift, "
                "such as 1.5 for fewer tokens"
            )
        self._shipped: Shipped | None = None
        if agent != DEFAULT_AGENT:
            self.agent = load_agent(agent, strict=strict and reranker is None)
        elif self._unit.size is None and plain:
            self._shipped = shipped_agent(embedder, strict=strict)
            self.agent, embedder = self._shipped.agent, self._shipped.embedder
        else:
            self.agent = None
        self._given_embedder = embedder
        self._rerankers = UsableRerankers(strict=strict, offered=self._settings.offered)
        self._reranker = None if reranker is None else self._rerankers.get(reranker)
        if thrift is not None and self._reranker is not None and not getattr(self._reranker, "charges_tokens", False):
            raise InputError(
                f"thrift is {thrift}, but reranker {self._reranker.name!r} charges nothing for tokens; leave it out, "
                "or set cost_weight, the price of a whole budget"
            )
        # Each question decides the unit, and neither a reranker is given nor an agent that names one.
        by_default = reranker is None and (self.agent is None or self._shipped is not None)
        self._decides = self._unit.auto and by_default
        # What a checkpoint of `corag tune` chose has rerankers of its own.
        if self._reranker is None and self.agent is None and self._tuned is None:
            self._reranker = self._rerankers.get(default_reranker(self._unit))
        self.config = self._settings.config(self._reranker, has_agent=self.agent is not None)
        self._surrogate: Reranker | None = None
        if prefilter < 1:
            self._surrogate = self._rerankers.get(DEFAULT_SURROGATE if surrogate is None else surrogate)

    @cached_property
    def _of_units(self) -> tuple[Reranker, search.SearchConfig]:
        """The default reranker of what is smaller than a passage, and how it searches."""
        reranker = self._rerankers.get(default_reranker(SENTENCE))
        return reranker, self._settings.config(reranker)

    @cached_property
    def _embedder(self) -> Embedder:
        assert self.agent is not None
        return agent_embedder(self.agent, self._given_embedder)

    def predict(self, query: str, candidates: Sequence[Candidate] = ()) -> AgentPrediction | None:
        """Return what the agent says about a question; None without an agent.

        The candidates stand best first; an agent may look at the question alone.
        """
        # No prediction depends on the budget.
        return self._predict_many([SelectionProblem(query, candidates, self.tokens, budget_tokens=1)])[0]

    def _choose(self, problem: SelectionProblem) -> Choice:
        return self._choose_many([problem])[0]

    @property
    def wanted_retrieval(self) -> Retrieval | None:
        """How candidates are best found in an index, where a checkpoint says so."""
        return None if self._tuned is None else self._tuned.retrieval

    def problem(self, query: str, candidates: Sequence[Candidate], budget_tokens: int) -> SelectionProblem:
        """Return what is chosen from; see `BudgetedSelector`."""
        if self._tuned is not None:
            return self._tuned.problem(query, candidates, budget_tokens)
        return super().problem(query, candidates, budget_tokens)

    def select_from(self, problem: SelectionProblem, choice: Choice | None = None) -> Selection:
        """Choose from a problem that is set up already; see `BudgetedSelector`."""
        return super().select_from(problem, choice) if self._tuned is None else self._tuned.selection(problem, choice)

    def _choose_many(self, problems: Sequence[SelectionProblem]) -> list[Choice]:
        if self._tuned is not None:
            return self._tuned.choices(problems)
        asked = [problem for problem in problems if not self._is_by_default(problem)]
        predictions = iter(self._predict_many(asked))
        plans = [self._plan(one, None if self._is_by_default(one) else next(predictions)) for one in problems]
        found = search_problems(problems, plans, self.scale)
        # Once more with what chosen units save by sharing titles; most of the values are remembered.
        saved = {row: one.summed - one.cost for row, one in enumerate(found) if one.completes}
        rows = [row for row, tokens in saved.items() if tokens > 0]
        others = [problems[row].with_refund(saved[row]) for row in rows]
        for row, other in zip(rows, search_problems(others, [plans[row] for row in rows], self.scale), strict=True):
            if other.cost <= problems[row].budget_tokens:
                found[row] = other
        return [one.choice() for one in found]

    def _predict_many(self, problems: Sequence[SelectionProblem]) -> Sequence[AgentPrediction | None]:
        if self.agent is None or not problems:
            return [None] * len(problems)
        predictions = self.agent.predict(
            agent_features([problem.passages for problem in problems], self._embedder, self.agent.config.features)
        )
        assert isinstance(predictions, list)
        return predictions

    def _is_by_default(self, problem: SelectionProblem) -> bool:
        """Whether a problem gets the default reranker of units, about which no agent is asked."""
        return self._decides and isinstance(problem, UnitProblem)

    def _plan(self, problem: SelectionProblem, prediction: AgentPrediction | None) -> SearchPlan:
        """Return how to search: as predicted, or with the fixed settings."""
        trace: dict[str, Any]
        if self._is_by_default(problem):
            return SearchPlan(*self._of_units, self.window, self._surrogate, thrift=self.thrift)
        if prediction is None:
            assert self._reranker is not None
            trace = self._settings.trace(self._reranker)
            trace |= {} if self._shipped is None else {"no_agent": self._shipped.reason}
            return SearchPlan(self._reranker, self.config, self.window, self._surrogate, trace, self.thrift)
        assert self.agent is not None
        config = self._settings.predicted(self.config, prediction)
        by_default = self._shipped is not None
        trace = {"agent": SHIPPED_AGENT} if by_default else {}
        trace["probabilities"] = dict(prediction.probabilities)
        reranker = self._reranker
        if reranker is None:
            spare = (UNTRAINED,) if by_default else ()
            reranker, passed_over = self._rerankers.predicted(prediction, spare)
            trace |= {"passed_over": passed_over} if passed_over else {}
        trace |= self._settings.trace(reranker)
        return SearchPlan(reranker, config, self.window, self._surrogate, trace, self.thrift)


class _FixedCorag(Corag):
    name = "corag-fixed"


def corag_fixed(
    *,
    agent: AgentSource,
    scale: Scale = "query",
    window: WindowPolicy = DEFAULT_POLICY,
    tokens: Spelling | TokenCounter | None = None,
) -> Corag:
    """Return `corag` with the best single setting that an agent's checkpoint records: what the agent has to beat.

    For the settings see `Corag`.

    Raises:
        InputError: There is no agent, or its checkpoint records no such setting.
    """
    loaded = load_agent(agent)
    if loaded is None:
        raise InputError(f"agent is {agent!r}; corag-fixed takes its setting from a checkpoint: give one with --agent")
    fixed = loaded.config.fallback
    reranker = setting_of(fixed.configuration, "reranker")
    if reranker is None:
        raise InputError(
            f"the checkpoint {agent!s} records no best single setting; train it again with `corag train`, "
            "or use method 'corag'"
        )
    return _FixedCorag(
        reranker=trusted(RERANKERS, reranker, f"the checkpoint {agent!s}"),
        policy="paper",  # the setting was measured with it
        iterations=fixed.iterations,
        exploration=fixed.exploration,
        cost_weight=fixed.cost_weight,
        scale=scale,
        window=window,
        agent=None,
        tokens=tokens,
    )

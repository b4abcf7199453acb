"""`corag`: search over ordered combinations, with settings that are given or named by an agent for each question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from corag.checks import check_choice, check_range
from corag.errors import InputError
from corag.naming import Spelling
from corag.registry import RERANKERS
from corag.registry import embedder as make_embedder
from corag.registry import tokens as make_tokens
from corag.rerankers.window import DEFAULT_POLICY, WindowPolicy, check_policy
from corag.selectors.base import BudgetedSelector, Choice
from corag.selectors.corag.agents import DEFAULT_AGENT, NO_AGENT, SHARED, AgentSelectors, AgentSource, load_agent
from corag.selectors.corag.search import Search, search_config
from corag.selectors.price import default_cost_weight
from corag.selectors.problem import SelectionProblem
from corag.selectors.reranking import default_reranker
from corag.selectors.units import DEFAULT_MAX_UNITS
from corag.types import Candidate, Embedder, Reranker, Selection, TokenCounter
from search import PRESETS, Preset, SearchConfig

if TYPE_CHECKING:
    from agent import AgentPrediction, ConfigurationAgent

LOGITS: Mapping[str, Any] = {"output": "logit"}
"""What a preset offers to a reranker that is given by name: its numbers were chosen for logits."""


class Corag(BudgetedSelector):
    """Searches for the ordered combination that is worth most, its tokens paid for.

    Args:
        unit: What is chosen; see `BudgetedSelector`. By default sentences; where a reranker or a preset is given,
            passages, of which the rerankers of others have learnt.
        max_units: Likewise.
        reranker: Values combinations: name or object; by default that of `corag.selectors.reranking`.
        preset: `paper` or `public-code`: the search of the paper, or of the code published with it, with their settings
            (`search.PRESETS`) on values as they are and, for a reranker given by name that has them, logits
            (`output=logit`). `trace.details["logits"]` says whether values are logits. lambda is then that of eq. 5,
            the price of the whole budget, 0.1 unless given.
        search: Settings of the search, laid over the preset or the defaults: a mapping of fields of
            `search.SearchConfig`, or one whose fields that differ from its defaults count. By default the policy is
            what the reranker names as its `search_policy`, such as `beam` where values cost next to nothing, else
            `bayesian`, which needs the fewest scored orders for the same value.
        cost_weight: lambda: what 256 tokens cost, whatever the budget is; by default 0.1, for passages 0.03. The answer
            is the order of the highest value - lambda * tokens / 256. Values are probabilities where the reranker gives
            these, else the single candidates of a question span 0 to 1.
        window: How orders longer than the reranker's window are valued; see `corag.rerankers.window`.
            Under `forbid`, where the window binds, a cost in the search is the larger share of budget or window.
        agent: The folder of a checkpoint, the name of one that ships, or a loaded agent: it names the configuration for
            each question, so that nothing above from `unit` to `cost_weight` may be given. None or `none`: no agent.
        embedder: Embeds questions for the agent; by default the one that its checkpoint names.
        tokens: Counts tokens as the answering model does: name or object; MiniLM's by default.
    """

    name = "corag"

    def __init__(
        self,
        *,
        unit: str | None = None,
        max_units: int = DEFAULT_MAX_UNITS,
        reranker: Spelling | Reranker | None = None,
        preset: Preset | None = None,
        search: SearchConfig | Mapping[str, Any] | None = None,
        cost_weight: float | None = None,
        window: WindowPolicy = DEFAULT_POLICY,
        agent: AgentSource = None,
        embedder: Spelling | Embedder | None = None,
        tokens: Spelling | TokenCounter | None = None,
    ) -> None:
        if preset is not None:
            check_choice("preset", preset, PRESETS)
        if cost_weight is not None:
            check_range("cost_weight", cost_weight, 0, 100, "0 to 0.5 are usual")
        chosen = {"unit": unit, "reranker": reranker, "preset": preset, "search": search, "cost_weight": cost_weight}
        given = [name for name, value in chosen.items() if value is not None]
        super().__init__(
            unit=unit or ("sentence" if reranker is None and preset is None else "passage"),
            max_units=max_units,
            tokens=make_tokens(tokens or "minilm"),
        )
        self.preset = preset
        self.window = check_policy(window)
        self.cost_weight = cost_weight
        self._agent: AgentSelectors | None = None
        if agent is None or agent in (NO_AGENT, DEFAULT_AGENT):
            offered = {**SHARED.get(), **({} if preset is None else LOGITS)}
            made = RERANKERS.offer(default_reranker(self._unit) if reranker is None else reranker, offered)
            config = search_config(made, preset, _as_mapping(search))
            if cost_weight is None:
                cost_weight = default_cost_weight(self._unit) if preset is None else config.cost_weight
            self._reranker, self._search = made, Search(made, config, cost_weight, preset, self.window)
            return
        if given:
            raise InputError(
                f"{given[0]} is given beside agent {str(agent)!r:.100}, which names it for each question; leave one out"
            )
        self._agent = AgentSelectors(agent, self.tokens, None if embedder is None else make_embedder(embedder))

    @property
    def agent(self) -> ConfigurationAgent | None:
        """The agent that names a configuration for each question, if there is one."""
        return None if self._agent is None else self._agent.agent

    def search_of(self, problem: SelectionProblem) -> SearchConfig:
        """Return the settings of the search of a problem, with lambda for its whole budget; without an agent."""
        return self._search.config_for(problem)

    def predict(self, query: str, candidates: Sequence[Candidate] = ()) -> AgentPrediction | None:
        """Return the agent's prediction for a question, with its candidates best first; None without an agent."""
        if self._agent is None:
            return None
        # No prediction depends on the budget.
        return self._agent.predict([SelectionProblem(query, candidates, self.tokens, budget_tokens=1)])[0]

    def problem(self, query: str, candidates: Sequence[Candidate], budget_tokens: int) -> SelectionProblem:
        """Return what is chosen from; see `BudgetedSelector`."""
        if self._agent is not None:
            return self._agent.problem(query, candidates, budget_tokens)
        return super().problem(query, candidates, budget_tokens)

    def select_from(self, problem: SelectionProblem, choice: Choice | None = None) -> Selection:
        """Choose from a problem that is set up already; see `BudgetedSelector`."""
        if self._agent is None:
            return super().select_from(problem, choice)
        # The trace says which selector the agent named.
        return replace(self._agent.selection(problem, choice), method=self.name)

    def _choose(self, problem: SelectionProblem) -> Choice:
        return self._choose_many([problem])[0]

    def _choose_many(self, problems: Sequence[SelectionProblem]) -> list[Choice]:
        if self._agent is not None:
            return self._agent.choices(problems)
        return self._search.choices(problems)


def _as_mapping(given: SearchConfig | Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the fields that are set."""
    if given is None:
        return {}
    if isinstance(given, SearchConfig):
        usual = SearchConfig()
        names = (field.name for field in fields(SearchConfig))
        return {name: getattr(given, name) for name in names if getattr(given, name) != getattr(usual, name)}
    if not isinstance(given, Mapping):
        raise InputError(f"search: expected a search.SearchConfig or a mapping of its fields, got {given!r:.100}")
    return given


class _FixedCorag(Corag):
    name = "corag-fixed"


def corag_fixed(*, agent: AgentSource, tokens: Spelling | TokenCounter | None = None) -> Corag:
    """Return `corag` with the best single configuration that a checkpoint records, which its agent has to beat.

    For the settings see `Corag`.

    Raises:
        InputError: There is no agent.
    """
    if agent is None or agent == NO_AGENT:
        raise InputError(f"agent: expected a checkpoint, got {agent!r}; use --agent to name one for corag-fixed")
    from agent import AgentConfig, ConfigurationAgent, Fallback

    best = str(load_agent(agent).config.fallback)
    return _FixedCorag(agent=ConfigurationAgent(AgentConfig((best,), Fallback(best))), tokens=tokens)

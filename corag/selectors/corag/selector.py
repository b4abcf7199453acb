"""`corag`: search over ordered combinations, with what the user leaves open named by an agent for each question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from corag.checks import check_range
from corag.errors import InputError
from corag.naming import Spelling
from corag.registry import embedder as make_embedder
from corag.registry import tokens as make_tokens
from corag.rerankers.window import DEFAULT_POLICY, WindowPolicy
from corag.selectors.base import BudgetedSelector, Choice
from corag.selectors.corag.agents import DEFAULT_AGENT, AgentSelectors, AgentSource, decides, fixed_configuration
from corag.selectors.corag.search import SearchSelector, check_search
from corag.selectors.order import PromptOrder
from corag.selectors.problem import DEFAULT_MAX_UNITS, SelectionProblem
from corag.types import Candidate, Embedder, Reranker, Selection, TokenCounter
from search import Preset, SearchConfig

if TYPE_CHECKING:
    from agent import AgentPrediction, ConfigurationAgent

COMPLETE = ("unit", "reranker", "cost_weight")
"""What a configuration has to name; `SearchSelector` has the defaults of all else."""


class Corag(BudgetedSelector):
    """Searches for the ordered combination with the highest value, net of the price of its tokens.

    What is not given of unit, reranker and lambda an agent names for each question; whatever is given stays as it is.
    Without an agent its best single configuration holds. A preset is complete: what is not given is as published.

    Args:
        unit: What is chosen; see `BudgetedSelector`.
        max_units: Likewise.
        order: Likewise.
        reranker: Values combinations: name or object.
        cost_weight: lambda, the price of 256 tokens; see `SearchSelector`, as for the next.
        preset: `paper` or `public-code`.
        search: Settings of the search.
        window: How orders longer than the reranker's window are valued; see `corag.rerankers.window`.
        keep: Promise: the share, from 0 to 1, of what the configuration that holds most would hold of the evidence that
            the selection is to hold in expectation. By default 0.98.
        agent: `default`, the shipped one; a folder that `corag train` or `tune` wrote; `owner/name` on the Hugging Face
            hub; a loaded agent; or `none` or None.
        embedder: Embeds questions for the agent; by default the one that its checkpoint names.
        tokenizer: Counts tokens as the answering model does: name or object; MiniLM's by default.

    Raises:
        InputError: A setting breaks a rule; or `keep` is given, but nothing is left for an agent to name, or the agent
            makes no promises.
    """

    name = "corag"

    def __init__(
        self,
        *,
        unit: str | None = None,
        max_units: int = DEFAULT_MAX_UNITS,
        order: PromptOrder = "value",
        reranker: Spelling | Reranker | None = None,
        cost_weight: float | None = None,
        preset: Preset | None = None,
        search: SearchConfig | Mapping[str, Any] | None = None,
        window: WindowPolicy = DEFAULT_POLICY,
        keep: float | None = None,
        agent: AgentSource = DEFAULT_AGENT,
        embedder: Spelling | Embedder | None = None,
        tokenizer: Spelling | TokenCounter | None = None,
    ) -> None:
        named: dict[str, Any] = {"unit": unit, "reranker": reranker, "cost_weight": cost_weight}
        others: dict[str, Any] = {"max_units": max_units, "order": order, "search": search, "window": window}
        defaults = {"max_units": DEFAULT_MAX_UNITS, "order": "value", "search": None, "window": DEFAULT_POLICY}
        given = {name: value for name, value in named.items() if value is not None}
        given |= {name: value for name, value in others.items() if value != defaults[name]}
        is_open = preset is None and decides(agent) and not given.keys() >= set(COMPLETE)
        if keep is not None:
            check_range("keep", keep, 0, 1, "typical: 0.95 to 1")
            if not is_open:
                raise InputError(
                    f"keep is {keep}, but {'a preset' if preset else 'unit, reranker and cost_weight'} or agent=none "
                    "disables the agent; leave keep out, or one of these"
                )
        complete = given if is_open or preset is not None else {**fixed_settings(given), **given}
        self.window = window
        super().__init__(
            unit=complete.get("unit", "passage"),
            max_units=max_units,
            order=order,
            tokenizer=make_tokens(tokenizer or "minilm"),
        )
        self._chooser: AgentSelectors | SearchSelector
        if is_open:
            check_search(cost_weight, preset, search, window)  # now, not with the first question
            embeds = None if embedder is None else make_embedder(embedder)
            self._chooser = AgentSelectors(agent, self.tokenizer, embeds, given, keep)
        else:
            self._chooser = SearchSelector(**complete, preset=preset, tokenizer=self.tokenizer)

    @property
    def agent(self) -> ConfigurationAgent | None:
        """The agent that names a configuration for each question, if there is one."""
        return self._chooser.agent if isinstance(self._chooser, AgentSelectors) else None

    def search_of(self, problem: SelectionProblem) -> SearchConfig:
        """Return the settings of the search of a problem, with lambda for its whole budget."""
        if isinstance(self._chooser, SearchSelector):
            return self._chooser.search_of(problem)
        selector = self._chooser.selector(problem)
        if not isinstance(selector, SearchSelector):
            raise InputError(f"the agent names {selector}, which does not search; set agent=none")
        return selector.search_of(problem)

    def predict(self, query: str, candidates: Sequence[Candidate], budget_tokens: int) -> AgentPrediction | None:
        """Return what the agent says of a question, with its candidates best first; None without an agent.

        What is given to the selector replaces what the prediction says of it.
        """
        if not isinstance(self._chooser, AgentSelectors):
            return None
        problem = SelectionProblem(query, candidates, self.tokenizer, budget_tokens).prefiltered()
        return self._chooser.predict([problem])[0]

    def prepared(self, passages: SelectionProblem) -> SelectionProblem:
        """Return what is chosen from; see `BudgetedSelector`."""
        return self._chooser.prepared(passages)

    def select_from(self, problem: SelectionProblem, choice: Choice | None = None) -> Selection:
        """Choose from a problem that is set up already; see `BudgetedSelector`."""
        if isinstance(self._chooser, SearchSelector):
            return replace(self._chooser.select_from(problem, choice), method=self.name)
        selection = self._chooser.selector(problem).select_from(problem, choice)
        return replace(selection, method=self.name, trace=self._chooser.explained(problem, selection.trace))

    def _choose_many(self, problems: Sequence[SelectionProblem]) -> Sequence[Choice]:
        if isinstance(self._chooser, SearchSelector):
            return self._chooser._choose_many(problems)
        return self._chooser.choices(problems)


def fixed_settings(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a configuration has where neither user nor agent says otherwise.

    It is the best single configuration of the shipped agent; if all that it names is given, nothing is read.
    """
    return {} if given.keys() >= set(COMPLETE) else fixed_configuration().settings

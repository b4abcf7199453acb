"""`corag`: search over ordered combinations, by the best single configuration or by what an agent names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from corag.checks import check_choice
from corag.registry import EMBEDDERS
from corag.rerankers.window import DEFAULT_POLICY, WindowPolicy
from corag.selectors.base import BudgetedSelector, Choice, checked
from corag.selectors.corag.agents import AgentSelectors, AgentSource, decides
from corag.selectors.corag.search import SearchSelector, SearchSettings, search_config
from corag.selectors.problem import SelectionProblem
from corag.types import Candidate, Embedder, Reranker, Selection

if TYPE_CHECKING:
    from agent import AgentPrediction

COMPLETE = ("unit", "reranker", "cost_weight")
"""What a configuration has to name; `SearchSelector` has the defaults of all else."""
SINGLE: Mapping[str, Any] = MappingProxyType({"unit": "sentence", "reranker": "fused", "keep": 0.98})
"""The best single configuration on kinds of questions that the value did not learn from."""
GIVEN = (*COMPLETE, "keep", "max_units", "order", "search", "window")
"""Settings of the selector that a configuration has, too; those that the user gives replace it."""


@dataclass(kw_only=True, eq=False)
class Corag(SearchSettings, BudgetedSelector):
    """Searches for the ordered combination with the highest value, net of the price of its tokens.

    Without an agent, what is not given of unit, reranker and promise is that of the best single configuration. An agent
    names unit, reranker and search for each question; whatever is given stays as it is. A preset is complete: what is
    not given is as published.

    Args:
        reranker: Values combinations: name or object.
        window: How orders longer than the reranker's window are valued; see `corag.rerankers.window`.
        agent: `none` or None; a folder that `corag train` or `tune` wrote; `owner/name` on the Hugging Face hub; or a
            loaded agent. Afterwards the loaded one, None if there is nothing for it to name.
        embedder: Embeds questions for the agent; by default the one that its checkpoint names.

    Raises:
        InputError: A setting breaks a rule.
    """

    unit: str | None = None  # type: ignore[assignment]  # a text once it is built
    reranker: str | Reranker | None = None
    window: WindowPolicy = checked(DEFAULT_POLICY, check_choice, names=WindowPolicy)
    agent: AgentSource = None
    embedder: str | Embedder | None = None

    def __post_init__(self) -> None:
        values = {one.name: getattr(self, one.name) for one in fields(self) if one.name in GIVEN}
        given = {name: value for name, value in values.items() if value != getattr(type(self), name)}
        is_open = self.preset is None and decides(self.agent) and not given.keys() >= set(COMPLETE)
        complete = given if is_open or self.preset is not None else completed(given)
        self.unit = complete.get("unit", "passage")
        super().__post_init__()
        search_config("paper", self.preset, self.search)  # refused now, not with the first question
        self._chooser: AgentSelectors | SearchSelector
        if is_open:
            embeds = None if self.embedder is None else EMBEDDERS.make(self.embedder)
            self._chooser = AgentSelectors(self.agent, self.tokenizer, embeds, given)
            self.agent = self._chooser.agent
        else:
            self._chooser = SearchSelector(**complete, preset=self.preset, tokenizer=self.tokenizer)
            self.agent = None

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
        return replace(self._chooser.select_from(problem, choice), method=self.name)

    def _choose_many(self, problems: Sequence[SelectionProblem]) -> list[Choice]:
        return self._chooser._choose_many(problems)


def completed(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with those that are not given: of the best single configuration, or, for another reranker, plain.

    The promise of the best single configuration is about its own value: with another reranker, or a price of tokens,
    there is none unless it is given.
    """
    if "reranker" in given:
        return {"unit": "passage", "cost_weight": 0.0, **given}
    price = {"keep": None} if "cost_weight" in given else {}
    return {**SINGLE, **price, **given}

"""The methods of a comparison by name, with settings of their own: `top-k(k=3)`, `car(method=dbscan)`, or `all`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import corag
from common.configuration import Configuration, parse, split_parts
from corag.errors import InputError, MissingExtraError
from corag.registry import RERANKERS, SELECTORS
from corag.selectors.base import BudgetedSelector
from corag.selectors.corag.agents import decides
from corag.selectors.corag.search import LOGITS
from corag.selectors.problem import SelectionProblem
from corag.types import Candidate, Reranker, Selection, Selector

ALL = "all"
"""Every registered selector that can run."""
FILLING = "naive(reranker=minilm-softsim)"
"""What fills the budget."""


class Methods(NamedTuple):
    """Selectors by label, and what of `all` cannot run here, with the reason."""

    selectors: Mapping[str, Selector]
    left_out: Mapping[str, str]


def make_methods(
    methods: str | tuple[str, ...], offered: Mapping[str, Any], shared_reranker: Callable[[str], Reranker] | None = None
) -> Methods:
    """Build selectors; of `all`, those that need a package that is not installed are left out.

    Args:
        methods: Methods, separated by commas; `all` stands for every selector that can run.
        offered: Settings for every selector that takes them, such as `tokens`, `reranker`, `agent`; those that are None
            are left out. Settings written behind a method's name replace them.
        shared_reranker: Returns the reranker of a name, the same for all selectors: its cache serves all, so that their
            latencies cannot be compared. By default each selector has its own.
    """
    named = split_parts(methods)
    if not named or len(set(named)) < len(named):
        raise InputError(f"methods is {methods!r}; name at least one of {', '.join(SELECTORS.names)}, or {ALL}, once")
    selectors: dict[str, Selector] = {}
    left_out: dict[str, str] = {}
    for text in named:
        for name in SELECTORS.names if text == ALL else [text]:
            try:
                selectors[name] = _built(parse(name), offered, shared_reranker)
            except MissingExtraError as error:
                if text != ALL:
                    raise
                left_out[name] = str(error)
    return Methods(selectors, left_out)


def check_used(methods: Iterable[str], given: Mapping[str, Any]) -> None:
    """Raise `InputError` for a setting that is given and that no method takes, or that each has set by itself."""
    named = [name for text in methods for name in (SELECTORS.names if text == ALL else [text])]
    open_ = {setting for one in named for setting in set(SELECTORS.settings(one)) - parse(one).settings.keys()}
    for name, value in given.items():
        if name not in open_:
            takers = [one for one in SELECTORS.names if name in SELECTORS.settings(one)]
            raise InputError(
                f"{name} is {value!r}, but none of the methods {', '.join(named)} takes it; leave it out, or "
                f"add one that does, such as {takers[0]}"
            )


def _built(method: Configuration, offered: Mapping[str, Any], rerankers: Callable[[str], Reranker] | None) -> Selector:
    takes = set(SELECTORS.settings(str(method)))
    if "agent" in takes:
        # An agent names the embedder that it was trained with.
        takes.discard("embedder")
    if decides(method.settings.get("agent")):
        # A reranker would take the place of the method's own agent.
        takes.discard("reranker")
    settings = {name: value for name, value in offered.items() if name in takes and value is not None}
    settings.update(method.settings)
    if rerankers is not None and isinstance(settings.get("reranker"), str):
        settings["reranker"] = rerankers(_reranker_for(method, settings["reranker"]))
    return corag.selector(method.name, **settings)


@dataclass
class SharedProblem:
    """A selector whose problems, with the values of their orders, serve others of the same unit.

    `problems` are by question, candidates and unit, and have to be cleared where the budget is another.
    """

    selector: BudgetedSelector
    problems: dict[Any, SelectionProblem] = field(repr=False)
    _ahead: dict[Any, Selection] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """Name of the selector."""
        return self.selector.name

    def select(self, query: str, candidates: Sequence[Candidate], budget_tokens: int) -> Selection:
        """Return the selection."""
        found = self._ahead.pop((self._key(query, candidates), budget_tokens), None)
        return found or self.selector.select_from(self._problem(query, candidates, budget_tokens))

    def search_ahead(self, questions: Sequence[tuple[str, Sequence[Candidate], int]]) -> None:
        """Search for many questions in lock-step, each with its candidates and budget; `select` then has the result."""
        self._ahead.clear()
        selections = self.selector.select_from_many(deque(self._problem(*question) for question in questions))
        for (query, candidates, budget_tokens), selection in zip(questions, selections, strict=True):
            self._ahead[self._key(query, candidates), budget_tokens] = selection

    def _problem(self, query: str, candidates: Sequence[Candidate], budget_tokens: int) -> SelectionProblem:
        if (key := self._key(query, candidates)) not in self.problems:
            self.problems[key] = self.selector.problem(query, candidates, budget_tokens)
        return self.problems[key]

    def _key(self, query: str, candidates: Sequence[Candidate]) -> Any:
        return query, tuple(one.chunk.id for one in candidates), self.selector.unit, self.selector.max_units


def with_shared_problem(selector: Selector, method: str, problems: dict[Any, SelectionProblem]) -> Selector:
    """Return a selector that shares its problems, if it chooses by itself: not by an agent or another selector."""
    asks = getattr(selector, "agent", None) is not None or {"selector", "part"} & parse(method).settings.keys()
    if asks or not isinstance(selector, BudgetedSelector):
        return selector
    return cast(Selector, SharedProblem(selector, problems))


def _reranker_for(method: Configuration, reranker: str) -> str:
    """Return how a reranker is spelled for a method: a preset of `corag` wants logits where there are any."""
    if not method.settings.get("preset"):
        return reranker
    written, known = parse(reranker), RERANKERS.settings(reranker)
    return str(Configuration(written.name, {**{k: v for k, v in LOGITS.items() if k in known}, **written.settings}))

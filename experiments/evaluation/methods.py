"""The methods of a comparison by name, with settings of their own: `top-k(k=3)`, `car(method=dbscan)`, or `all`.

And what they are made of: reader, tokenizer, embedder, rerankers, shared where they may be.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, NamedTuple, cast

import corag
from common.configuration import Configuration, parse, split_parts
from corag.budget import Budget, reader_and_tokens, tokens_setting
from corag.errors import InputError, MissingExtraError
from corag.models.embedders import CachedEmbedder
from corag.models.encoders import CachedEncoder
from corag.readers.chat import ChatReader
from corag.readers.wrappers import CachedReader, SelfConsistentReader
from corag.registry import EMBEDDERS, RERANKERS, SELECTORS, SUMMARIZERS
from corag.selectors.base import BudgetedSelector
from corag.selectors.corag.agents import checkpoint_folder, decides
from corag.selectors.corag.search import LOGITS
from corag.selectors.problem import SelectionProblem
from corag.selectors.raptor.tree import tree_file
from corag.text.data import Query
from corag.types import Candidate, Reranker, Selection, Selector
from experiments.data.pools import reproducible, shared_encoder
from experiments.evaluation.config import ALL, NO_READER, EvaluateConfig
from experiments.evaluation.judge import Judge, chats_of, judgements
from experiments.run.journal import digest, versions

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


def _built(method: Configuration, offered: Mapping[str, Any], rerankers: Callable[[str], Reranker] | None) -> Selector:
    takes = set(SELECTORS.parameters(str(method)))
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
    written, known = parse(reranker), RERANKERS.parameters(reranker)
    return str(Configuration(written.name, {**{k: v for k, v in LOGITS.items() if k in known}, **written.settings}))


class Parts:
    """The parts that the config of a set of questions names; `InputError` if a budget has no room for any context.

    Attributes:
        reader: Reads each context once; None where nothing is to be read.
        prompted: Who gets the prompts that a budget is for, or None.
        skip_reason: Why a reader that was asked for reads nothing, or None.
    """

    def __init__(self, config: EvaluateConfig, queries: Sequence[Query]) -> None:
        self.config = config
        self.reader: CachedReader | None = None
        self.skip_reason: str | None = None
        named = None if config.reader == NO_READER else config.reader
        self.prompted, self.tokens = reader_and_tokens(named, config.tokenizer)
        if self.prompted is None:
            return
        if config.judge is not None or any(query.answers for query in queries):
            self.reader = CachedReader(self.prompted)
        else:
            where = f"{config.data}, {config.split},"
            self.skip_reason = f"no question of {where} has reference answers, so nothing is read"
        shortest = min((query.question for query in queries), key=len, default="")
        for budget in config.budgets or (config.budget,):
            self.budget(budget).for_context(shortest)

    def budget(self, tokens: int) -> Budget:
        """Return a budget for prompts, or for contexts alone, as the config says."""
        return Budget(tokens, self.prompted, self.config.budget_for)

    @cached_property
    def judge(self) -> Judge | None:
        """The judge; `InputError` if it asks no language model, `ChatError` if its server or model is missing."""
        name = self.config.judge
        return None if name is None else Judge(chats_of("judge", name), judgements(self.config.judge_figures))

    @property
    def prompt_text(self) -> str | None:
        """The text of the prompts: a file of the same name may change."""
        if isinstance(self.prompted, SelfConsistentReader):
            return self.prompted.identity
        return self.prompted.template.text if isinstance(self.prompted, ChatReader) else None

    def content(self, methods: Iterable[str]) -> list[Any]:
        """Return what results depend on besides settings and data: trained parts, tokenizer, versions and prompt."""
        named = (self.config.reranker, self.config.summarizer, self.config.embedder)
        trained = trained_hash(self.config.agent, [*methods, *(one for one in named if one is not None)])
        return [trained, self.tokens.name, versions(), self.prompt_text]

    @cached_property
    def encoder(self) -> CachedEncoder:
        """Encodes every passage once for pools, rerankers and embedder."""
        return shared_encoder()

    @cached_property
    def embedder(self) -> CachedEmbedder:
        """Embeds each text once, from the states that rerankers need, too, if it is of the same encoder."""
        given = self.config.embedder
        with reproducible():
            if "encoder" in EMBEDDERS.parameters(given):
                return CachedEmbedder(EMBEDDERS.make(given, defaults={"encoder": self.encoder}))
            return CachedEmbedder(given)

    def methods(self, methods: str | tuple[str, ...], *, shared: bool = True) -> Methods:
        """Return methods that share rerankers, summarizer and reader; if not `shared`, the embedder alone."""
        config = self.config
        offered: dict[str, Any] = {
            **tokens_setting(self.tokens),
            "reranker": config.reranker,
            "agent": config.agent,
            "reader": (self.reader or self.prompted) if shared else self.prompted,
            "summarizer": config.summarizer,
            "embedder": self.embedder,
            "tree": config.index if config.index is not None and tree_file(config.index) is not None else None,
        }
        if not shared:
            return make_methods(methods, offered)
        known = {"tokenizer": offered.get("tokenizer"), "encoder": self.encoder}
        offered["summarizer"] = SUMMARIZERS.make(config.summarizer, defaults=known)
        with reproducible():
            return make_methods(methods, offered, self._reranker)

    @cached_property
    def _reranker(self) -> Callable[[str], Reranker]:
        """Returns the one reranker of a name."""
        return cache(lambda name: RERANKERS.make(name, defaults={"encoder": self.encoder}))


def trained_hash(agent: str, parts: Iterable[str]) -> list[str]:
    """Return hashes of the files of an agent, and of those agents, adapters and models in folders that parts name.

    A new training may have written to the same folder.
    """
    folders = [agent, *(name for part in parts for name in _trained(part))]
    return [digest(file) for name in folders for file in sorted(checkpoint_folder(name).glob("*")) if file.is_file()]


def _trained(part: object) -> Iterator[str]:
    with suppress(InputError):  # a value that is no part
        for name, value in parse(part).settings.items():
            if name in ("agent", "adapter", "model", "encoder"):
                yield str(value)
            else:
                yield from (inner for one in (value if isinstance(value, list) else [value]) for inner in _trained(one))

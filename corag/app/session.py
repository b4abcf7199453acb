"""What the page shows, as plain data: a question searched with given settings, its answer, the agent, all methods.

Every call carries its full state. Caches only save time, so users share nothing else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from typing import Any, cast, get_args

from corag.app.source import Evidence, Source
from corag.app.view import blocks, title_of, trace_rows, tree_data, verdicts
from corag.budget import AUTO, Budget, reader_and_tokens, tokens_setting
from corag.checks import check_choice, check_count, check_query, check_range
from corag.errors import CoragError, InputError
from corag.naming import Spelling, parse
from corag.registry import RERANKERS, SELECTORS
from corag.reply import Reply
from corag.reply import read as read_answer
from corag.selectors.corag.agents import fixed_configuration
from corag.selectors.corag.search import EXPLORATION, ITERATIONS, SearchSelector
from corag.selectors.corag.selector import Corag
from corag.selectors.problem import SelectionProblem, cut_problem
from corag.selectors.reranking import DEFAULT_RERANKER
from corag.shown import Reading, readings
from corag.text.chunking import DEFAULT_BUDGET
from corag.text.data import Query
from corag.text.documents import body
from corag.text.units import UnitChunk, source_of, unit_size
from corag.text.visible import well_formed
from corag.types import Answer, Candidate, PromptedReader, Reader, Reranker, Selection, Selector, TokenCounter
from search import Policy

MAX_QUESTION = 4_000
"""Characters of a question."""
MAX_BUDGET = 32_768
MAX_ITERATIONS = 60
MAX_CACHED = 32
"""Questions whose candidates and values are kept."""
POLICIES: tuple[Policy, ...] = get_args(Policy)
UNITS = ("passage", "sentence")
ALL_METHODS = (
    "corag", "corag(unit=passage)", "corag(unit=sentence)", "naive", "upper(max_orders=20000)", "top-k", "mmr",
    "adaptive-k", "car", "similarity-cutoff", "sentence-threshold", "edc2", "crag", "self-route", "full", "none",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Settings:
    """How a question is searched: budget as in `corag ask`, unit, reranker, and settings of `search.SearchConfig`."""

    budget: int
    unit: str
    reranker: str
    policy: str
    iterations: int
    exploration: float
    cost_weight: float

    def __post_init__(self) -> None:
        _check_budget(self.budget)
        check_choice("unit", self.unit, UNITS)
        check_choice("policy", self.policy, POLICIES)
        check_count("iterations", self.iterations, f"typical: {ITERATIONS}", most=MAX_ITERATIONS)
        check_range("exploration", self.exploration, 0, 100, f"typical: {EXPLORATION}")
        check_range("cost_weight", self.cost_weight, 0, 100, "typical: 0.1")


def _check_budget(budget: object) -> None:
    check_count("budget", budget, f"typical: {DEFAULT_BUDGET}", most=MAX_BUDGET)


@dataclass
class Inquiry:
    """One question with its candidates, best first, what the data folder knows about it, and cached results.

    `lock` is held while something is computed, but not while a reader answers, which may take minutes.
    """

    question: str
    query: Query | None
    candidates: list[Candidate]
    evidence: Evidence | None
    lock: threading.Lock = field(default_factory=threading.Lock)
    problems: dict[str, SelectionProblem] = field(default_factory=dict)
    answers: dict[str, tuple[Answer, tuple[Reading, ...]]] = field(default_factory=dict)

    def evidence_counts(self, selection: Selection) -> dict[str, Any]:
        """Return how many gold passages a selection holds, and how many there are; None if that is not known."""
        if self.evidence is None:
            return {"found": None, "gold": None}
        return {"found": self.evidence.found(selection.chunks), "gold": len(self.evidence.gold)}


class Workbench:
    """Computes what the page asks for; threads may share it.

    Questions and candidates come from the `source`; the other settings are those of `corag app`, reader and tokens by
    name or as objects.
    """

    def __init__(
        self,
        source: Source,
        *,
        reader: Spelling = "minilm-reader",
        tokens: Spelling | TokenCounter = AUTO,
        agent: str = "default",
        reranker: str | None = None,
        budget: int = DEFAULT_BUDGET,
        methods: tuple[str, ...] = ALL_METHODS,
    ) -> None:
        self.source = source
        self.reader: Reader
        self.reader, self.tokens = reader_and_tokens(reader, tokens)
        _check_budget(budget)
        self.budget = budget
        self._reranker, self._agent = reranker, agent
        self.rerankers = tuple(dict.fromkeys(([reranker] if reranker else []) + list(RERANKERS.local)))
        self.methods = methods
        for method in methods:
            SELECTORS.settings(method)
        self._inquiry = lru_cache(MAX_CACHED)(self._new_inquiry)
        self._selector = lru_cache(None)(self._new_selector)
        self._make_reranker: Callable[[str], Reranker] = lru_cache(None)(RERANKERS.make)

    def about(self) -> dict[str, Any]:
        """Return what the page needs before the first question."""
        return {
            **self.source.about(),
            "reader": self.reader.name,
            "rerankers": self.rerankers,
            "methods": self.methods,
            "policies": POLICIES,
            "units": UNITS,
            "max_question": MAX_QUESTION,
            "max_iterations": MAX_ITERATIONS,
            "budget_for": "prompt" if isinstance(self.reader, PromptedReader) else "context",
        }

    def search(self, question: str, number: int | None, given: Mapping[str, Any]) -> dict[str, Any]:
        """Search a question, and return candidates with verdicts, tree, selection and context.

        `number` is that of the question in the data folder, or None. `given` are settings by name; by default what the
        agent predicts, else the defaults.
        """
        inquiry = self._inquiry_for(question, number)
        with inquiry.lock:
            settings = self._settings(inquiry, given)
            # With the same budget: the default one may be too small for this question's prompt.
            defaults = replace(self._default_settings(inquiry, settings.budget, None, None), budget=self.budget)
            started_s = time.perf_counter()
            problem, selector, selection = self._search(inquiry, settings)
            seconds = time.perf_counter() - started_s
            scorer = problem.scorer(self._make_reranker(settings.reranker), selector.window)
            position = {chunk.id: index for index, chunk in enumerate(problem.chunks)}
            order = tuple(position[name] for name in selection.ids)
            result = selection.trace.result
            price = float(selection.trace.details.get("token_price", 0.0))
            num_scored = 0 if result is None else result.num_scored
            verdict_rows = verdicts(problem, scorer, self.tokens, order, token_price=price, num_scored=num_scored)
            singles = scorer([(index,) for index in range(len(problem.chunks))]).tolist() if problem.chunks else []
            passages = {candidate.chunk.id: index for index, candidate in enumerate(inquiry.candidates)}
            evidence = inquiry.evidence
            return {
                "question": inquiry.question,
                "answers": [] if inquiry.query is None else inquiry.query.answers,
                "settings": asdict(settings),
                "changed": {
                    name: value for name, value in asdict(defaults).items() if value != getattr(settings, name)
                },
                "budget_tokens": problem.budget_tokens,
                "unit": settings.unit,
                "similarity": problem.kind,
                "items": [
                    {
                        "title": title_of(chunk),
                        "text": body(chunk),
                        "passage": passages.get(source_of(chunk).id),
                        "tokens": int(problem.costs[index]) - problem.separator_tokens,
                        "similarity": problem.given_similarities[index],
                        "value": singles[index],
                        "evidence": None if evidence is None else evidence.marks(chunk),
                        **verdict_rows[index],
                    }
                    for index, chunk in enumerate(problem.chunks)
                ],
                "order": order,
                "tokens": selection.cost_tokens,
                "value": float(scorer([order])[0]) if order else None,
                "reason": selection.trace.reason,
                "trace": trace_rows(selection),
                "tree": None if result is None else tree_data(problem, result, selector.search_of(problem), scorer),
                "rounds": [] if result is None else result.incumbents,
                "blocks": blocks(selection, evidence),
                **inquiry.evidence_counts(selection),
                "seconds": seconds,
            }

    def answer(
        self, question: str, number: int | None, given: Mapping[str, Any], on_token: Callable[[str], None] | None = None
    ) -> dict[str, Any]:
        """Return the reader's answer from what `search` chose; `on_token` gets each piece as it is written."""
        inquiry = self._inquiry_for(question, number)
        with inquiry.lock:
            _, _, selection = self._search(inquiry, self._settings(inquiry, given))
        return self._read(inquiry, selection, on_token)

    def agent(self, question: str, number: int | None, budget: int) -> dict[str, Any]:
        """Return what `corag ask` does with a question: what the agent says of it, if there is one, and the trace."""
        inquiry = self._inquiry_for(question, number)
        with inquiry.lock:
            selector = self._selector("corag")
            selection = self._within(budget).select(selector, inquiry.question, inquiry.candidates)
            details = selection.trace.details
            return {
                "because": details.get("because"),
                "probabilities": details.get("probabilities", {}),
                "trace": trace_rows(selection),
                "method": str(selector),
            }

    def method(self, question: str, number: int | None, budget: int, name: str) -> dict[str, Any]:
        """Return the selection of one method, its cost and the reader's answer; or why it cannot be used."""
        check_choice("method", name, self.methods)
        inquiry = self._inquiry_for(question, number)
        try:
            with inquiry.lock:
                selector = self._selector(name)
                started_s = time.perf_counter()
                selection = self._within(budget).select(selector, inquiry.question, inquiry.candidates)
                seconds = time.perf_counter() - started_s
            read = self._read(inquiry, selection)
        except CoragError as error:
            return {"method": name, "error": str(error)}
        return {
            "method": name,
            "tokens": selection.cost_tokens,
            "chunks": len(selection),
            "units": any(isinstance(chunk, UnitChunk) for chunk in selection.chunks),
            **inquiry.evidence_counts(selection),
            "seconds": seconds,
            "reason": selection.trace.reason,
            "trace": trace_rows(selection),
            **read,
        }

    def _inquiry_for(self, question: str, number: int | None) -> Inquiry:
        question = well_formed(question)
        check_query(question, MAX_QUESTION)
        return self._inquiry(question, number)

    def _new_inquiry(self, question: str, number: int | None) -> Inquiry:
        query = self.source.query(number, question)
        question = question if query is None else query.question
        return Inquiry(question, query, self.source.candidates(question, query), self.source.evidence(query))

    def _within(self, budget: int) -> Budget:
        _check_budget(budget)
        return Budget(budget, self.reader)

    def _settings(self, inquiry: Inquiry, given: Mapping[str, Any]) -> Settings:
        names = [setting.name for setting in fields(Settings)]
        if unknown := [name for name in given if name not in names]:
            raise InputError(f"{unknown[0]!r:.80} is not a setting; the settings are {', '.join(names)}")
        given = {name: value for name, value in given.items() if value is not None}
        if "reranker" in given:
            check_choice("reranker", given["reranker"], self.rerankers)
        if "unit" in given:
            check_choice("unit", given["unit"], UNITS)
        defaults = self._default_settings(
            inquiry, given.get("budget", self.budget), given.get("unit"), given.get("reranker")
        )
        return replace(defaults, **given)

    def _default_settings(self, inquiry: Inquiry, budget: int, unit: str | None, reranker: str | None) -> Settings:
        """Return the settings that `corag` has for a question, where unit and reranker may be given."""
        reranker = reranker or self._reranker
        named = {} if reranker else self._named(inquiry, budget, unit)
        unit = unit or named.get("unit") or "passage"
        reranker = reranker or named.get("reranker") or DEFAULT_RERANKER
        selector = SearchSelector(reranker=self._make_reranker(reranker), unit=unit, search=named.get("search"))
        search = selector.search_of(self._problem(inquiry, unit, budget))
        price = named.get("cost_weight", fixed_configuration().settings["cost_weight"])
        return Settings(
            budget, unit, reranker, search.policy, min(search.iterations, MAX_ITERATIONS),
            round(search.exploration, 3), round(price, 3),
        )  # fmt: skip

    def _named(self, inquiry: Inquiry, budget: int, unit: str | None) -> dict[str, Any]:
        """Return the settings of the configuration that the agent names, or its fallback without an agent."""
        selector = cast(Corag, self._selector("corag" if unit is None else f"corag(unit={unit})"))
        configuration = fixed_configuration()
        if selector.agent is not None:
            tokens = self._within(budget).for_context(inquiry.question)
            try:
                configuration = parse(str(selector.predict(inquiry.question, inquiry.candidates, tokens)))
            except InputError:  # none of its configurations has the unit
                return {}
        shown = {"unit": UNITS, "reranker": self.rerankers}
        settings = configuration.settings
        if configuration.name != "corag":  # it fills the budget with passages, as the search does where they are free
            settings = {"unit": "passage", "reranker": settings.get("reranker"), "cost_weight": 0.0}
        return {name: value for name, value in settings.items() if name not in shown or value in shown[name]}

    def _problem(self, inquiry: Inquiry, unit: str, budget: int) -> SelectionProblem:
        tokens = self._within(budget).for_context(inquiry.question)
        if unit not in inquiry.problems:
            given = (inquiry.question, inquiry.candidates, self.tokens, tokens)
            inquiry.problems[unit] = cut_problem(SelectionProblem(*given).prefiltered(), unit_size(unit))
        return replace(inquiry.problems[unit], budget_tokens=tokens)

    def _search(self, inquiry: Inquiry, settings: Settings) -> tuple[SelectionProblem, SearchSelector, Selection]:
        """Return what is chosen from, what searches it, and what it selects."""
        selector = SearchSelector(
            reranker=self._make_reranker(settings.reranker),
            tokenizer=self.tokens,
            unit=settings.unit,
            search={name: getattr(settings, name) for name in ("policy", "iterations", "exploration")},
            cost_weight=settings.cost_weight,
        )
        problem = self._problem(inquiry, settings.unit, settings.budget)
        selection = self._within(settings.budget).within(
            inquiry.question,
            lambda tokens: selector.select_from(replace(problem, budget_tokens=tokens)),
            lambda chosen: [chosen.text],
        )
        return replace(problem, budget_tokens=selection.budget_tokens), selector, selection

    def _read(
        self, inquiry: Inquiry, selection: Selection, on_token: Callable[[str], None] | None = None
    ) -> dict[str, Any]:
        text, budget = selection.text, Budget(selection.budget_tokens, self.reader, "context")
        if text not in inquiry.answers:
            budget.check_window(inquiry.question, text)
            said = read_answer(self.reader, inquiry.question, selection, on_token)
            inquiry.answers[text] = said, readings(self.reader, inquiry.question, said, selection)
        answer, read = inquiry.answers[text]
        counts = budget.counts(inquiry.question, text, self.tokens)
        shown = Reply(inquiry.question, answer, selection, {}, counts, read=read).shown
        fields = shown.to_dict()
        return {
            "answered": fields.pop("found"),  # `found` is the number of gold passages
            **fields,
            "text": shown.text,
            "quotes": [passage.pieces for passage in shown.passages],
            "answer_blocks": blocks(selection, inquiry.evidence, answer.spans),
        }

    def _new_selector(self, name: str) -> Selector:
        offered: dict[str, Any] = {**tokens_setting(self.tokens), "reader": self.reader, "agent": self._agent}
        if self._reranker is not None:
            offered["reranker"] = self._reranker
        if "agent" not in SELECTORS.settings(name):  # an agent names the embedder that it was trained with
            offered["embedder"] = self.source.cached_embedder
        return SELECTORS.offer(name, offered)

"""What the page shows, as plain data: a question searched under given settings, its answer, the agent, all methods.

Every call says all that it asks for; what is kept between calls only saves time. So people share nothing but that.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from agent.config import setting_of
from corag.app.found import Found
from corag.app.inquiry import (
    ALL_METHODS,
    MAX_BUDGET,
    MAX_ITERATIONS,
    MAX_QUESTION,
    POLICIES,
    RERANKERS,
    UNITS,
    Inquiry,
    Settings,
    check_app_budget,
)
from corag.app.shown import blocks, noted
from corag.app.source import Source
from corag.budget import AUTO, Budget, reader_and_tokens, tokens_setting
from corag.checks import check_choice, check_query
from corag.errors import CoragError, InputError
from corag.naming import Spelling, parse
from corag.registry import SELECTORS
from corag.registry import reranker as make_reranker
from corag.reply import Reply
from corag.reply import read as read_answer
from corag.selectors.corag.agents import DEFAULT_AGENT, NO_AGENT
from corag.selectors.corag.selector import Corag
from corag.selectors.reranking import default_reranker
from corag.text.units import Unit, UnitChunk, source_of
from corag.text.visible import well_formed
from corag.types import Reader, Selection, Selector, StreamingReader, TokenCounter
from search import TREE_POLICIES

if TYPE_CHECKING:
    from agent import AgentPrediction

REMEMBERED = 32
"""Questions whose candidates and values are kept."""

T = TypeVar("T")


class Workbench:
    """Answers what the page asks for; threads may share it.

    Args:
        source: Where questions and candidates come from.
        reader: Answers from a context: name or object.
        tokens: Counts tokens: name or object.
        agent: Agent of method `corag`, as for `corag ask`.
        reranker: Reranker that is searched with at first; by default the agent's, else the one that ships.
        budget: Budget at first.
        methods: Methods that are compared.

    Raises:
        InputError: A name is unknown.
    """

    def __init__(
        self,
        source: Source,
        *,
        reader: Spelling = "minilm-reader",
        tokens: Spelling | TokenCounter = AUTO,
        agent: str = "default",
        reranker: str | None = None,
        budget: int = 256,
        methods: tuple[str, ...] = ALL_METHODS,
    ) -> None:
        self.source = source
        self.reader: Reader
        self.reader, self.tokens = reader_and_tokens(reader, tokens)
        self.defaults = Settings(budget=budget)
        self._reranker, self._agent = reranker, agent
        self._has_agent = agent not in (DEFAULT_AGENT, NO_AGENT)
        self.rerankers = tuple(dict.fromkeys(([reranker] if reranker else []) + list(RERANKERS)))
        self.methods = methods
        for method in methods:
            SELECTORS.settings(method)
        self._inquiries: OrderedDict[tuple[str, int | None], Inquiry] = OrderedDict()
        self._built: dict[tuple[str, str], Any] = {}
        self._lock = threading.RLock()

    def about(self) -> dict[str, Any]:
        """Return what the page has to know before anything is asked."""
        return {
            **self.source.about(),
            "reader": self.reader.name,
            "tokenizer": self.tokens.name,
            "rerankers": self.rerankers,
            "methods": self.methods,
            "policies": POLICIES,
            "tree_policies": TREE_POLICIES,
            "units": UNITS,
            "streams": isinstance(self.reader, StreamingReader),
            "max_question": MAX_QUESTION,
            "max_iterations": MAX_ITERATIONS,
            "max_budget": MAX_BUDGET,
        }

    # --- What is asked ---

    def search(self, question: str, number: int | None, given: Mapping[str, Any]) -> dict[str, Any]:
        """Search a question, and return candidates, tree, selection and verdicts.

        Args:
            question: The question.
            number: Its number in the data folder, or None.
            given: Settings by name; for those that are not given, what the agent says, else the defaults.
        """
        with self._asked(question, number) as inquiry:
            return self._searched(inquiry, self._settings(inquiry, given)).to_dict(self.tokens)

    def answer(
        self,
        question: str,
        number: int | None,
        given: Mapping[str, Any],
        on_token: Callable[[str], None] | None = None,
    ) -> dict[str, Any]:
        """Return what the reader says about what `search` chose; `on_token` gets each piece as it is written."""
        with self._asked(question, number) as inquiry:
            return self._read(inquiry, self._searched(inquiry, self._settings(inquiry, given)).selection, on_token)

    def agent(self, question: str, number: int | None, budget: int) -> dict[str, Any]:
        """Return what the agent thinks of a question, and what `corag ask` would do with it."""
        with self._asked(question, number) as inquiry:
            selector = self._method("corag")
            prediction = self._predicted(inquiry)
            selection = selector.select(inquiry.question, inquiry.candidates, check_app_budget(budget))
            return {
                "prediction": None if prediction is None else asdict(prediction),
                "trace": noted(selection.trace.to_dict()),
                "method": str(selector),
            }

    def method(self, question: str, number: int | None, budget: int, name: str) -> dict[str, Any]:
        """Return what one method chooses, what it costs and what the reader makes of it; or why it cannot be used."""
        check_choice("method", name, self.methods)
        with self._asked(question, number) as inquiry:
            try:
                selector = self._method(name)
                begun_s = time.perf_counter()
                selection = selector.select(inquiry.question, inquiry.candidates, check_app_budget(budget))
                seconds = time.perf_counter() - begun_s
                read = self._read(inquiry, selection)
            except CoragError as error:
                return {"method": name, "error": str(error)}
        places = {one.chunk.id: place for place, one in enumerate(inquiry.candidates)}
        sources = [places.get(source_of(chunk).id) for chunk in selection.chunks]
        evidence = inquiry.evidence
        return {
            "method": name,
            "tokens": selection.cost_tokens,
            "chunks": len(selection),
            "sources": list(dict.fromkeys(place for place in sources if place is not None)),
            "units": any(isinstance(chunk, UnitChunk) for chunk in selection.chunks),
            "found": None if evidence is None else evidence.found(selection.chunks),
            "gold": None if evidence is None else len(evidence.gold),
            "seconds": seconds,
            "reason": selection.trace.reason,
            "trace": noted(selection.trace.to_dict()),
            **read,
        }

    # --- How it is found ---

    def _asked(self, question: str, number: int | None) -> _Held:
        question = well_formed(question)
        check_query(question)
        if len(question) > MAX_QUESTION:
            raise InputError(f"the question has {len(question):,} characters; ask with at most {MAX_QUESTION:,}")
        key = (question, number)
        with self._lock:
            if (found := self._inquiries.get(key)) is not None:
                self._inquiries.move_to_end(key)
                return _Held(found)
        query = self.source.query(number, question)
        question = question if query is None else query.question
        candidates = self.source.candidates(question, query)
        with self._lock:
            new = Inquiry(question, query, candidates, self.source.evidence(query))
            inquiry = self._inquiries.setdefault(key, new)
            while len(self._inquiries) > REMEMBERED:
                self._inquiries.popitem(last=False)
        return _Held(inquiry)

    def _settings(self, inquiry: Inquiry, given: Mapping[str, Any]) -> Settings:
        names = [one.name for one in fields(Settings)]
        if unknown := [name for name in given if name not in names]:
            raise InputError(f"{unknown[0]!r:.80} is no setting; the settings are {', '.join(names)}")
        settings = replace(self.defaults, **{name: value for name, value in given.items() if value is not None})
        if settings.reranker:
            check_choice("reranker", settings.reranker, self.rerankers)
        if settings.unit == "passage" and (prediction := self._predicted(inquiry)) is not None:
            said: dict[str, Any] = {
                "iterations": min(prediction.iterations or MAX_ITERATIONS, MAX_ITERATIONS),
                "exploration": round(prediction.exploration or 0.0, 3),
                "cost_weight": round(prediction.cost_weight or 0.0, 3),
            }
            settings = replace(settings, **{name: value for name, value in said.items() if given.get(name) is None})
            odds = {setting_of(name, "reranker") or "": value for name, value in prediction.probabilities.items()}
            by_odds = sorted(odds, key=lambda name: -odds[name])
            usable = [name for name in (prediction.reranker, *by_odds) if name in self.rerankers]
            if usable and not settings.reranker and self._reranker is None:
                settings = replace(settings, reranker=usable[0])
        return settings

    def _searched(self, inquiry: Inquiry, settings: Settings) -> Found:
        problem = inquiry.problem(settings.unit, self.tokens, settings.budget)
        name = settings.reranker or self._reranker or default_reranker(Unit.parse(settings.unit))
        reranker = self._part("reranker", name, lambda: make_reranker(name))
        selector = Corag(
            reranker=reranker,
            tokens=self.tokens,
            unit=settings.unit,
            search={name: getattr(settings, name) for name in ("policy", "iterations", "exploration")},
            cost_weight=settings.cost_weight,
        )
        begun_s = time.perf_counter()
        selection = selector.select_from(problem)
        return Found(
            inquiry=inquiry,
            settings=replace(settings, reranker=name),
            problem=problem,
            config=selector.search_of(problem),
            scorer=problem.scorer(reranker, selector.window),
            selection=selection,
            seconds=time.perf_counter() - begun_s,
        )

    def _predicted(self, inquiry: Inquiry) -> AgentPrediction | None:
        selector = self._part("agent", self._agent, lambda: SELECTORS.make("corag", agent=self._agent))
        return selector.predict(inquiry.question, inquiry.candidates) if isinstance(selector, Corag) else None

    def _read(
        self, inquiry: Inquiry, selection: Selection, on_token: Callable[[str], None] | None = None
    ) -> dict[str, Any]:
        text, budget = selection.text, Budget(selection.budget_tokens, self.reader, "context")
        if text not in inquiry.answers:
            budget.check_window(inquiry.question, text)
            inquiry.answers[text] = read_answer(self.reader, inquiry.question, text, on_token)
        answer = inquiry.answers[text]
        reply = Reply(inquiry.question, answer, selection, {}, budget.counts(inquiry.question, text, self.tokens))
        # An explanation is its sentences.
        explains = bool(answer.spans) and len(answer.sentence_spans) > 1
        marks = answer.sentence_spans if explains else answer.spans
        return {
            "answer": answer.text,
            "answered": reply.found,
            "explains": explains,
            "confidence": answer.confidence,
            "certainty": reply.certainty,
            "quotes": [quote.pieces for quote in reply.quotes],
            "answer_blocks": blocks(selection, inquiry.evidence, marks),
        }

    def _method(self, name: str) -> Selector:
        # A reranker is chosen in place of an agent, as in `corag ask`.
        offered: dict[str, Any] = {**tokens_setting(self.tokens), "reader": self.reader, "agent": self._agent}
        offered |= {} if self._reranker is None else {"reranker": self._reranker}
        # An agent names the embedder that it was trained with.
        offered |= {} if "agent" in SELECTORS.settings(name) else {"embedder": self.source.embedder}
        if self._has_agent and parse(name).settings:
            # What an agent names takes no settings beside it.
            offered["agent"] = NO_AGENT
        return self._part("method", name, lambda: SELECTORS.offer(name, offered))

    def _part(self, kind: str, name: str, build: Callable[[], T]) -> T:
        with self._lock:
            if (kind, name) not in self._built:
                self._built[kind, name] = build()
            part: T = self._built[kind, name]
            return part


class _Held:
    """An inquiry whose lock is held while the block runs."""

    def __init__(self, inquiry: Inquiry) -> None:
        self._inquiry = inquiry

    def __enter__(self) -> Inquiry:
        self._inquiry.lock.acquire()
        return self._inquiry

    def __exit__(self, *_: object) -> None:
        self._inquiry.lock.release()

"""Questions under every method: what each chose, what was read from it, and every measure of both."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from corag.budget import Budget
from corag.errors import BudgetError, DataError, InputError, ScoringError, SummarizerError
from corag.memory import clear_caches
from corag.text.data import Query
from corag.text.documents import Document
from corag.types import Answer, Candidate, Selection, Selector
from experiments.data.trec import ranking_of
from experiments.evaluation.judge import JudgedAnswer, claim_of
from experiments.evaluation.methods import Parts, SharedProblem
from experiments.evaluation.outcome import Outcome
from experiments.evaluation.support import Support
from experiments.report.measures import measured

FAILURES = (InputError, BudgetError, ScoringError, SummarizerError)
"""What one question may be too much for; a missing package, model or server is a reason to stop."""

Rows = dict[str, dict[str, Any]]
"""The row of each method on one question."""
Prompt = tuple[str, str]
"""A question and a context that is to be read."""


@dataclass(frozen=True)
class Measuring:
    """What questions are measured with.

    Attributes:
        documents: The corpus, which tells the supporting sentences.
        skip_unanswered: Whether nothing is read for questions without a reference answer.
    """

    selectors: Mapping[str, Selector]
    budget: Budget
    parts: Parts
    documents: Mapping[str, Document] = field(default_factory=dict)
    skip_unanswered: bool = False

    def rows(self, questions: Sequence[tuple[Query, Sequence[Candidate]]]) -> list[Rows]:
        """Let every selector choose for each question, and return the rows of the questions, by selector.

        Selectors that can search for all questions in lock-step. The contexts of all questions are read together, equal
        ones once. A selector that fails is noted with its error, and the others go on.
        """
        for selector in self.selectors.values():
            if isinstance(selector, SharedProblem):
                with suppress(*FAILURES):  # whichever question it is, is named below
                    names = [query.question for query, _ in questions]
                    budgets = map(self.budget.for_context, names)
                    selector.search_ahead(list(zip(names, (offered for _, offered in questions), budgets, strict=True)))
        chosen = [self._choose(query, candidates) for query, candidates in questions]
        answers = self._read([one for of in chosen for one in of.values() if isinstance(one, Outcome)])
        return [self._rows(query, of, answers) for (query, _), of in zip(questions, chosen, strict=True)]

    def _choose(self, query: Query, candidates: Sequence[Candidate]) -> dict[str, Outcome | Exception]:
        """Return what each selector chose, or why it failed."""
        query = replace(query, gold=query.evidence)
        ranking, support = [candidate.chunk for candidate in candidates], Support.of(query, self.documents)
        shared = self.budget, self.parts.tokens, self.parts.embedder, support
        chosen: dict[str, Outcome | Exception] = {}
        for name, selector in self.selectors.items():
            selection: Any = select(selector, query, candidates, self.budget)
            if not isinstance(selection, Exception):
                selection = Outcome(query, selection, ranking, *shared)
            chosen[name] = selection
        return chosen

    def _read(self, outcomes: Sequence[Outcome]) -> Mapping[Prompt, Answer]:
        """Return the answers from the contexts that were chosen, and from the chunks that a summary was made from."""
        if self.parts.reader is None:
            return {}
        asked = [one for one in outcomes if one.query.answers or not self.skip_unanswered]
        originals = [(one.query.question, one.original_text) for one in asked if not one.is_whole]
        prompts = [(one.query.question, one.selection.text) for one in asked]
        prompts = list(dict.fromkeys([*prompts, *(pair for pair in originals if not self.budget.beyond_window(*pair))]))
        read = self.parts.reader.answer_many(*map(list, zip(*prompts, strict=True))) if prompts else []
        return dict(zip(prompts, read, strict=True))

    def _rows(self, query: Query, chosen: Mapping[str, Outcome | Exception], answers: Mapping[Prompt, Answer]) -> Rows:
        read = {name: _with_answers(one, answers) for name, one in chosen.items() if isinstance(one, Outcome)}
        judged = self._judge(query, list(read.values()))
        rows: Rows = {}
        for name, one in chosen.items():
            if isinstance(one, Exception):
                rows[name] = {"query": query.id, "failed": 1, "error": f"{type(one).__name__}: {one}"}
            else:
                rows[name] = {"query": query.id, "failed": 0, **_row(read[name]), **judged.get(one.selection.text, {})}
        return rows

    def _judge(self, query: Query, outcomes: Sequence[Outcome]) -> dict[str, dict[str, Any]]:
        """Return what a judge says of each context."""
        if self.parts.judge is None:
            return {}
        about, claim = (query.question, tuple(query.answers)), claim_of(query)
        judged = {one.selection.text: JudgedAnswer(*about, one.selection.text, one.answer, claim) for one in outcomes}
        return dict(zip(judged, self.parts.judge.rows(list(judged.values())), strict=True))


def _with_answers(outcome: Outcome, answers: Mapping[Prompt, Answer]) -> Outcome:
    question = outcome.query.question
    answer = answers.get((question, outcome.selection.text))
    original = None if outcome.is_whole else answers.get((question, outcome.original_text))
    return replace(
        outcome,
        answer=None if answer is None else answer.text,
        served_tokens=None if answer is None else answer.prompt_tokens,
        original_answer=None if original is None else original.text,
    )


def _row(outcome: Outcome) -> dict[str, Any]:
    trace = outcome.selection.trace
    estimated = None if trace.tokens_estimated is None else 1
    more = {"true_k": outcome.true_k, "reranker": trace.reranker, "answer": outcome.answer, "estimated": estimated}
    return {
        **measured(outcome),
        **{name: value for name, value in more.items() if value is not None},
        "ids": list(outcome.selection.ids),
        "ranking": ranking_of(outcome.shown_chunks, outcome.query.gold),
    }


def select(selector: Selector, query: Query, candidates: Sequence[Candidate], budget: Budget) -> Selection | Exception:
    """Return a selection, or why this question was too much for the selector."""
    try:
        return budget.select(selector, query.question, candidates)
    except DataError:
        raise  # files that cannot be used are no question's fault
    except FAILURES as error:
        return error


def cold_and_warm(
    selector: Selector, query: Query, candidates: Sequence[Candidate], budget: Budget
) -> dict[str, float] | None:
    """Return the milliseconds of a question's first selection, and of the same again; None if the selector fails.

    Cold: the caches of the whole process are empty, so that nothing is known of the question or of its candidates.
    """
    clear_caches()
    times = {}
    for name in ("latency_ms", "warm_latency_ms"):
        started = time.perf_counter()
        if isinstance(select(selector, query, candidates, budget), Exception):
            return None
        times[name] = 1000 * (time.perf_counter() - started)
    return times

"""Questions under every method: what each chose, what was read from it, and every measure of both."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from corag.budget import Budget
from corag.errors import BudgetError, DataError, InputError, ScoringError, SummarizerError
from corag.memory import clear_caches
from corag.text.data import Query
from corag.text.documents import Document
from corag.types import Answer, Candidate, Selection, Selector
from experiments.evaluation.judge import JudgedAnswer, claim_of
from experiments.evaluation.methods import SharedProblem
from experiments.evaluation.outcome import Outcome, Support
from experiments.evaluation.parts import Parts
from experiments.evaluation.rankings import ranking_of
from experiments.report.measures import measured

FAILURES = (InputError, BudgetError, ScoringError, SummarizerError)
"""What one question may be too much for; a missing package, model or server is a reason to stop."""

Rows = dict[str, dict[str, Any]]
"""The row of each method on one question."""
Prompt = tuple[str, str]
"""A question and a context that is to be read."""


class Chosen(NamedTuple):
    """What selectors chose for a question, and their rows, which lack what depends on answers; by selector."""

    outcomes: dict[str, Outcome]
    rows: Rows


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

        The contexts of all questions are read together, equal ones once. A selector that fails is noted with its
        error, and the others go on.
        """
        chosen = self.choose(questions)
        prompts = list(dict.fromkeys(prompt for one in chosen for prompt in self.prompts(one)))
        answers: dict[Prompt, Answer] = {}
        if self.parts.reader is not None and prompts:
            read = self.parts.reader.answer_many(*map(list, zip(*prompts, strict=True)))
            answers = dict(zip(prompts, read, strict=True))
        return self.measured(chosen, answers)

    def choose(self, questions: Sequence[tuple[Query, Sequence[Candidate]]]) -> list[Chosen]:
        """Let every selector choose for each question; those that can search for all questions in lock-step."""
        for selector in self.selectors.values():
            if isinstance(selector, SharedProblem):
                with suppress(*FAILURES):  # whichever question it is, is named below
                    names = [query.question for query, _ in questions]
                    budgets = map(self.budget.for_context, names)
                    selector.search_ahead(list(zip(names, (offered for _, offered in questions), budgets, strict=True)))
        return [self._choose(query, candidates) for query, candidates in questions]

    def prompts(self, chosen: Chosen) -> list[Prompt]:
        """Return what is to be read: the contexts that were chosen, and the chunks that a summary was made from."""
        if self.parts.reader is None:
            return []
        outcomes = [one for one in chosen.outcomes.values() if one.query.answers or not self.skip_unanswered]
        originals = [(one.query.question, one.original_text) for one in outcomes if not one.is_whole]
        prompts = [(one.query.question, one.selection.text) for one in outcomes]
        return list(dict.fromkeys([*prompts, *(pair for pair in originals if self.budget.fits_window(*pair))]))

    def measured(self, chosen: Sequence[Chosen], answers: Mapping[Prompt, Answer]) -> list[Rows]:
        """Return the rows of questions, given the answers to their prompts."""
        for one in chosen:
            read = {name: _with_answers(outcome, answers) for name, outcome in one.outcomes.items()}
            judged = self._judge(list(read.values()))
            for name, outcome in read.items():
                one.rows[name] |= {**_row(outcome), **judged.get(outcome.selection.text, {})}
        return [one.rows for one in chosen]

    def _choose(self, query: Query, candidates: Sequence[Candidate]) -> Chosen:
        outcomes: dict[str, Outcome] = {}
        rows: Rows = {}
        ranking = [candidate.chunk for candidate in candidates]
        support = Support.of(query, self.documents)
        shared = self.budget, self.parts.tokens, self.parts.embedder, support
        for name, selector in self.selectors.items():
            selection = select(selector, query, candidates, self.budget)
            if isinstance(selection, Exception):
                rows[name] = {"query": query.id, "failed": 1, "error": f"{type(selection).__name__}: {selection}"}
            else:
                rows[name] = {"query": query.id, "failed": 0}
                outcomes[name] = Outcome(query, selection, ranking, *shared)
        return Chosen(outcomes, rows)

    def _judge(self, outcomes: Sequence[Outcome]) -> dict[str, dict[str, Any]]:
        if self.parts.judge is None or not outcomes:
            return {}
        query = outcomes[0].query
        about, claim = (query.question, tuple(query.answers)), claim_of(query)
        judged = {one.selection.text: JudgedAnswer(*about, one.selection.text, one.answer, claim) for one in outcomes}
        return dict(zip(judged, self.parts.judge.rows(list(judged.values())), strict=True))


def _with_answers(outcome: Outcome, answers: Mapping[Prompt, Answer]) -> Outcome:
    question = outcome.query.question
    if (answer := answers.get((question, outcome.selection.text))) is None:
        return outcome
    original = None if outcome.is_whole else answers.get((question, outcome.original_text))
    outcome = replace(outcome, answer=answer.text, served_tokens=answer.prompt_tokens)
    return outcome if original is None else replace(outcome, original_answer=original.text)


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

"""Questions under every method: what each chose, and what was read from it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from corag.budget import Budget
from corag.errors import BudgetError, DataError, InputError, ScoringError, SummarizerError
from corag.readers.cached import CachedReader
from corag.text.data import Query
from corag.text.documents import Document
from corag.types import Answer, Candidate, Chunk, Embedder, Selection, Selector, TokenCounter
from experiments.evaluation.figures import (
    depth_figures,
    is_whole,
    original_text,
    parts_of,
    reading_figures,
    selection_figures,
    shown_chunks,
    summary_figures,
)
from experiments.evaluation.judging.figures import Reading
from experiments.evaluation.judging.judge import ReadingJudge
from experiments.evaluation.judging.verify import Verifier, claim_of, verdict_figures
from experiments.evaluation.metrics import redundancy
from experiments.evaluation.rankings import ranking_of
from experiments.evaluation.support import Support
from search import SearchError

NO_DOCUMENTS: Mapping[str, Document] = MappingProxyType({})
FAILURES = (InputError, BudgetError, ScoringError, SummarizerError, SearchError)
"""What one question may be too much for; a missing package, model or server is a reason to stop."""


@dataclass(frozen=True)
class _Chosen:
    """What every selector chose for a question."""

    query: Query
    ranking: Sequence[Chunk]
    selections: Mapping[str, Selection]
    rows: dict[str, dict[str, Any]]
    contexts: Sequence[str]


def measure(
    questions: Sequence[tuple[Query, Sequence[Candidate]]],
    selectors: Mapping[str, Selector],
    budget: Budget,
    tokens: TokenCounter,
    *,
    reader: CachedReader | None,
    embedder: Embedder,
    judge: ReadingJudge | None = None,
    verifier: Verifier | None = None,
    timed: bool = True,
    documents: Mapping[str, Document] = NO_DOCUMENTS,
) -> list[dict[str, dict[str, Any]]]:
    """Let every selector choose for each question, and return the rows of the questions, by selector.

    The contexts of all questions are read together, equal ones once; without a reader nothing is. A selector that fails
    is noted with its error, and the others go on. With `timed` rows have the milliseconds of the selection.

    Args:
        questions: Questions with their candidates.
        selectors: By name.
        budget: Of each prompt.
        tokens: Counts them.
        reader: Answers from what was chosen.
        embedder: Compares chunks and answers.
        judge: Judges answers and contexts.
        verifier: Decides, in place of a reader, what is to be verified of each question.
        timed: Whether selections are timed.
        documents: The corpus, which tells the supporting sentences.
    """
    chosen = [_choose(*question, selectors, budget, timed=timed) for question in questions]
    pairs = [(one.query.question, context) for one in chosen for context in one.contexts]
    found: dict[tuple[str, str], Answer] = {}
    if reader is not None and pairs:
        read = reader.answer_many([query for query, _ in pairs], [context for _, context in pairs])
        found = dict(zip(pairs, read, strict=True))
    verdicts = {} if verifier is None else _verdicts(chosen, verifier)
    rows = []
    for one in chosen:
        answers = {text: found[one.query.question, text] for text in one.contexts} if found else {}
        rows.append(_figures(one, answers, Support.of(one.query, documents), budget, tokens, embedder, judge))
        for name, selection in one.selections.items():
            rows[-1][name] |= verdicts.get((one.query.id, selection.text), {})
    return rows


def _verdicts(chosen: Sequence[_Chosen], verifier: Verifier) -> dict[tuple[str, str], dict[str, object]]:
    """Return the figures of the verdicts on all questions, by id and context."""
    asked = {
        (one.query.id, selection.text): claim
        for one in chosen
        if (claim := claim_of(one.query)) is not None
        for selection in one.selections.values()
    }
    claims = list(asked.values())
    found = verifier.verify(claims, [context for _, context in asked]) if claims else []
    return {key: verdict_figures(*pair) for key, pair in zip(asked, zip(claims, found, strict=True), strict=True)}


def _choose(
    query: Query, candidates: Sequence[Candidate], selectors: Mapping[str, Selector], budget: Budget, *, timed: bool
) -> _Chosen:
    rows: dict[str, dict[str, Any]] = {}
    selections: dict[str, Selection] = {}
    ranking = [candidate.chunk for candidate in candidates]
    for name, selector in selectors.items():
        found, latency_ms = select(selector, query, candidates, budget)
        if isinstance(found, Exception):
            rows[name] = {"query": query.id, "failed": 1, "error": f"{type(found).__name__}: {found}"}
        else:
            selections[name] = found
            rows[name] = {"query": query.id, "failed": 0, **({"latency_ms": latency_ms} if timed else {})}
    originals = [original_text(selection, ranking) for selection in selections.values() if not is_whole(selection)]
    originals = [text for text in originals if budget.fits_window(query.question, text)]
    contexts = [*(selection.text for selection in selections.values()), *originals]
    return _Chosen(query, ranking, selections, rows, contexts)


def _figures(
    chosen: _Chosen,
    read: Mapping[str, Answer],
    support: Support,
    budget: Budget,
    tokens: TokenCounter,
    embedder: Embedder,
    judge: ReadingJudge | None,
) -> dict[str, dict[str, Any]]:
    """Return the rows of a question, given the answer from each context; none where nothing is read."""
    query, rows = chosen.query, chosen.rows
    answers = {context: answer.text for context, answer in read.items()}
    judged: dict[str, dict[str, Any]] = {}
    if judge is not None and answers:
        texts = list(dict.fromkeys(selection.text for selection in chosen.selections.values()))
        readings = [Reading(query.question, tuple(query.answers), text, answers[text]) for text in texts]
        judged = dict(zip(texts, judge.figures(readings), strict=True))
    for name, selection in chosen.selections.items():
        rows[name] |= {
            **selection_figures(query, selection, tokens, budget),
            **depth_figures(query, selection, chosen.ranking),
            **support.figures(shown_chunks(selection), selection.text),
            "redundancy": redundancy(parts_of(selection), embedder),
            "ids": list(selection.ids),
            "ranking": ranking_of(shown_chunks(selection), query.gold),
        }
        if answers:
            answer = answers[selection.text]
            rows[name] |= {**reading_figures(query, answer), **judged.get(selection.text, {}), "answer": answer}
            rows[name] |= summary_figures(selection, chosen.ranking, answer, answers.get, tokens, embedder)
            if (served := read[selection.text].prompt_tokens) is not None:
                # What the model itself counted is the last word on whether the budget held.
                over = int(rows[name]["over_budget"] or budget.is_exceeded_by(served))
                rows[name] |= {"served_tokens": served, "over_budget": over}
    return rows


def select(
    selector: Selector, query: Query, candidates: Sequence[Candidate], budget: Budget
) -> tuple[Selection | Exception, float]:
    """Return a selection, or why this question was too much for the selector, and the milliseconds that it took."""
    started = time.perf_counter()
    try:
        found: Selection | Exception = budget.select(selector, query.question, candidates)
    except DataError:
        # Files that cannot be used are no question's fault.
        raise
    except FAILURES as error:
        found = error
    return found, 1000 * (time.perf_counter() - started)

"""Questions under every method: what each chose, what was read from it, and the averages of these figures."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from corag.budget import Budget
from corag.errors import BudgetError, DataError, InputError, ScoringError, SummarizerError
from corag.readers.cached import CachedReader
from corag.text.data import Query
from corag.text.documents import SEPARATOR, Document
from corag.text.units import source_of
from corag.types import Answer, Candidate, Chunk, Embedder, FloatArray, Selection, Selector, TokenCounter
from experiments.evaluation.judge import Judge
from experiments.evaluation.metrics import (
    answer_figures,
    answer_similarity,
    change_in_tokens,
    evidence_figures,
    evidence_places,
    redundancy,
    substring_match,
    trade_off_efficiency,
)
from experiments.evaluation.rankings import ranking_of
from experiments.evaluation.support import Support
from search import SearchError

Row = Mapping[str, Any]
"""Figures of one method on one question; a figure that the question does not have is left out."""

MEANS = (
    "rouge1", "rouge2", "rougeL", "f1", "em", "sub_em", "evidence_recall", "evidence_precision", "full_evidence",
    "context_recall", "cost_tokens", "chunks", "scorer_calls", "orders_scored", "value",
)  # fmt: skip
"""Figures that are averaged over the questions that have them; 0 where none has."""
SOME_MEANS = (
    "sentence_recall", "full_sentences", "answer_in_context", "diff_k", "redundancy", "change_in_tokens",
    "answer_similarity", "prompt_tokens", "served_tokens",
)  # fmt: skip
"""The same, of which some methods have none at all: null then, not 0."""
OF_ANSWERS = ("rouge1", "rouge2", "rougeL", "f1", "em", "sub_em")
"""Figures that are null where nothing is read."""
TOTALS = ("over_budget", "truncated", "empty", "failed")
"""Figures that are added up over questions."""

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
    judge: Judge | None = None,
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
        judge: Grades the answers.
        timed: Whether selections are timed.
        documents: The corpus, which tells the supporting sentences.
    """
    chosen = [_choose(*question, selectors, budget, timed=timed) for question in questions]
    pairs = [(one.query.question, context) for one in chosen for context in one.contexts]
    found: dict[tuple[str, str], Answer] = {}
    if reader is not None and pairs:
        read = reader.answer_many([query for query, _ in pairs], [context for _, context in pairs])
        found = dict(zip(pairs, read, strict=True))
    rows = []
    for one in chosen:
        answers = {text: found[one.query.question, text] for text in one.contexts} if found else {}
        rows.append(_figures(one, answers, Support.of(one.query, documents), budget, tokens, embedder, judge))
    return rows


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
    originals = [_original(selection, ranking) for selection in selections.values() if not _is_whole(selection)]
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
    judge: Judge | None,
) -> dict[str, dict[str, Any]]:
    """Return the rows of a question, given the answer from each context; none where nothing is read."""
    query, rows = chosen.query, chosen.rows
    answers = {context: answer.text for context, answer in read.items()}
    grades: dict[str, dict[str, Any]] = {}
    if judge is not None and query.answers:
        texts = list(dict.fromkeys(answers[selection.text] for selection in chosen.selections.values() if answers))
        for text, (grade, reason) in zip(texts, judge.judge(query.question, texts, query.answers), strict=True):
            graded = {"judge_error": reason} if grade is None else {"judge": grade}
            grades[text] = {**graded, "judge_unusable": int(grade is None)}
    for name, selection in chosen.selections.items():
        rows[name] |= {
            **selection_figures(query, selection, tokens, budget),
            **depth_figures(query, selection, chosen.ranking),
            **support.figures(_shown(selection), selection.text),
            "redundancy": redundancy(_parts(selection), embedder),
            "ids": list(selection.ids),
            "ranking": ranking_of(_shown(selection), query.gold),
        }
        if answers:
            answer = answers[selection.text]
            rows[name] |= {**reading_figures(query, answer), **grades.get(answer, {}), "answer": answer}
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


def selection_figures(
    query: Query, selection: Selection, tokens: TokenCounter, budget: Budget | None = None
) -> dict[str, Any]:
    """Return the figures of one selection by itself; with a budget for a prompt, those of the prompt, too."""
    # Counted anew: whether a budget holds is not left to the word of the selector that had to keep it.
    cost = int(tokens.count([selection.text])[0]) if selection.text else 0
    prompt = None if budget is None else budget.prompt_tokens(query.question, selection.text)
    too_long = budget is not None and budget.excess(query.question, selection.text) > 0
    trace = selection.trace
    taken = evidence_figures(selection.chunks, query.gold)
    return {
        **(evidence_figures(_shown(selection), query.gold) or {}),
        **({} if taken is None else {"context_recall": taken["evidence_recall"]}),
        "cost_tokens": cost,
        "chunks": len(selection),
        "over_budget": int(cost > selection.budget_tokens or too_long),
        "empty": int(len(selection) == 0),
        "value": selection.value,
        "scorer_calls": trace.scorer_calls,
        "orders_scored": trace.orders_scored,
        "truncated": trace.truncated,
        **({} if trace.reranker is None else {"reranker": trace.reranker}),
        **({} if prompt is None else {"prompt_tokens": prompt}),
        **({} if trace.tokens_estimated is None else {"estimated": 1}),
    }


def reading_figures(query: Query, answer: str) -> dict[str, float]:
    """Return the figures of an answer; nothing for a question without known answers."""
    if not query.answers:
        return {}
    return {**answer_figures(answer, query.answers), "sub_em": substring_match(answer, query.answers)}


def depth_figures(query: Query, selection: Selection, ranking: Sequence[Chunk]) -> dict[str, int]:
    """Return how deep in the ranking the evidence lies, and how far from it the number of chunks chosen is."""
    places = evidence_places(ranking, query.gold)
    num_chunks = len({source_of(chunk).id for chunk in selection.chunks})
    return {} if places is None else {"true_k": places[-1] + 1, "diff_k": abs(num_chunks - places[-1] - 1)}


def summary_figures(
    selection: Selection,
    ranking: Sequence[Chunk],
    answer: str,
    answer_from: Callable[[str], str | None],
    tokens: TokenCounter,
    embedder: Embedder,
) -> dict[str, float]:
    """Return what summarizing changed: tokens and answer, against the chunks that were summarized as they are.

    Nothing for a selection of whole chunks, and no similarity where the chunks were too long to be read.
    """
    if _is_whole(selection):
        return {}
    original = _original(selection, ranking)
    num_tokens, before = tokens.count([selection.text, original]).tolist()
    figures = {"change_in_tokens": change_in_tokens(num_tokens, before)}
    if (other := answer_from(original)) is None:
        return figures
    alike = answer_similarity(answer, other, embedder) if answer and other else float(answer == other)
    return {**figures, "answer_similarity": alike}


def _shown(selection: Selection) -> list[Chunk]:
    """Return the chunks whose text is there; of one that went into a summary nobody knows what is left."""
    if selection.spans:
        return list(selection.chunks)
    return [chunk for chunk in selection.chunks if chunk.text in selection.text]


def _original(selection: Selection, ranking: Sequence[Chunk]) -> str:
    """Return the joined chunks that a selection was made from."""
    # In the order of the ranking, so that methods which sum up the same chunks share one answer.
    sources = {source_of(chunk).id for chunk in selection.chunks}
    return SEPARATOR.join(chunk.text for chunk in ranking if chunk.id in sources)


def _is_whole(selection: Selection) -> bool:
    return bool(selection.spans) or selection.text == SEPARATOR.join(chunk.text for chunk in selection.chunks)


def _parts(selection: Selection) -> list[str]:
    """Return the chunks, or of a selection with a text of its own the parts that empty lines divide."""
    if _is_whole(selection):
        return [chunk.text for chunk in selection.chunks]
    return [part for part in selection.text.split(SEPARATOR) if part.strip()]


def average(rows: Sequence[Row]) -> dict[str, Any]:
    """Return means, totals and latency quantiles of a method's rows.

    Questions on which the method failed are counted, and in no other figure. `tes` is over those with gold. Grades of
    a judge, and the number of its replies without one, are there only if a judge was asked.
    """
    means = {name: [float(row[name]) for row in rows if name in row] for name in (*MEANS, *SOME_MEANS, "judge")}
    averages = {name: float(np.mean(values)) if values else None for name, values in means.items()}
    grade = averages.pop("judge")
    found = [(row["full_evidence"], row["chunks"]) for row in rows if "full_evidence" in row]
    errors = [row["error"] for row in rows if "error" in row]
    unusable = [row["judge_unusable"] for row in rows if "judge_unusable" in row]
    return {
        **{name: 0.0 if value is None and name in MEANS else value for name, value in averages.items()},
        "tes": mean_tes(np.array(found)) if found else None,
        **{name: int(sum(row.get(name, 0) for row in rows)) for name in TOTALS},
        **latency_figures([row["latency_ms"] for row in rows if "latency_ms" in row] or [0.0]),
        **({"judge": grade, "judge_unusable": sum(unusable)} if unusable else {}),
        **({"error": errors[0]} if errors else {}),
    }


def latency_figures(latencies_ms: Sequence[float]) -> dict[str, float | None]:
    """Return median and 95% quantile; None without any."""
    quantiles = np.percentile(latencies_ms, [50, 95]).tolist() if len(latencies_ms) else [None, None]
    return dict(zip(("latency_ms_median", "latency_ms_p95"), quantiles, strict=True))


def mean_tes(accuracy_and_chunks: FloatArray) -> float:
    """Return the trade-off efficiency score of questions, `[q, 2]`: how much of the evidence was found, and chunks."""
    return trade_off_efficiency(*accuracy_and_chunks.mean(axis=0).tolist())

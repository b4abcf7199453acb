"""Figures of one selection, of the answer that was read from it, and of what summarizing changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from corag.budget import Budget
from corag.text.data import Query
from corag.text.documents import SEPARATOR
from corag.text.units import source_of
from corag.types import Chunk, Embedder, Selection, TokenCounter
from experiments.evaluation.metrics import (
    answer_figures,
    answer_similarity,
    change_in_tokens,
    evidence_figures,
    evidence_places,
    substring_match,
)


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
        **(evidence_figures(shown_chunks(selection), query.gold) or {}),
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
    if is_whole(selection):
        return {}
    original = original_text(selection, ranking)
    num_tokens, before = tokens.count([selection.text, original]).tolist()
    figures = {"change_in_tokens": change_in_tokens(num_tokens, before)}
    if (other := answer_from(original)) is None:
        return figures
    alike = answer_similarity(answer, other, embedder) if answer and other else float(answer == other)
    return {**figures, "answer_similarity": alike}


def shown_chunks(selection: Selection) -> list[Chunk]:
    """Return the chunks whose text is there; of one that went into a summary nobody knows what is left."""
    if selection.spans:
        return list(selection.chunks)
    return [chunk for chunk in selection.chunks if chunk.text in selection.text]


def original_text(selection: Selection, ranking: Sequence[Chunk]) -> str:
    """Return the joined chunks that a selection was made from."""
    # In the order of the ranking, so that methods which sum up the same chunks share one answer.
    sources = {source_of(chunk).id for chunk in selection.chunks}
    return SEPARATOR.join(chunk.text for chunk in ranking if chunk.id in sources)


def is_whole(selection: Selection) -> bool:
    """Return whether a selection is made of chunks as they are, or of their sentences."""
    return bool(selection.spans) or selection.text == SEPARATOR.join(chunk.text for chunk in selection.chunks)


def parts_of(selection: Selection) -> list[str]:
    """Return the chunks, or of a selection with a text of its own the parts that empty lines divide."""
    if is_whole(selection):
        return [chunk.text for chunk in selection.chunks]
    return [part for part in selection.text.split(SEPARATOR) if part.strip()]

"""What selectors that follow the retriever's ranking share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from corag.selectors.base import Choice, Problem, fill
from corag.types import Order


def by_similarity(problem: Problem) -> list[int]:
    """Return the candidates most similar first; of equal ones the one that was given first."""
    return sorted(range(len(problem.chunks)), key=lambda index: (-problem.similarities[index], index))


def keep_best(problem: Problem, count: int, budget_tokens: int) -> Order:
    """Return those of the `count` most similar candidates that fit, best first.

    When none of them fits, the most similar candidate that does stands in: one worse chunk serves a reader better
    than none.
    """
    ranking = by_similarity(problem)
    return fill(ranking[:count], problem.costs, budget_tokens) or fill(ranking, problem.costs, budget_tokens, 1)


def unscored(problem: Problem, order: Order, trace: Mapping[str, Any] | None = None) -> Choice:
    """Return a choice that no reranker valued: its value is the mean similarity of what was chosen."""
    # The value of a ranking is not the value of a combination; the mean similarity is what is known.
    value = float(problem.similarities[list(order)].mean()) if order else 0.0
    return Choice(order, value, {"orders_scored": 0, "scorer_calls": 0, **(trace or {})})

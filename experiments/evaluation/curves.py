"""The curves of quality against tokens: `corag` over lambda, a threshold over thresholds, filling over budgets."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from corag.types import PromptedReader
from experiments.evaluation.parts import Parts
from experiments.report.results import DEFAULT, CurvePoint

MOST_QUESTIONS = 100
"""Questions of a set, drawn at random, that the curves are made of."""
LAMBDAS = (0, 0.05, 0.1, 0.2, 0.4, 0.8)
THRESHOLDS = (0.1, 0.2, 0.35, 0.5, 0.7, 0.9)
SMALLEST_BUDGET, NUM_BUDGETS = 32, 6
MEASURES = ("f1", "rougeL", "evidence_recall", "answer_in_context", "cost_tokens")
"""What is measured; the redundancy of sentences, say, would take longer than to select them."""


def points(budget: int) -> list[CurvePoint]:
    """Return the points of all curves, given the largest budget."""
    budgets = np.geomspace(min(SMALLEST_BUDGET, budget), budget, NUM_BUDGETS).round().astype(int)
    settings = {"corag(cost_weight={})": LAMBDAS, "sentence-threshold(threshold={})": THRESHOLDS}
    return [
        CurvePoint(DEFAULT, "corag", budget),
        *(
            CurvePoint(text.partition("(")[0], text.format(value), budget)
            for text, of in settings.items()
            for value in of
        ),
        *(CurvePoint("naive", "naive", tokens) for tokens in dict.fromkeys(budgets.tolist())),
    ]


def reads(parts: Parts) -> bool:
    """Whether contexts of curves are read: a language model's time, and price, is for the table alone."""
    return parts.reader is not None and not isinstance(parts.prompted, PromptedReader)


@contextmanager
def small_budgets() -> Iterator[None]:
    """Silence the warning that few candidates fit: on a curve that is on purpose."""
    logger = logging.getLogger("corag.optional")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)

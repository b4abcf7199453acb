"""The curves of quality against tokens: `corag` over lambda, a threshold over thresholds, filling over budgets."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from corag.text.data import Query
from corag.text.documents import Document
from corag.types import Candidate, Selector
from experiments.evaluation.measure import Measuring, Rows
from experiments.evaluation.parts import Parts
from experiments.report.results import DEFAULT, CurvePoint

FEWEST_QUESTIONS, MOST_QUESTIONS = 10, 100
"""The curves use a third of a set's questions, drawn at random; these are the minimum and the maximum."""
LAMBDAS = (0, 0.05, 0.1, 0.2, 0.4, 0.8)
THRESHOLDS = (0.1, 0.2, 0.35, 0.5, 0.7, 0.9)
SMALLEST_BUDGET, NUM_BUDGETS = 32, 6
OF_CONTEXT = ("answer_recall", "evidence", "kept", "evidence_recall", "cost_tokens")
"""What is measured: what contexts hold, which takes no reader."""


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


def curve_rows(
    points: Sequence[CurvePoint],
    selectors: Mapping[str, Selector],
    parts: Parts,
    documents: Mapping[str, Document],
    question: tuple[Query, Sequence[Candidate]],
) -> Rows:
    """Return the row of each point, by its label, on a question; `selectors` has their methods."""
    rows: Rows = {}
    for tokens in dict.fromkeys(one.budget for one in points):
        of_budget = {one.label: selectors[one.method] for one in points if one.budget == tokens}
        measuring = Measuring(of_budget, parts.budget(tokens), parts, documents=documents, measures=OF_CONTEXT)
        with _small_budgets():
            rows |= measuring.rows([question])[0]
    return rows


@contextmanager
def _small_budgets() -> Iterator[None]:
    """Silence the warning that few candidates fit: on a curve that is on purpose."""
    logger = logging.getLogger("corag.optional")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)

"""The curves of quality against tokens: `corag` over lambda, a threshold over thresholds, filling over budgets."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from corag.naming import Spelling, parse
from corag.registry import SELECTORS
from corag.selectors.corag.agents import NO_AGENT
from corag.selectors.problem import SelectionProblem
from corag.selectors.reranking import DEFAULT_RERANKER
from corag.text.data import Query
from corag.text.documents import Document
from corag.types import Candidate, Selector
from experiments.evaluation.measure import FAILURES, Measuring, Rows
from experiments.evaluation.methods import with_shared_problem
from experiments.evaluation.parts import Parts
from experiments.report.results import CHALLENGER, DEFAULT, CurvePoint

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


class CurveMeasuring:
    """Measures points, whose selectors share problems and rerankers, so that only their searches differ.

    Lambda replaces that of the configuration that the agent names for a question, as in `corag(cost_weight=...)`.
    Without a `reranker`, the agent chooses it, and simple methods have their default.
    """

    def __init__(
        self, parts: Parts, points: Sequence[CurvePoint], reranker: Spelling | None, documents: Mapping[str, Document]
    ) -> None:
        self._parts, self._points, self._reranker, self._documents = parts, points, reranker, documents
        self._built: dict[str, Selector] = {}
        self._problems: dict[Any, SelectionProblem] = {}
        self._corag: Any = parts.methods("corag").selectors["corag"]

    def rows(self, query: Query, candidates: Sequence[Candidate]) -> Rows:
        """Return the row of each point, by its label, on a question."""
        self._problems.clear()
        budgets = {one.budget: self._parts.budget(one.budget) for one in self._points}
        try:
            largest = budgets[max(budgets)].for_context(query.question)
            prediction = self._corag.predict(query.question, candidates, largest)
        except FAILURES:
            prediction = None  # each point then fails by itself, which its row says
        named = None if prediction is None else str(prediction)
        rows: Rows = {}
        for tokens, budget in budgets.items():
            selectors = {one.label: self._selector(one, named) for one in self._points if one.budget == tokens}
            measuring = Measuring(selectors, budget, self._parts, False, documents=self._documents, measures=OF_CONTEXT)
            with _small_budgets():
                rows |= measuring.rows([(query, candidates)])[0]
        return rows

    def _selector(self, point: CurvePoint, named: str | None) -> Selector:
        written = parse(point.method)
        if written.name != CHALLENGER:
            written = written.with_settings(reranker=self._reranker or DEFAULT_RERANKER)
        elif named is not None:
            takes = SELECTORS.settings(named)
            settings = {name: value for name, value in written.settings.items() if name in takes}
            written = parse(named).with_settings(**settings, **({"agent": NO_AGENT} if "agent" in takes else {}))
        if (spelled := str(written)) not in self._built:
            self._built[spelled] = self._parts.methods((spelled,)).selectors[spelled]
        return with_shared_problem(self._built[spelled], spelled, self._problems)


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

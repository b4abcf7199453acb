"""Selectors that value orders with a reranker but do not search: `naive` fills greedily, `upper` scores every order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import search
from corag.errors import search_errors
from corag.naming import Spelling
from corag.progress import step
from corag.registry import reranker as make_reranker
from corag.rerankers.scorers import CachedScorer
from corag.rerankers.window import DEFAULT_POLICY, WindowPolicy, check_policy
from corag.selectors.base import BudgetedSelector, Choice, fill
from corag.selectors.problem import Limits, SelectionProblem
from corag.text.units import PASSAGE, Unit
from corag.types import FloatArray, Order, Reranker

PASSAGE_RERANKER = "minilm-multihop"
"""Best of six on the mean of eight data sets, and better answers than with `minilm-softsim` on two of three; see
experiments/LOG.md."""
SENTENCE_RERANKER = "minilm-sentence"
"""Finds sentences that support an answer more often than `PASSAGE_RERANKER`, which learned from passages; see
experiments/LOG.md."""
MAX_CACHED = 25_000
"""Values of a question that `upper` keeps for others that need them; more would fill the memory."""


def default_reranker(unit: Unit = PASSAGE) -> str:
    """Return the name of the reranker that is used if none is given."""
    return PASSAGE_RERANKER if unit.size is None else SENTENCE_RERANKER


@dataclass(kw_only=True, eq=False)
class RerankingSelector(BudgetedSelector):
    """A selector with one reranker.

    Args:
        reranker: Name or object; None for `default_reranker`.
        window: How orders longer than the reranker's window are valued; see `corag.rerankers.window`.
    """

    reranker: Spelling | Reranker | None = None
    window: WindowPolicy = DEFAULT_POLICY

    def __post_init__(self) -> None:
        super().__post_init__()
        check_policy(self.window)
        self.reranker = self._reranker = make_reranker(self.reranker or default_reranker(self._unit))

    def _scorer(self, problem: SelectionProblem) -> CachedScorer:
        """Return what values orders of a problem."""
        return problem.scorer(self._reranker, self.window)

    def _choice(
        self, problem: SelectionProblem, scorer: CachedScorer, limits: Limits, order: Order, value: float, **counts: int
    ) -> Choice:
        trace: dict[str, Any] = {"reranker": scorer.name, **counts, "truncated": scorer.num_truncated}
        return Choice(order, value, {**trace, **problem.window_trace(scorer, limits)})


class Naive(RerankingSelector):
    """Reranks chunk by chunk and fills the budget greedily, as most RAG systems do.

    Every chunk that fits is valued by itself; the best that still fits is taken until nothing fits. Settings: see
    `RerankingSelector`.
    """

    name = "naive"

    def _choose(self, problem: SelectionProblem) -> Choice:
        scorer = self._scorer(problem)
        limits = problem.limits(scorer)
        offered = limits.fitting
        singles = scorer([(index,) for index in offered.tolist()])
        order = fill(offered[np.argsort(-singles, kind="stable")].tolist(), limits.costs, limits.budget)
        value = float(scorer([order])[0]) if order else 0.0
        while self.window == "forbid" and order in scorer.overlong_orders:
            # Its length is not always the sum of its parts' lengths; alone, every chunk fits.
            order = order[:-1]
            value = float(scorer([order])[0])
        return self._choice(problem, scorer, limits, order, value, orders_scored=len(singles), scorer_calls=1)


@dataclass(kw_only=True, eq=False)
class Upper(RerankingSelector):
    """Scores every ordered combination of a few chunks: the best value there is, at the price of scoring everything.

    The paper's CORAG Upper: fewer than six chunks. Orders are made and scored batch by batch; beyond `MAX_CACHED` no
    value is kept. Long runs report to `corag.progress`, which commands show.

    Args:
        max_length: The most chunks of a combination.
        max_orders: The most orders to score; with more, an error instead of a run that takes hours. By default enough
            for the paper's 123,520: 20 chunks of 256 tokens at 1,024 tokens. If the order of chunks does not matter
            to the reranker, each set counts once.

    Other settings: see `RerankingSelector`.
    """

    max_length: int = 5
    max_orders: int = 200_000
    name = "upper"

    def _choose(self, problem: SelectionProblem) -> Choice:
        scorer = self._scorer(problem)
        limits = problem.limits(scorer)
        with step(f"{self.name}, orders") as report, search_errors():
            result = search.exhaustive(
                limits.costs, partial(_values, scorer), limits.budget, self.max_length,
                max_orders=self.max_orders, ordered=scorer.order_matters, report=report,
            )  # fmt: skip
        counts = {"orders_scored": result.num_scored, "scorer_calls": result.num_calls}
        return self._choice(problem, scorer, limits, result.order, result.value, **counts)


def _values(scorer: CachedScorer, orders: Sequence[Order]) -> FloatArray:
    """Return the values of orders, `[len(orders)]`, kept as long as they are few."""
    return scorer(orders) if scorer.num_computed < MAX_CACHED else scorer.passing(orders)

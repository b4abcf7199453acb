"""Selectors that value orders with a reranker but do not search: `naive` fills greedily, `upper` scores every order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

import search
from corag.ambient import Ambient
from corag.checks import check_choice
from corag.errors import search_errors
from corag.naming import Spelling
from corag.progress import step
from corag.registry import RERANKERS
from corag.rerankers.scorers import CachedScorer
from corag.rerankers.window import DEFAULT_POLICY, WindowPolicy
from corag.selectors.base import BudgetedSelector, Choice, checked, fill
from corag.selectors.problem import SelectionProblem
from corag.types import FloatArray, Order, Reranker

DEFAULT_RERANKER = "minilm-evidence"
"""Trained on passages and on sentences."""
SHARED: Ambient[Mapping[str, Any]] = Ambient(MappingProxyType({}))
"""Settings offered to the rerankers of all selectors that are built in a block, such as one `encoder`."""
MAX_CACHED = 25_000
"""Values of a question that `upper` keeps for others that need them; more would fill the memory."""


@dataclass(kw_only=True, eq=False)
class RerankingSelector(BudgetedSelector):
    """A selector with one reranker.

    Args:
        reranker: Name or object; None for `DEFAULT_RERANKER`.
        window: How orders longer than the reranker's window are valued; see `corag.rerankers.window`.
    """

    reranker: Spelling | Reranker | None = None
    window: WindowPolicy = checked(DEFAULT_POLICY, check_choice, names=WindowPolicy)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.reranker = self._reranker = RERANKERS.offer(self.reranker or DEFAULT_RERANKER, self._offered())

    def _offered(self) -> Mapping[str, Any]:
        """Return the settings that a reranker given by name gets, as far as it takes them."""
        return SHARED.get()

    def _scorer(self, problem: SelectionProblem) -> CachedScorer:
        """Return what values orders of a problem."""
        return problem.scorer(self._reranker, self.window)

    def _scored(self, problem: SelectionProblem, order: Order, value: float, **others: Any) -> Choice:
        """Return a choice with what the trace of all selectors with a reranker has."""
        scorer = self._scorer(problem)
        alone = scorer([(index,) for index in order]).tolist()
        of_scorer = {"reranker": scorer.name, "truncated": scorer.num_truncated, "chunk_values": alone}
        return Choice(order, value, {**of_scorer, **others})


class Naive(RerankingSelector):
    """Reranks chunk by chunk and fills the budget greedily, as most RAG systems do.

    Every chunk that fits is valued by itself; the best that still fits is taken until nothing fits. Settings: see
    `RerankingSelector`.
    """

    name = "naive"

    def _choose(self, problem: SelectionProblem) -> Choice:
        scorer, offered = self._scorer(problem), problem.fitting
        singles = scorer([(index,) for index in offered])
        ranking = [offered[row] for row in np.argsort(-singles, kind="stable")]
        order = fill(ranking, problem.costs, problem.capacity)
        value = float(scorer([order])[0]) if order else 0.0
        return self._scored(problem, order, value, orders_scored=len(singles), scorer_calls=1)


@dataclass(kw_only=True, eq=False)
class Upper(RerankingSelector):
    """Scores every ordered combination of a few chunks: the best possible value, at the cost of scoring everything.

    The paper's CORAG Upper: fewer than six chunks. Orders are made and scored batch by batch; beyond `MAX_CACHED` no
    value is kept. Long runs report to `corag.progress`, which commands show.

    Args:
        max_length: The most chunks of a combination.
        max_orders: The most orders to score; with more, an error instead of a run that takes hours. By default enough
            for the paper's 123,520: 20 chunks of 256 tokens at 1,024 tokens. If the order of chunks does not matter
            to the reranker, each set counts once.
    """

    max_length: int = 5
    max_orders: int = 200_000
    name = "upper"

    def _choose(self, problem: SelectionProblem) -> Choice:
        scorer = self._scorer(problem)

        def values(orders: Sequence[Order]) -> FloatArray:
            return scorer(orders) if scorer.num_computed < MAX_CACHED else scorer.passing(orders)

        with step(f"{self.name}, orders") as report, search_errors():
            found = search.exhaustive(
                problem.costs, values, problem.capacity, self.max_length,
                max_orders=self.max_orders, ordered=scorer.order_matters, report=report,
            )  # fmt: skip
        counts = {"orders_scored": found.num_scored, "scorer_calls": found.num_calls}
        return self._scored(problem, found.order, found.value, **counts)

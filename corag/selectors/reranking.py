"""Selectors that have values of a reranker but no search.

`naive` fills greedily, `sentence-threshold` takes every sentence whose own value is high enough, `upper` scores every
order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import search
from common.checks import check_count, check_range
from corag.ambient import check_cancelled
from corag.selectors.base import Choice, RerankingSelector, checked, fill
from corag.selectors.problem import SelectionProblem
from corag.text.units import UnitChunk, source_of
from corag.types import Order


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

    The paper's CORAG Upper: fewer than six chunks. Orders are made and scored batch by batch; no value is kept.

    Args:
        max_length: The most chunks of a combination.
        max_orders: The most orders to score; with more, an error instead of a run that takes hours. By default enough
            for the paper's 123,520: 20 chunks of 256 tokens at 1,024 tokens. If the order of chunks does not matter
            to the reranker, each set counts once.
    """

    max_length: int = checked(5, check_count, hint="typical: 5")
    max_orders: int = checked(200_000, check_count, hint="typical: 200000")
    name = "upper"

    def _choose(self, problem: SelectionProblem) -> Choice:
        scorer = self._scorer(problem)
        found = search.exhaustive(
            problem.costs, scorer.passing, problem.capacity, self.max_length, max_orders=self.max_orders,
            ordered=scorer.order_matters, check=check_cancelled,
        )  # fmt: skip
        counts = {"orders_scored": found.num_scored, "scorer_calls": found.num_calls}
        return self._scored(problem, found.order, found.value, **counts)


@dataclass(kw_only=True, eq=False)
class SentenceThreshold(RerankingSelector):
    """Takes every sentence whose own value is high enough, passage by passage in rank order, as far as they fit.

    The rule of Provence (Chirkova et al., "Provence: efficient and robust context pruning for retrieval-augmented
    generation", 2025, arXiv 2501.16214, section 3), in which whole sentences stay if the model's score for them reaches
    a threshold. The paper's trained model is not part of this: the score is that of any reranker.

    Args:
        threshold: The least value of a sentence, as a share of the best one's, in [0, 1].
    """

    threshold: float = checked(0.5, check_range, low=0, high=1, hint="typical: 0.1 to 0.7")
    unit: str = "sentence"
    name = "sentence-threshold"

    def _choose(self, problem: SelectionProblem) -> Choice:
        offered = _by_passage(problem)
        scorer = self._scorer(problem)
        values = dict(zip(offered, scorer([(index,) for index in offered]).tolist(), strict=True))
        threshold = self.threshold * max(values.values(), default=0.0)
        kept = [index for index in offered if values[index] >= threshold]
        best_first = sorted(offered, key=lambda index: -values[index])
        order = fill(kept, problem.costs, problem.capacity) or fill(best_first, problem.costs, problem.capacity, 1)
        trace: dict[str, Any] = {"threshold": threshold, "passing": len(kept)}
        value = float(np.mean([values[index] for index in order])) if order else 0.0
        return self._scored(problem, order, value, orders_scored=len(offered), scorer_calls=1, **trace)


def _by_passage(problem: SelectionProblem) -> Order:
    """Return all that can be chosen: passage by passage as they are ranked, the units of each in its order."""
    passages = problem.passages
    ranks = {passages.chunks[index].id: rank for rank, index in enumerate(passages.ranking)}
    found = []
    for index, unit in enumerate(problem.chunks):
        start = unit.span[0] + unit.shift if isinstance(unit, UnitChunk) else 0
        # A unit of another selection may be given as a passage.
        found.append((ranks[unit.id if unit.id in ranks else source_of(unit).id], start, index))
    return tuple(index for *_, index in sorted(found))

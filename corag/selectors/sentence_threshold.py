"""`sentence-threshold`: every sentence whose own value is high enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from corag.checks import check_count, check_range
from corag.selectors.base import Choice, checked, fill
from corag.selectors.problem import SelectionProblem
from corag.selectors.reranking import RerankingSelector
from corag.text.units import UnitChunk, source_of
from corag.types import Chunk, Order


def units_of(problem: SelectionProblem, passages: Sequence[int]) -> Order:
    """Return the units of some of `problem.passages`: passage by passage as given, those of each in its order.

    A unit that several passages share, because they overlap or repeat it, is set up once; it is a unit of each.
    """
    given = [problem.passages.chunks[index] for index in passages]
    ranks = {chunk.id: rank for rank, chunk in reversed([*enumerate(given)])}
    found = []
    for index, unit in enumerate(problem.chunks):
        rank, document, start = ranks.get(source_of(unit).id), unit.id, 0
        if isinstance(unit, UnitChunk):
            document, start = unit.document, unit.span[0] + unit.shift
            if rank is None:
                rank = next((rank for rank, chunk in enumerate(given) if _contains(chunk, unit)), None)
        if rank is not None:
            found.append((rank, document, start, index))
    return tuple(index for *_, index in sorted(found))


def _contains(chunk: Chunk, unit: UnitChunk) -> bool:
    """Return whether a passage with the title of a unit's source has its words."""
    source, (start, end) = unit.source.text, unit.span
    return chunk.text.startswith(source[: unit.body]) and source[start:end] in chunk.text[unit.body :]


@dataclass(kw_only=True, eq=False)
class SentenceThreshold(RerankingSelector):
    """Takes every sentence whose own value is high enough, passage by passage in rank order, as far as they fit.

    The rule of Provence (Chirkova et al., "Provence: efficient and robust context pruning for retrieval-augmented
    generation", 2025, arXiv 2501.16214, section 3), in which whole sentences stay if the model's score for them reaches
    a threshold. The paper's trained model is not part of this: the score is that of any reranker.

    Args:
        threshold: The least value of a sentence, in [0, 1].
        relative: Whether the threshold is a share of the best sentence's value, which makes it mean about the same for
            every reranker.
        at_least: Sentences to keep, best first, even if fewer pass; 0 allows an empty selection.
        k: The most passages to look at, best-ranked first; None for all.
    """

    threshold: float = checked(0.5, check_range, low=0, high=1, hint="typical: 0.1 to 0.7")
    relative: bool = True
    at_least: int = checked(1, check_count, hint="typical: 1", least=0)
    k: int | None = checked(None, check_count, hint="typical: 5")
    unit: str = "sentence"
    name = "sentence-threshold"

    def _choose(self, problem: SelectionProblem) -> Choice:
        offered = units_of(problem, problem.passages.ranking[: self.k])
        scorer = self._scorer(problem)
        values = dict(zip(offered, scorer([(index,) for index in offered]).tolist(), strict=True))
        best_first = sorted(offered, key=lambda index: -values[index])
        best = values[best_first[0]] if best_first else 0.0
        threshold = self.threshold * best if self.relative else self.threshold
        kept = {index for index in offered if values[index] >= threshold} | set(best_first[: self.at_least])
        order = fill([index for index in offered if index in kept], problem.costs, problem.capacity)
        if self.at_least and not order:
            order = fill(best_first, problem.costs, problem.capacity, 1)
        trace: dict[str, Any] = {"threshold": threshold, "passing": len(kept)}
        if not kept:
            trace["reason"] = f"no sentence has a value of at least {threshold:.3g}; the best has {best:.3g}"
        value = float(np.mean([values[index] for index in order])) if order else 0.0
        return self._scored(problem, order, value, orders_scored=len(offered), scorer_calls=1, **trace)

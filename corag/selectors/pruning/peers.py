"""Methods of others that choose sentences one by one: pruning by a threshold, and extractive compression."""

from __future__ import annotations

import numpy as np

from corag.checks import check_count, check_range
from corag.models.cached import CachedEmbedder
from corag.naming import Spelling
from corag.registry import reranker as make_reranker
from corag.registry import tokens as make_tokens
from corag.rerankers.window import DEFAULT_POLICY, WindowPolicy, check_policy
from corag.selectors.base import BudgetedSelector, Choice, fill, unscored
from corag.selectors.problem import SelectionProblem
from corag.selectors.pruning.order import units_of
from corag.selectors.reranking import default_reranker
from corag.selectors.units import DEFAULT_MAX_UNITS
from corag.types import Embedder, Order, Reranker, TokenCounter


class SentenceThreshold(BudgetedSelector):
    """Takes every sentence whose own value is high enough, passage by passage in rank order, as far as they fit.

    The rule of Provence (Chirkova et al., "Provence: efficient and robust context pruning for retrieval-augmented
    generation", 2025, arXiv 2501.16214, section 3), in which whole sentences stay if the model's score for them reaches
    a threshold. No sentence counts for or against another. The paper's trained model is not part of this: the score is
    that of any reranker.

    Args:
        threshold: The least value of a sentence, in [0, 1].
        relative: Whether the threshold is a share of the best sentence's value, which makes it mean about the same for
            every reranker.
        at_least: Sentences to keep, best first, even where fewer pass; 0 allows an empty selection.
        k: The most passages to look at, best-ranked first; None for all.
        reranker: Values sentences; name or object, None for `default_reranker`.
        window: How sentences longer than the reranker's window are valued; see `corag.rerankers.window`.
        max_units: The most sentences to choose from.
        tokens: Counts tokens as the answering model does: name or object; MiniLM's by default.
    """

    name = "sentence-threshold"

    def __init__(
        self,
        *,
        threshold: float = 0.5,
        relative: bool = True,
        at_least: int = 1,
        k: int | None = None,
        reranker: Spelling | Reranker | None = None,
        window: WindowPolicy = DEFAULT_POLICY,
        max_units: int = DEFAULT_MAX_UNITS,
        tokens: Spelling | TokenCounter | None = None,
    ) -> None:
        super().__init__(unit="sentence", max_units=max_units, tokens=make_tokens(tokens or "minilm"))
        check_range("threshold", threshold, 0, 1, "0.1 to 0.7 are usual")
        check_count("at_least", at_least, "1 is usual", least=0)
        if k is not None:
            check_count("k", k, "5 is usual")
        self.threshold, self.relative, self.at_least, self.k = threshold, relative, at_least, k
        self.window = check_policy(window)
        self._reranker = make_reranker(reranker or default_reranker(self._unit))

    def _choose(self, problem: SelectionProblem) -> Choice:
        offered = units_of(problem, problem.passages.ranking[: self.k])
        scorer = problem.scorer(self._reranker, self.window)
        values = dict(zip(offered, scorer([(index,) for index in offered]).tolist(), strict=True))
        best_first = sorted(offered, key=lambda index: -values[index])
        best = values[best_first[0]] if best_first else 0.0
        threshold = self.threshold * best if self.relative else self.threshold
        kept = {index for index in offered if values[index] >= threshold} | set(best_first[: self.at_least])
        order = fill([index for index in offered if index in kept], problem.costs, problem.capacity)
        if self.at_least and not order:
            order = fill(best_first, problem.costs, problem.capacity, 1)
        trace = {
            "reranker": self._reranker.name,
            "threshold": threshold,
            "passing": len(kept),
            "chunk_values": [values[index] for index in order],
            "orders_scored": len(offered),
            "scorer_calls": 1,
            "truncated": scorer.num_truncated,
        }
        if not kept:
            trace["reason"] = f"no sentence has a value of at least {threshold:.3g}; the best has {best:.3g}"
        return Choice(order, float(np.mean([values[index] for index in order])) if order else 0.0, trace)


class ExtractiveCompression(BudgetedSelector):
    """Takes the sentences that are most similar to the question, in the order of their passages.

    The extractive compressor of RECOMP (Xu, Shi and Choi, "RECOMP: improving retrieval-augmented LMs with compression
    and selective augmentation", 2023, arXiv 2310.04408, section 3.1): sentences are ranked by the inner product of
    their embedding with that of the question, and the first k stay. The paper trains its encoder for this; here it is
    any embedder.

    Args:
        k: The most sentences to take.
        embedder: Embeds question and sentences; name or object.
        max_units: The most sentences to choose from.
        tokens: Counts tokens as the answering model does: name or object; MiniLM's by default.
    """

    name = "extractive-compression"

    def __init__(
        self,
        *,
        k: int = 5,
        embedder: Spelling | Embedder = "minilm",
        max_units: int = DEFAULT_MAX_UNITS,
        tokens: Spelling | TokenCounter | None = None,
    ) -> None:
        super().__init__(unit="sentence", max_units=max_units, tokens=make_tokens(tokens or "minilm"))
        check_count("k", k, "1 to 5 are usual")
        self.k = k
        self._embed = CachedEmbedder(embedder).vectors

    def _choose(self, problem: SelectionProblem) -> Choice:
        problem = problem.comparable(self._embed, only_cosines=True)
        kept = set(fill(problem.by_relevance, problem.costs, problem.capacity, self.k))
        return unscored(problem, _in_order(problem, kept))


def _in_order(problem: SelectionProblem, kept: set[int]) -> Order:
    """Return units in the order of their passages in the ranking, those of a passage in its order."""
    return tuple(index for index in units_of(problem, problem.passages.ranking) if index in kept)

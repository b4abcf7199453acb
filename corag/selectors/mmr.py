"""`mmr`: sets of relevant chunks that repeat each other little, chosen chunk by chunk.

Carbonell and Goldstein, "The use of MMR, diversity-based reranking for reordering documents and producing summaries"
(1998). Letters: N candidates, D dimensions. Similarities are to the question, `[N]`; vectors are embeddings of any
length but 0, `[N, D]`; costs are tokens, `[N]`, and a budget is the most that the chosen costs add up to. Ties go to
the first in the list.
"""

from __future__ import annotations

from dataclasses import dataclass

from common.checks import check_count, check_range
from corag.ranking import marginal_relevance
from corag.selectors.base import Choice, EmbeddingSelector, checked, unscored
from corag.selectors.problem import SelectionProblem


@dataclass(kw_only=True, eq=False)
class Mmr(EmbeddingSelector):
    """Maximal marginal relevance over the candidates that fit.

    Args:
        relevance_weight: Similarity to the question against novelty; see `marginal_relevance`.
        k: The most chunks to take; None for as many as fit.
    """

    relevance_weight: float = checked(0.5, check_range, low=0, high=1, hint="typical: 0.5-0.8")
    k: int | None = checked(None, check_count, hint="typical: 3-20, None takes as many as fit")
    name = "mmr"

    def _choose(self, problem: SelectionProblem) -> Choice:
        problem = self._comparable(problem)
        vectors = self._vectors(problem)
        weight = self.relevance_weight
        order = marginal_relevance(
            problem.relevance, vectors, problem.costs, problem.capacity, relevance_weight=weight, limit=self.k
        )
        return unscored(problem, order)

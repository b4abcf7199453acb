"""`crag`: candidates in a few clusters, and a summary of each.

Akesson and Santos, "Clustered Retrieved Augmented Generation (CRAG)", sections 2.3 and 2.4: k-means on the embeddings,
a summary of each cluster, the summaries joined. A cluster beyond the summarizer's window is summarized in parts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from corag.selectors.clustering.kmeans import ChooseK, check_k, kmeans
from corag.selectors.problem import Problem
from corag.selectors.summarizing import Fallback, SummarizingSelector
from corag.types import Embedder, Summarizer, TokenCounter


class Crag(SummarizingSelector):
    """A summary of each cluster of candidates; the cluster of the most similar candidate first.

    Args:
        k: Clusters: a number (the paper has 4), or `elbow` or `silhouette` to choose from 1 to `max_k`.
        max_k: The most clusters to choose; the paper looked at 1 to 10.
        with_query: Whether summaries keep what matters for the question. The paper's do not know it, so that they
            can be made once for all questions.
        seed: Of the random starts of k-means.
        embedder, summarizer, store, fallback, min_summary_tokens, tokens, summarizer_settings: See
            `SummarizingSelector`.
    """

    name = "crag"

    def __init__(
        self,
        *,
        k: int | ChooseK = 4,
        max_k: int = 10,
        with_query: bool = False,
        seed: int = 0,
        embedder: str | Embedder = "minilm",
        summarizer: str | Summarizer = "extractive",
        store: str | Path | None = None,
        fallback: Fallback = "original",
        min_summary_tokens: int = 32,
        tokens: TokenCounter | None = None,
        summarizer_settings: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(
            embedder=embedder, summarizer=summarizer, store=store, fallback=fallback, tokens=tokens,
            min_summary_tokens=min_summary_tokens, summarizer_settings=summarizer_settings,
        )  # fmt: skip
        check_k(k, max_k)
        self._k, self._max_k, self._seed = k, max_k, seed
        self._with_query = with_query

    def _groups(self, problem: Problem) -> list[list[int]]:
        vectors = self._embedder.vectors([chunk.text for chunk in problem.chunks])
        labels = kmeans(vectors, self._k, max_k=self._max_k, seed=self._seed)
        groups = [[int(index) for index in (labels == label).nonzero()[0]] for label in range(labels.max() + 1)]
        return sorted(groups, key=lambda group: -max(problem.relevance[group]))

    def _query(self, problem: Problem) -> str:
        return problem.query if self._with_query else ""

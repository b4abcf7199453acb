"""`edc2`: summaries of clusters of similar documents, which grow as they matter less.

Li et al., "Efficient Dynamic Clustering-Based Document Compression for Retrieval-Augmented-Generation" (EDC2-RAG),
algorithm 1 and sections 4.3 and 6.3.1, and their public code (github.com/Tsinghua-dhy/EDC-2-RAG). Letters: N
documents, D dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from common.checks import check_choice, check_count, check_seed
from corag.errors import InputError
from corag.ranking import unit_vectors
from corag.selectors.base import checked
from corag.selectors.problem import SelectionProblem
from corag.selectors.summarizing import SummarizingSelector

Clustering = Literal["dynamic", "average", "random", "one"]


def dynamic_clusters(query: ArrayLike, vectors: ArrayLike, *, tau: int = 3, max_size: int = 20) -> list[list[int]]:
    """Return clusters of documents: algorithm 1 of the paper.

    The document most similar to the query is the root of the first cluster and draws the documents most similar to
    itself to it; the most similar one that is left is the next root, and so on. Each cluster may be twice as large
    as the one before. The public code does not count the root towards the size of its cluster, and gives chosen
    documents a similarity of 0, so that they are chosen again before any with a negative one; here no document is ever
    in two clusters.

    Args:
        query: Embedding of the query, `[D]`.
        vectors: Embeddings of the documents, `[N, D]`.
        tau: Size of the first cluster; the paper has 3 for answering questions and 1 for checking facts.
        max_size: The most documents of a cluster (Lambda of the paper), at least `tau`.

    Returns:
        Indices of documents, every one once: clusters in the order in which they are made, each with its root first
        and then the nearest to it first. Ties go to the first in the list.

    Raises:
        InputError: Shapes that do not fit, a vector that is not finite or has length 0, or a size below 1.
    """
    check_count("tau", tau, "the paper has 3 and 1")
    check_count("max_size", max_size, f"it must not be below tau={tau}, and the code has 20", least=tau)
    if not len(np.asarray(vectors)):
        return []
    unit, direction = unit_vectors(vectors), unit_vectors(np.asarray(query)[None])[0]
    if direction.shape != unit.shape[1:]:
        raise InputError(f"the query has {len(direction)} dimensions, the documents {unit.shape[1]}; use one model")
    relevance = unit @ direction
    clusters: list[list[int]] = []
    left = np.ones(len(unit), dtype=bool)
    size = tau
    while left.any():
        root = int(np.where(left, relevance, -np.inf).argmax())
        nearness = np.where(left, unit @ unit[root], -np.inf)
        # Rounding must not put a copy of the root before the root.
        nearness[root] = np.inf
        members = np.argsort(-nearness, kind="stable")[: min(size, int(left.sum()))]
        left[members] = False
        clusters.append(members.tolist())
        size = min(2 * size, max_size)
    return clusters


@dataclass(kw_only=True, eq=False)
class Edc2(SummarizingSelector):
    """Each cluster of `dynamic_clusters` compressed with the question in mind (section 4.3).

    Args:
        tau: Size of the first cluster.
        max_size: The most candidates of a cluster.
        clustering: `dynamic`; one of the ablations of section 6.3.1, `average` (as many clusters of equal sizes, cut
            from the ranking) and `random` (clusters of the same sizes, drawn at random); or `one`, all candidates in
            one cluster: compressed with the question in mind, and not clustered.
        seed: Of the clustering `random`.
    """

    tau: int = 3
    max_size: int = 20
    clustering: Clustering = checked("dynamic", check_choice, names=Clustering)
    seed: int = checked(0, check_seed)
    name = "edc2"

    def __post_init__(self) -> None:
        super().__post_init__()
        dynamic_clusters((), (), tau=self.tau, max_size=self.max_size)  # refuses wrong settings

    def _groups(self, problem: SelectionProblem) -> list[list[int]]:
        if self.clustering == "one":
            return [problem.by_relevance]
        vectors, query = self._vectors(problem), self.cached_embedder.vectors([problem.query], query=True)[0]
        clusters = dynamic_clusters(query, vectors, tau=self.tau, max_size=self.max_size)
        if self.clustering == "average":
            ranking = np.argsort(-(vectors @ query), kind="stable")
            return [part.tolist() for part in np.array_split(ranking, len(clusters))]
        if self.clustering == "random":
            drawn = np.random.default_rng(self.seed).permutation(len(vectors))
            ends = np.cumsum([len(cluster) for cluster in clusters])
            return [part.tolist() for part in np.split(drawn, ends[:-1])]
        return clusters

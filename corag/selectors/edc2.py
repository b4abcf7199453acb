"""`edc2`: clusters of similar documents that grow as they matter less, each compressed with the question in mind.

Li et al., "Efficient Dynamic Clustering-Based Document Compression for Retrieval-Augmented-Generation" (EDC2-RAG),
algorithm 1 and sections 4.3 and 6.3.1, and their public code (github.com/Tsinghua-dhy/EDC-2-RAG). Letters: N
documents, D dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from corag.checks import check_choice, check_count, check_seed
from corag.errors import InputError
from corag.selectors.packing import unit_vectors
from corag.selectors.problem import SelectionProblem
from corag.selectors.summarizing import SummarizingSelector
from corag.types import FloatArray

Variant = Literal["paper", "code"]
Clustering = Literal["dynamic", "average", "random", "one"]


def dynamic_clusters(
    query: ArrayLike, vectors: ArrayLike, *, tau: int = 3, max_size: int = 20, variant: Variant = "paper"
) -> list[list[int]]:
    """Return clusters of documents: algorithm 1 of the paper.

    The document most similar to the query is the root of the first cluster and draws the documents most similar to
    itself to it; the most similar one that is left is the next root, and so on. Each cluster may be twice as large
    as the one before.

    Args:
        query: Embedding of the query, `[D]`.
        vectors: Embeddings of the documents, `[N, D]`.
        tau: Size of the first cluster; the paper has 3 for answering questions and 1 for checking facts.
        max_size: The most documents of a cluster (Lambda of the paper), at least `tau`.
        variant: `paper` counts the root towards the size of its cluster. `code` does not: each cluster has one
            document more. The public code also gives documents that are taken a similarity of 0, so that they are
            taken again before any with a negative one; here no document is ever in two clusters.

    Returns:
        Indices of documents, every one once: clusters in the order in which they are made, each with its root first
        and then the nearest to it first. Of equally similar documents the first in the list.

    Raises:
        InputError: Shapes that do not fit, a vector that is not finite or has length 0, or a size below 1.
    """
    _check_sizes(tau, max_size, variant)
    if not len(np.asarray(vectors)):
        return []
    unit = unit_vectors(vectors)
    relevance = unit @ _unit_query(query, unit.shape[1])
    extra = 1 if variant == "code" else 0
    clusters: list[list[int]] = []
    left = np.ones(len(unit), dtype=bool)
    size = tau
    while left.any():
        root = int(np.where(left, relevance, -np.inf).argmax())
        nearness = np.where(left, unit @ unit[root], -np.inf)
        # Rounding must not put a copy of the root before the root.
        nearness[root] = np.inf
        members = np.argsort(-nearness, kind="stable")[: min(size + extra, int(left.sum()))]
        left[members] = False
        clusters.append(members.tolist())
        size = min(2 * size, max_size)
    return clusters


def average_clusters(query: ArrayLike, vectors: ArrayLike, **sizes: Any) -> list[list[int]]:
    """Return as many clusters as `dynamic_clusters`, of equal sizes, cut from the ranking (section 6.3.1, "Average").

    Where the documents cannot be shared out equally the first clusters have one more. Arguments and errors as there.
    """
    number = len(dynamic_clusters(query, vectors, **sizes))
    if not number:
        return []
    unit = unit_vectors(vectors)
    ranking = np.argsort(-(unit @ _unit_query(query, unit.shape[1])), kind="stable")
    return [part.tolist() for part in np.array_split(ranking, number)]


def random_clusters(query: ArrayLike, vectors: ArrayLike, *, seed: int = 0, **sizes: Any) -> list[list[int]]:
    """Return clusters of the sizes of `dynamic_clusters` with documents drawn at random (section 6.3.1, "Random").

    Arguments and errors as there; equal seeds give equal clusters.
    """
    ends = np.cumsum([len(cluster) for cluster in dynamic_clusters(query, vectors, **sizes)])
    if not len(ends):
        return []
    return [part.tolist() for part in np.split(np.random.default_rng(seed).permutation(ends[-1]), ends[:-1])]


def _unit_query(query: ArrayLike, dimensions: int) -> FloatArray:
    given = np.asarray(query, dtype=np.float64)
    if given.shape != (dimensions,):
        raise InputError(
            f"the query's vector has the shape {given.shape}, the documents' have {dimensions} dimensions; embed both "
            "with the same model"
        )
    try:
        unit: FloatArray = unit_vectors(given[None])[0]
    except InputError as error:
        raise InputError(f"the query's vector cannot be compared: {error}") from error
    return unit


def _check_sizes(tau: int, max_size: int, variant: str) -> None:
    check_count("tau", tau, "the paper has 3 and 1")
    check_count("max_size", max_size, f"it must not be below tau={tau}, and the code has 20", least=tau)
    check_choice("variant", variant, Variant)


@dataclass(kw_only=True, eq=False)
class Edc2(SummarizingSelector):
    """Each cluster of `dynamic_clusters` compressed with the question in mind (section 4.3).

    Args:
        tau: Size of the first cluster.
        max_size: The most candidates of a cluster.
        variant: See `dynamic_clusters`.
        clustering: `dynamic`, or one of the paper's ablations, `average` and `random`; or `one`, all candidates in one
            cluster: compressed with the question in mind, and not clustered.
        seed: Of the clustering `random`.

    Other settings: see `SummarizingSelector`.
    """

    tau: int = 3
    max_size: int = 20
    variant: Variant = "paper"
    clustering: Clustering = "dynamic"
    seed: int = 0
    name = "edc2"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_sizes(self.tau, self.max_size, self.variant)
        check_choice("clustering", self.clustering, Clustering)
        check_seed(self.seed)

    def _groups(self, problem: SelectionProblem) -> list[list[int]]:
        if self.clustering == "one":
            return [problem.by_relevance]
        vectors = self._embedder.vectors([chunk.text for chunk in problem.chunks])
        query = self._embedder.vectors([problem.query])[0]
        sizes: dict[str, Any] = {"tau": self.tau, "max_size": self.max_size, "variant": self.variant}
        if self.clustering == "average":
            return average_clusters(query, vectors, **sizes)
        if self.clustering == "random":
            return random_clusters(query, vectors, **sizes, seed=self.seed)
        return dynamic_clusters(query, vectors, **sizes)

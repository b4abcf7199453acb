"""What selectors share that compare the embeddings of candidates with each other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from corag.errors import InputError
from corag.models.cached import CachedEmbedder
from corag.naming import Spelling
from corag.selectors.base import BudgetedSelector
from corag.selectors.problem import SelectionProblem
from corag.types import Embedder, FloatArray


def unit_vectors(vectors: ArrayLike) -> FloatArray:
    """Return vectors `[N, D]` scaled to length 1; `InputError` for other shapes and lengths of 0 or not finite."""
    given = np.asarray(vectors, dtype=np.float64)
    if given.ndim != 2:
        raise InputError(f"vectors have the shape {given.shape}; they must be [documents, dimensions]")
    lengths = np.linalg.norm(given, axis=1)
    bad = np.flatnonzero(~(np.isfinite(lengths) & (lengths > 0)))
    if len(bad):
        raise InputError(
            f"vector {bad[0]} has length {lengths[bad[0]]:g}; a cosine needs finite lengths above 0: leave out what "
            "the embedder gives no direction, such as empty texts"
        )
    unit: FloatArray = given / lengths[:, None]
    return unit


def relevance_and_directions(similarities: ArrayLike, vectors: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return similarities `[N]` and unit vectors `[N, D]`.

    Raises:
        InputError: Shapes that do not fit, a number that is not finite, a vector of length 0.
    """
    relevance = np.asarray(similarities, dtype=np.float64)
    unit = unit_vectors(vectors)
    if relevance.shape != unit.shape[:1]:
        raise InputError(
            f"there are {len(unit)} vectors for similarities of the shape {relevance.shape}; give one each"
        )
    if not np.isfinite(relevance).all():
        raise InputError("a similarity is not a finite number; check the embeddings")
    return relevance, unit


@dataclass(kw_only=True, eq=False)
class EmbeddingSelector(BudgetedSelector):
    """A selector that compares candidates with each other.

    Args:
        embedder: Embeds the chunks; name or object. The candidates' similarities should be its cosines; where they are
            no cosines it computes them.
    """

    embedder: Spelling | Embedder = "minilm"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._embedder = CachedEmbedder(self.embedder)

    def _embedded(self, problem: SelectionProblem) -> tuple[SelectionProblem, FloatArray]:
        """Return the problem with cosines to the question, and the candidates' vectors, `[N, D]`."""
        problem = problem.comparable(self._embedder.vectors, only_cosines=True)
        return problem, self._embedder.vectors([chunk.text for chunk in problem.chunks])

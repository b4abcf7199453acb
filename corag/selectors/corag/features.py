"""The feature vector of the configuration agent, made in one place for training and for use.

A recipe names the parts of the vector, in order:

- `query`: the question's embedding, `d` numbers.
- `candidates`: the mean embedding of the ten most similar candidates, `d` numbers; zeros if there is none.
- `curve`: what the candidates' similarities to the question look like, `len(CURVE)` numbers; see `curve_statistics`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from corag.errors import InputError
from corag.models.embedders import vectors_by
from corag.selectors.problem import SelectionProblem
from corag.types import Embedder, FloatArray

FEATURES = ("query", "candidates", "curve")
"""The parts that a recipe may name."""
MEAN_OF = 10
"""Candidates whose mean embedding is the part `candidates`."""
RANKS = (1, 2, 3, 5, 10, 20)
"""Ranks whose similarities are part of the curve; a shorter list counts as going on with its last."""
NEAR = 0.1
"""A candidate is near the best one when its similarity is less than this below."""
CURVE = (
    *(f"similarity_{rank}" for rank in RANKS), "mean", "deviation", "largest_gap", "place_of_largest_gap", "share_near",
    "log_count",
)  # fmt: skip
"""The numbers of the part `curve`."""

Float32 = NDArray[np.float32]


def check_recipe(recipe: Sequence[str]) -> tuple[str, ...]:
    """Return a recipe as a tuple; `InputError` if it is empty, or names a part twice or one that is unknown."""
    parts = tuple(recipe)
    if not parts or len(set(parts)) < len(parts) or not set(parts) <= set(FEATURES):
        raise InputError(
            f"features: expected at least one of {', '.join(FEATURES)}, each once, got {', '.join(parts) or 'none'}"
        )
    return parts


def feature_dim(recipe: Sequence[str], embedding_dim: int) -> int:
    """Return the length of a feature vector over embeddings of `embedding_dim` numbers."""
    lengths = {"query": embedding_dim, "candidates": embedding_dim, "curve": len(CURVE)}
    return sum(lengths[part] for part in check_recipe(recipe))


def curve_statistics(similarities: ArrayLike) -> Float32:
    """Return the statistics of a similarity curve that `CURVE` names, `[12]`.

    They are the similarities at a few ranks, their mean and standard deviation, the largest gap between neighbours and
    its position (0 for behind the best, towards 1 for the end), the share of candidates near the best, and the
    logarithm of one plus their number, divided by 10. All are 0 without candidates.

    Args:
        similarities: Cosine of each candidate to the question, in any order, `[n]`.
    """
    falling = np.sort(np.asarray(similarities, dtype=np.float64))[::-1]
    count = len(falling)
    if not count:
        return np.zeros(len(CURVE), dtype=np.float32)
    gaps = falling[:-1] - falling[1:]
    position = int(gaps.argmax()) if count > 1 else 0
    numbers = [
        *(falling[min(rank, count) - 1] for rank in RANKS),
        falling.mean(),
        falling.std(),
        gaps[position] if count > 1 else 0.0,
        position / count,
        np.mean(falling > falling[0] - NEAR),
        np.log1p(count) / 10,
    ]
    return np.array(numbers, dtype=np.float32)


def feature_vectors(
    recipe: Sequence[str], queries: ArrayLike, candidates: ArrayLike, similarities: Sequence[ArrayLike]
) -> Float32:
    """Return one feature vector per question, `[n, feature_dim]`, from the `QuestionVectors` of each."""
    curves = np.array([curve_statistics(row) for row in similarities]).reshape(-1, len(CURVE))
    columns = {"query": queries, "candidates": candidates, "curve": curves}
    return np.concatenate([np.asarray(columns[part], dtype=np.float32) for part in check_recipe(recipe)], axis=1)


class QuestionVectors(NamedTuple):
    """What a feature vector is made of: embeddings, `[d]`, and the cosines of all candidates to the question, `[n]`.

    `candidates` is the mean embedding of the ten best candidates, zeros without any.
    """

    query: Float32
    candidates: Float32
    similarities: FloatArray


def question_vectors(
    problems: Sequence[SelectionProblem], embedder: Embedder, recipe: Sequence[str] = FEATURES
) -> list[QuestionVectors]:
    """Return the vectors of questions and of their best candidates, by one embedder.

    The candidates' similarities are used if they are cosines that name no other embedder. Otherwise all candidates are
    embedded and their cosines computed: a BM25 score or a rank would mislead an agent trained on cosines. Candidates
    are embedded only as far as the recipe needs it; what it does not name stays zeros, or as given (`curve`).
    """
    names = (None, embedder.name)
    own = [problem.kind == "cosine" and all(c.embedder in names for c in problem.candidates) for problem in problems]
    some = MEAN_OF if "candidates" in recipe else 0
    embedded = [
        [chunk.text for chunk in (problem.chunks[:some] if known or "curve" not in recipe else problem.chunks)]
        for problem, known in zip(problems, own, strict=True)
    ]
    queries = vectors_by(embedder, [problem.query for problem in problems], query=True)
    vectors = vectors_by(embedder, [text for best in embedded for text in best])
    of_problems = np.split(vectors, np.cumsum([len(best) for best in embedded])[:-1])
    found = []
    for problem, known, query, rest in zip(problems, own, queries, of_problems, strict=True):
        similarities = problem.relevance
        if not known and "curve" in recipe:
            similarities = np.asarray(rest @ query, dtype=np.float64)
            rest = rest[np.argsort(-similarities, kind="stable")]
        mean = np.asarray(rest[:some], dtype=np.float32).mean(axis=0) if some and len(rest) else np.zeros_like(query)
        found.append(QuestionVectors(query, mean, similarities))
    return found

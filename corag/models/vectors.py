"""Vectors as an embedder has to return them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from corag.errors import ModelError
from corag.types import Embedder

_ROUNDING = 0.01
"""How far from 1 the length of a vector in half precision may lie."""


def vectors_by(embedder: Embedder, texts: Sequence[str], *, unit: bool = False) -> NDArray[np.float32]:
    """Return the vectors of texts, `[len(texts), dimension]`; with `unit`, others than of length 1 are refused.

    Raises:
        ModelError: What the embedder returns are not as many finite vectors of its dimension.
    """
    shape = (len(texts), embedder.dimension)
    if not texts:
        return np.zeros(shape, dtype=np.float32)
    try:
        vectors = np.asarray(embedder.embed(texts), dtype=np.float32)
        found = f"shape {vectors.shape}"
    except (TypeError, ValueError) as error:
        # Rows of unequal length, or no numbers.
        raise _refused(embedder, shape, f"what is no array of numbers ({error})") from error
    if vectors.shape == shape:
        lengths = np.linalg.norm(vectors, axis=1)
        bad = np.flatnonzero(~np.isfinite(lengths) | (unit & (np.abs(lengths - 1) >= _ROUNDING)))
        if not len(bad):
            return vectors
        found = f"length {lengths[bad[0]]:g} for {texts[bad[0]]!r:.80}"
    raise _refused(embedder, shape, found)


def _refused(embedder: Embedder, shape: tuple[int, int], found: str) -> ModelError:
    return ModelError(
        f"embedder {embedder.name!r} must return finite unit vectors of shape {shape}, got {found}; check the model, "
        "or normalise its vectors"
    )

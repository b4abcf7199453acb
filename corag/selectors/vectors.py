"""Vectors of unit length."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from corag.errors import InputError
from corag.types import FloatArray


def unit_vectors(vectors: ArrayLike) -> FloatArray:
    """Return vectors, `[N, D]`, scaled to length 1.

    Raises:
        InputError: Not `[N, D]`, or a vector that is not finite or has length 0.
    """
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

"""Embeddings of questions and chunks, each text embedded once while it is remembered."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from corag.errors import InputError
from corag.memory.cache import BoundedCache
from corag.registry import embedder as make_embedder
from corag.types import Embedder, FloatArray


class Vectors:
    """An embedder with a memory; built when it is first asked.

    Args:
        embedder: Name or object.
        remembered: Texts whose vectors are kept (3 KB each with 384 dimensions).
    """

    def __init__(self, embedder: str | Embedder, *, remembered: int = 16_384) -> None:
        self._given = embedder
        self._embedder: Embedder | None = None if isinstance(embedder, str) else embedder
        self._cache: BoundedCache[str, FloatArray] = BoundedCache(remembered)

    @property
    def embedder(self) -> Embedder:
        """The embedder."""
        if self._embedder is None:
            assert isinstance(self._given, str)
            self._embedder = make_embedder(self._given)
        return self._embedder

    def of(self, texts: Sequence[str]) -> FloatArray:
        """Return the unit vector of each text, `[len(texts), dimension]`."""
        known = self._cache.take(texts)
        unseen = [text for text in dict.fromkeys(texts) if text not in known]
        if unseen:
            found = self.embedder.embed(unseen).astype(np.float64)
            fresh = dict(zip(unseen, found, strict=True))
            self._cache.put(fresh)
            known.update(fresh)
        return np.array([known[text] for text in texts]).reshape(len(texts), self.embedder.dimension)


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

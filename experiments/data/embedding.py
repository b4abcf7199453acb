"""Embedders in front of an embedder: one that remembers, and one whose vectors do not depend on batches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from corag.selectors.vectors import Vectors
from corag.types import Embedder


class EachAlone:
    """Embeds each text by itself, so that its vector is the same to the last bit whatever is embedded beside it.

    Args:
        embedder: Embeds.
    """

    def __init__(self, embedder: Embedder) -> None:
        self.name, self.dimension = embedder.name, embedder.dimension
        self._embedder = embedder

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return unit vectors, `[len(texts), dimension]`."""
        vectors = [self._embedder.embed([text]) for text in texts]
        return np.concatenate([np.zeros((0, self.dimension), dtype=np.float32), *vectors])


class RememberingEmbedder:
    """Embeds each text once while it is remembered.

    Args:
        embedder: Embeds.
    """

    def __init__(self, embedder: Embedder) -> None:
        self.name, self.dimension = embedder.name, embedder.dimension
        self._vectors = Vectors(embedder)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return unit vectors, `[len(texts), dimension]`."""
        return self._vectors.of(texts).astype(np.float32)

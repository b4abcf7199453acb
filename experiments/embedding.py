"""An embedder that remembers: all methods and figures need vectors of the same candidates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from corag.selectors.vectors import Vectors
from corag.types import Embedder


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

"""Token embeddings of chunks, computed once and kept: what late interaction is made of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from corag.memory.cache import BoundedCache
from corag.models.engine.source import Float32
from corag.models.minilm import TextEncoder


class TokenStates:
    """Embeds the tokens of texts, and remembers those of the texts used last.

    Args:
        encoder: Embeds.
        size: Texts that are remembered (about 150 KB each).

    Raises:
        InputError: The size is negative.
    """

    def __init__(self, encoder: TextEncoder, size: int) -> None:
        self._encoder = encoder
        self._cache: BoundedCache[str, Float32] = BoundedCache(size)

    def of_query(self, query: str) -> Float32:
        """Return a unit vector for each token of a question, `[query tokens, d]`; not remembered."""
        return self._encoder.token_embeddings(self._encoder.tokenize([query]).ids)[0]

    def of_texts(self, texts: Sequence[str]) -> tuple[list[Float32], NDArray[np.bool_]]:
        """Return unit vectors for the tokens of each text, `[tokens, d]`, and which texts were cut, `[len(texts)]`."""
        tokens = self._encoder.tokenize(texts)
        known = self._cache.take(texts)
        unseen = {text: tokens.ids[row] for row, text in enumerate(texts) if text not in known}
        fresh = dict(zip(unseen, self._encoder.token_embeddings(list(unseen.values())), strict=True))
        self._cache.put(fresh)
        known.update(fresh)
        return [known[text] for text in texts], tokens.truncated

"""`minilm-cosine`: the cosine of question and joined text, both embedded by all-MiniLM-L6-v2.

The joined text is embedded as a whole, so chunks influence each other and order matters a little: the value is the one
that a bi-encoder retriever would give the finished prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from corag.models.cached import MiniLMPart
from corag.models.minilm import MAX_TOKENS, encoder_at
from corag.rerankers.window import WindowedQuestion, WindowedReranker
from corag.types import FloatArray

Ids = NDArray[np.int64]


@dataclass(kw_only=True, eq=False)
class MiniLMCosine(MiniLMPart, WindowedReranker):
    """Cosine similarity in [0, 1]; negative cosines count as 0."""

    name = "minilm-cosine"
    max_tokens = MAX_TOKENS

    def __post_init__(self) -> None:
        self._encoder = encoder_at(self._placement())

    def question(self, query: str) -> WindowedQuestion:
        """Return the embedding of a question, `[384]`."""
        (vector,) = self._encoder.vectors([query])
        return WindowedQuestion(vector.astype(np.float64), self.max_tokens)

    def read(self, texts: Sequence[str]) -> list[Ids]:
        """Return the token ids of each text."""
        return self._encoder.whole_ids(texts)

    def values(self, pairs: Sequence[tuple[FloatArray, Ids]]) -> FloatArray:
        """Return the cosine of each question's vector and text; 0 for a text without tokens."""
        vectors = self._encoder.sentence_embeddings([ids for _, ids in pairs]).astype(np.float64)
        questions = np.array([vector for vector, _ in pairs]).reshape(vectors.shape)
        cosines = np.einsum("nd,nd->n", vectors, questions)
        # The vector of a text without tokens is that of the special tokens alone, which is near many questions.
        cosines[[len(ids) == 0 for _, ids in pairs]] = 0.0
        return np.asarray(np.clip(cosines, 0.0, 1.0))

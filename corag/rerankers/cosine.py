"""`cosine`: the cosine of question and joined text, both embedded by an encoder; `minilm-cosine`, `e5-cosine`.

The joined text is embedded as a whole, so chunks influence each other and order matters a little: the value is the one
that a bi-encoder retriever would give the finished prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from corag.models.encoders import EncoderPart, GivenEncoder, Ids
from corag.rerankers.window import WindowedQuestion, WindowedReranker
from corag.types import FloatArray


@dataclass(kw_only=True, eq=False)
class Cosine(EncoderPart, WindowedReranker):
    """Cosine similarity in [0, 1]; negative cosines count as 0. The setting `encoder` is described at `EncoderPart`."""

    name = "cosine"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.max_tokens = self._encoder.max_tokens

    def question(self, query: str) -> WindowedQuestion:
        """Return the embedding of a question, `[D]`; see `TextEncoder.question` for long ones."""
        return WindowedQuestion(self._encoder.question(query).vector.astype(np.float64), self.max_tokens)

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


class MiniLMCosine(Cosine):
    """By MiniLM."""

    name = "minilm-cosine"


@dataclass(kw_only=True, eq=False)
class E5Cosine(Cosine):
    """By multilingual-e5-small."""

    name = "e5-cosine"

    encoder: GivenEncoder = field(default="e5", init=False)

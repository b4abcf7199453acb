"""`minilm-cosine`: the cosine of question and joined text, both embedded by all-MiniLM-L6-v2.

The joined text is embedded as a whole, so chunks influence each other and order matters a little: the value is the one
that a bi-encoder retriever would give the finished prompt.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from corag.errors import InputError
from corag.models.minilm import MAX_TOKENS, minilm_encoder
from corag.models.runtime import Backend, Precision
from corag.naming import Part
from corag.rerankers.window import WindowedScorer, WindowSpans
from corag.types import Chunk, FloatArray, Order


class MiniLMCosine(Part):
    """Cosine similarity in [0, 1]; negative cosines count as 0.

    Args:
        backend: `auto`, `openvino` or `torch`; see `corag.models.runtime`, as for the next.
        precision: `fp32`, `bf16` or `fp16`.
        device: `cpu`, `cuda`, `cuda:N` or `mps`.
        max_tokens: The window: tokens of text without special tokens, 1 to 510. The model was published with 254 and
            trained on even shorter texts.
    """

    def __init__(
        self,
        *,
        backend: Backend = "auto",
        precision: Precision | None = None,
        device: str | None = None,
        max_tokens: int = MAX_TOKENS,
    ) -> None:
        if not isinstance(max_tokens, int) or not 1 <= max_tokens <= MAX_TOKENS:
            raise InputError(f"max_tokens is {max_tokens!r}; minilm-cosine takes 1 to {MAX_TOKENS}")
        self.name = "minilm-cosine"
        self.max_tokens = max_tokens
        self.encoder = minilm_encoder(backend, precision, device, role="reranker")

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return the value of each text, `[len(texts)]`."""
        ids = [whole[: self.max_tokens] for whole in self.encoder.whole_ids(texts)]
        return _cosines(self.query_vector(query), self.encoder.sentence_embeddings(ids), ids)

    def query_vector(self, query: str) -> FloatArray:
        """Return the embedding of a question, `[384]`."""
        return np.asarray(self.encoder.sentence_embeddings(self.encoder.tokenize([query]).ids)[0].astype(float))

    def scorer(self, query: str, chunks: Sequence[Chunk]) -> CosineScorer:
        """Return a scoring function that tokenises each chunk once."""
        return CosineScorer(self, query, chunks)


class CosineScorer(WindowedScorer):
    """Joins the token ids of chunks; with this tokenizer that equals tokenising the joined text."""

    def __init__(self, reranker: MiniLMCosine, query: str, chunks: Sequence[Chunk]) -> None:
        self.reranker = reranker
        self._query = reranker.query_vector(query)
        self._ids = reranker.encoder.whole_ids([chunk.text for chunk in chunks])
        super().__init__(reranker.max_tokens)

    @staticmethod
    def score_jointly(requests: Sequence[tuple[CosineScorer, Sequence[Order]]]) -> list[FloatArray]:
        """Return the values of each scorer's orders, embedded in shared batches."""
        given: list[tuple[WindowSpans, list[NDArray[np.int64]]]] = []
        for scorer, orders in requests:
            joined = [np.concatenate([scorer._ids[index] for index in order]) for order in orders]
            spans = scorer.spans(orders, [len(ids) for ids in joined])
            given.append((spans, [joined[owner][start:end] for owner, start, end in spans]))
        encoder = requests[0][0].reranker.encoder
        vectors = encoder.sentence_embeddings([ids for _, rows in given for ids in rows])
        ends = np.cumsum([len(rows) for _, rows in given])
        return [
            spans.pooled(_cosines(scorer._query, of_scorer, rows))
            for (scorer, _), of_scorer, (spans, rows) in zip(requests, np.split(vectors, ends[:-1]), given, strict=True)
        ]


def _cosines(query: FloatArray, vectors: NDArray[np.float32], ids: Sequence[NDArray[np.int64]]) -> FloatArray:
    """Return the value of each text, `[n]`, from vectors `[n, 384]`, token ids and the query's vector `[384]`."""
    cosines = vectors.astype(np.float64) @ query
    # The vector of a text without tokens is that of the special tokens alone, which is near many questions.
    cosines[[len(row) == 0 for row in ids]] = 0.0
    return np.clip(cosines, 0.0, 1.0)

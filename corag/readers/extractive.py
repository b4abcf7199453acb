"""`extractive`: the sentences of the context that are closest to the question, in their own order.

Runs offline. Sentences are embedded by all-MiniLM-L6-v2 and remembered, so a sentence that stands in many
contexts is embedded once.
"""

from __future__ import annotations

import numpy as np

from corag.errors import InputError
from corag.minilm import Backend, minilm_encoder
from corag.rerankers.cache import BoundedCache
from corag.text import sentence_spans
from corag.types import Answer, FloatArray


class ExtractiveReader:
    """Answers with the best sentences of the context.

    Args:
        sentences: The most sentences of an answer.
        cache_sentences: Sentences whose embeddings are kept (1.5 KB each).
        backend: `auto`, `openvino` or `torch`; see `corag.minilm`.
    """

    def __init__(self, *, sentences: int = 2, cache_sentences: int = 65_536, backend: Backend = "auto") -> None:
        if sentences < 1:
            raise InputError(f"the extractive reader needs sentences of at least 1, got {sentences}; 1 to 3 are usual")
        self.name = "extractive"
        self.sentences = sentences
        self._encoder = minilm_encoder(backend)
        self._cache: BoundedCache[str, FloatArray] = BoundedCache(cache_sentences)

    def answer(self, query: str, context: str) -> Answer:
        """Return the best sentences; an empty answer with confidence 0 for a context without text."""
        spans = [
            (start + len(context[start:end]) - len(context[start:end].lstrip()), start + len(context[start:end].rstrip()))
            for start, end in sentence_spans(context)
            if context[start:end].strip()
        ]
        if not spans:
            return Answer("", confidence=0.0)
        texts = [context[start:end] for start, end in spans]
        vectors = self._embed([query, *texts])
        cosines = vectors[1:] @ vectors[0]
        # Repeated sentences would only say the same twice.
        best: list[int] = []
        for index in np.argsort(-cosines, kind="stable"):
            if len(best) == self.sentences:
                break
            if texts[index] not in {texts[other] for other in best}:
                best.append(int(index))
        chosen = sorted(best)
        return Answer(
            " ".join(" ".join(texts[index].split()) for index in chosen),
            confidence=float(np.clip(cosines[best[0]], 0.0, 1.0)),
            spans=tuple(spans[index] for index in chosen),
        )

    def _embed(self, texts: list[str]) -> FloatArray:
        unseen = [text for text in dict.fromkeys(texts) if text not in self._cache]
        vectors = self._encoder.sentence_embeddings(self._encoder.tokenize(unseen).ids)
        fresh: dict[str, FloatArray] = {
            text: vector.astype(np.float64) for text, vector in zip(unseen, vectors, strict=True)
        }
        found = np.array([fresh[text] if text in fresh else self._cache[text] for text in texts])
        for text, vector in fresh.items():
            self._cache[text] = vector
        return found

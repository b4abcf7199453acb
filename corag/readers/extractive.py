"""`extractive`: the sentences of the context that are closest to the question, in their own order.

Runs offline. Sentences are embedded by all-MiniLM-L6-v2 and remembered, so a sentence that stands in many
contexts is embedded once.
"""

from __future__ import annotations

import numpy as np

from corag.errors import InputError
from corag.memory.cache import BoundedCache
from corag.models.minilm import Backend, minilm_encoder
from corag.readers.headings import headings
from corag.text.chunking import Span, sentence_spans
from corag.text.documents import SEPARATOR
from corag.types import Answer, FloatArray


class ExtractiveReader:
    """Answers with the best sentences of the context; the title line of a chunk is not one of them.

    Args:
        sentences: The most sentences of an answer, at least 1.
        cache_sentences: Sentences whose embeddings are kept (1.5 KB each).
        backend: `auto`, `openvino` or `torch`; see `corag.models.minilm`.
    """

    def __init__(self, *, sentences: int = 2, cache_sentences: int = 65_536, backend: Backend = "auto") -> None:
        if not isinstance(sentences, int) or sentences < 1:
            raise InputError(f"sentences must be a whole number of at least 1, got {sentences!r}; 1 to 3 are usual")
        self.name = "extractive"
        self.sentences = sentences
        self._encoder = minilm_encoder(backend)
        self._cache: BoundedCache[str, FloatArray] = BoundedCache(cache_sentences)

    def answer(self, query: str, context: str) -> Answer:
        """Return the best sentences; an empty answer with confidence 0 for a context without text."""
        bodies = headings(context)
        spans = [
            span
            for start, end in sentence_spans(context)
            if (span := _stripped(context, bodies.get(start, start), end))
        ]
        if not spans:
            return Answer("", confidence=0.0)
        # Repeated sentences would only say the same twice: the first of them stands for all.
        first: dict[str, Span] = {}
        for start, end in spans:
            first.setdefault(" ".join(context[start:end].split()), (start, end))
        texts = list(first)
        vectors = self._embed([query, *texts])
        cosines = vectors[1:] @ vectors[0]
        best = np.argsort(-cosines, kind="stable")[: self.sentences].tolist()
        chosen = [texts[index] for index in sorted(best)]
        found = tuple(first[text] for text in chosen)
        return Answer(
            " ".join(chosen),
            confidence=float(np.clip(cosines[best[0]], 0.0, 1.0)),
            spans=found,
            chunk=context.count(SEPARATOR, 0, found[0][0]),
        )

    def _embed(self, texts: list[str]) -> FloatArray:
        known = self._cache.take(texts)
        unseen = [text for text in dict.fromkeys(texts) if text not in known]
        vectors = self._encoder.sentence_embeddings(self._encoder.tokenize(unseen).ids)
        fresh: dict[str, FloatArray] = {
            text: vector.astype(np.float64) for text, vector in zip(unseen, vectors, strict=True)
        }
        self._cache.put(fresh)
        known.update(fresh)
        return np.array([known[text] for text in texts])


def _stripped(text: str, start: int, end: int) -> Span | None:
    """Return the span without white space at its ends; None when nothing else is in it."""
    body = text[start:end].strip()
    start += len(text[start:end]) - len(text[start:end].lstrip())
    return (start, start + len(body)) if body else None

"""`extractive`: the sentences of the context that are closest to the question, in their own order.

Runs offline. Sentences are embedded by all-MiniLM-L6-v2, each once while its embedding is in the cache.
"""

from __future__ import annotations

import numpy as np

from corag.checks import check_count
from corag.models.cached import CachedEmbedder, MiniLMEmbedder
from corag.naming import Part
from corag.readers.context import sentences
from corag.text.chunking import Span
from corag.text.documents import SEPARATOR
from corag.types import Answer


class ExtractiveReader(Part):
    """Answers with the best sentences of the context; the title line of a chunk is not one of them.

    Args:
        sentences: Maximum sentences of an answer, at least 1.
    """

    def __init__(self, *, sentences: int = 2) -> None:
        check_count("sentences", sentences, "typical: 1-3")
        self.name = "extractive"
        self.sentences = sentences
        self._embedder = CachedEmbedder(MiniLMEmbedder())

    def answer(self, query: str, context: str) -> Answer:
        """Return the best sentences; an empty answer with confidence 0 for a context without text."""
        first: dict[str, Span] = {}
        for start, end in sentences(context):
            first.setdefault(" ".join(context[start:end].split()), (start, end))
        if not first:
            return Answer("", confidence=0.0)
        texts = list(first)
        vectors = self._embedder.vectors([query, *texts])
        cosines = vectors[1:] @ vectors[0]
        best = np.argsort(-cosines, kind="stable")[: self.sentences].tolist()
        spans = tuple(first[texts[index]] for index in sorted(best))
        text = " ".join(texts[index] for index in sorted(best))
        confidence = float(np.clip(cosines[best[0]], 0.0, 1.0))
        return Answer(text, confidence, spans, chunk=context.count(SEPARATOR, 0, spans[0][0]))

"""`extractive`: the sentences of the context that are closest to the question, in their own order.

Runs offline. Sentences are embedded by all-MiniLM-L6-v2, each once while its embedding is in the cache.
"""

from __future__ import annotations

import numpy as np

from corag.checks import check_count
from corag.models.cached import CachedEmbedder
from corag.models.embedders import MiniLMEmbedder
from corag.naming import Part
from corag.readers.context import closest_sentences, with_sentences
from corag.text.documents import SEPARATOR
from corag.types import Answer


class ExtractiveReader(Part):
    """Answers with the best sentences of the context; the title line of a chunk is not one of them.

    Args:
        sentences: Maximum sentences of an answer, at least 1.
    """

    def __init__(self, *, sentences: int = 2) -> None:
        check_count("sentences", sentences, "1 to 3 are usual")
        self.name = "extractive"
        self.sentences = sentences
        self._embedder = CachedEmbedder(MiniLMEmbedder())

    def answer(self, query: str, context: str) -> Answer:
        """Return the best sentences; an empty answer with confidence 0 for a context without text."""
        close = closest_sentences(query, context, self._embedder, self.sentences)
        if close is None:
            return Answer("", confidence=0.0)
        text = " ".join(" ".join(context[start:end].split()) for start, end in close.spans)
        confidence = float(np.clip(close.cosine, 0.0, 1.0))
        answer = Answer(text, confidence, close.spans, chunk=context.count(SEPARATOR, 0, close.spans[0][0]))
        return with_sentences(answer, context, close.spans)

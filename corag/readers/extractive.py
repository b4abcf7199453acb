"""`extractive`: the sentences of the context that are closest to the question, in their own order.

Runs offline. Sentences are embedded by all-MiniLM-L6-v2, each once while its embedding is in the cache.
"""

from __future__ import annotations

import numpy as np

from corag.checks import check_count
from corag.models.cached import CachedEmbedder
from corag.models.embedders import MiniLMEmbedder
from corag.models.runtime import Backend
from corag.naming import Part
from corag.readers.context import gaps, headings
from corag.text.chunking import Span, sentence_spans
from corag.text.documents import SEPARATOR
from corag.types import Answer


class ExtractiveReader(Part):
    """Answers with the best sentences of the context; the title line of a chunk is not one of them.

    Args:
        sentences: Maximum sentences of an answer, at least 1.
        cache_mb: Megabytes of embeddings of sentences that are kept (3 KB each); 0 keeps none.
        backend: `auto`, `openvino` or `torch`; see `corag.models.runtime`.
    """

    def __init__(self, *, sentences: int = 2, cache_mb: float = 200, backend: Backend = "auto") -> None:
        check_count("sentences", sentences, "1 to 3 are usual")
        self.name = "extractive"
        self.sentences = sentences
        self._embedder = CachedEmbedder(MiniLMEmbedder(backend=backend), cache_mb=cache_mb)

    def answer(self, query: str, context: str) -> Answer:
        """Return the best sentences; an empty answer with confidence 0 for a context without text."""
        bodies = headings(context)
        spans = [
            span for start, end in _sentences(context) if (span := _stripped(context, bodies.get(start, start), end))
        ]
        if not spans:
            return Answer("", confidence=0.0)
        # Of repeated sentences only the first counts.
        first: dict[str, Span] = {}
        for start, end in spans:
            first.setdefault(" ".join(context[start:end].split()), (start, end))
        texts = list(first)
        vectors = self._embedder.vectors([query, *texts])
        cosines = vectors[1:] @ vectors[0]
        best = np.argsort(-cosines, kind="stable")[: self.sentences].tolist()
        chosen = [texts[index] for index in sorted(best)]
        found = tuple(first[text] for text in chosen)
        confidence = float(np.clip(cosines[best[0]], 0.0, 1.0))
        return Answer(" ".join(chosen), confidence, found, chunk=context.count(SEPARATOR, 0, found[0][0]))


def _sentences(context: str) -> list[Span]:
    """Return the sentences of a context without the marks of gaps, which end a sentence."""
    found: list[Span] = []
    begin = 0
    for start, end in [*gaps(context), (len(context), len(context))]:
        found += [(begin + first, begin + last) for first, last in sentence_spans(context[begin:start])]
        begin = end
    return found


def _stripped(text: str, start: int, end: int) -> Span | None:
    """Return the span without white space at its ends; None if nothing is left."""
    start = end - len(text[start:end].lstrip())
    return (start, start + len(text[start:end].rstrip())) if start < end else None

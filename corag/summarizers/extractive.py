"""`extractive`: the most central sentences of the texts, without repetition; runs offline.

A sentence is scored by its similarity to the others (Radev et al., "Centroid-based summarization of multiple
documents", 2004) and, with a question, to the question. Maximal marginal relevance omits sentences that repeat others.
"""

from __future__ import annotations

import numpy as np

from corag.models.cached import CachedEmbedder
from corag.naming import Part, Spelling
from corag.registry import tokens as make_tokens
from corag.selectors.mmr import marginal_relevance
from corag.selectors.problem import shared_words
from corag.text.chunking import cut_to_tokens, sentence_spans
from corag.types import Embedder, FloatArray, Order, SummaryRequest, TokenCounter

RELEVANCE_WEIGHT = 0.6
"""Relevance against novelty; lambda of maximal marginal relevance."""
MOST_SENTENCES = 500
"""Sentences that are compared; of more, only the most promising are."""
QUERY_WEIGHT = 0.8
"""Weight of the similarity to the question, if there is one; the rest is centrality."""


class ExtractiveSummarizer(Part):
    """Takes whole sentences from the texts, in their own order, up to an exact number of tokens.

    Args:
        embedder: Name or object.
        tokens: Counts tokens: name or object; MiniLM's counter by default.
    """

    max_concurrent = 1
    window_tokens = None

    def __init__(self, *, embedder: str | Embedder = "minilm", tokens: Spelling | TokenCounter | None = None) -> None:
        self.name = "extractive"
        self.tokens = make_tokens(tokens or "minilm")
        embedder_name = embedder if isinstance(embedder, str) else embedder.name
        self.identity = f"extractive 2 {embedder_name} {RELEVANCE_WEIGHT} {QUERY_WEIGHT} {self.tokens.name}"
        self._embedder = CachedEmbedder(embedder)

    def summarize(self, request: SummaryRequest) -> str:
        """Return sentences of the texts, those of one text on one line; empty for texts without any."""
        sentences = _promising(_sentences(request.texts), request.query)
        if not sentences:
            return ""
        texts = [text for _, text in sentences]
        worth, vectors = self._worth(texts, request.query)
        # A sentence is counted with the space that joins it to the next.
        costs = self.tokens.count([f"{text} " for text in texts])
        chosen = marginal_relevance(
            worth, vectors, relevance_weight=RELEVANCE_WEIGHT, costs=costs, budget=request.max_tokens
        )
        for kept in range(len(chosen), 0, -1):
            summary = _in_order(sentences, chosen[:kept])
            if int(self.tokens.count([summary])[0]) <= request.max_tokens:
                return summary
        return cut_to_tokens(texts[int(worth.argmax())], self.tokens, request.max_tokens)

    def _worth(self, texts: list[str], query: str) -> tuple[FloatArray, FloatArray]:
        """Return the score of each sentence, `[N]`, and its vector, `[N, D]`."""
        vectors = self._embedder.vectors(texts)
        # The mean cosine to all sentences is the cosine to their mean, up to its length.
        centrality: FloatArray = vectors @ vectors.mean(axis=0)
        if not query:
            return centrality, vectors
        relevance = vectors @ self._embedder.vectors([query])[0]
        return QUERY_WEIGHT * relevance + (1 - QUERY_WEIGHT) * centrality, vectors


def _sentences(texts: tuple[str, ...]) -> list[tuple[int, str]]:
    """Return each distinct sentence once, with the number of the first text that contains it."""
    first: dict[str, int] = {}
    for number, text in enumerate(texts):
        for start, end in sentence_spans(text):
            if sentence := text[start:end].strip():
                first.setdefault(sentence, number)
    return [(number, sentence) for sentence, number in first.items()]


def _promising(sentences: list[tuple[int, str]], query: str) -> list[tuple[int, str]]:
    """Return at most `MOST_SENTENCES`, in their order: by the question's words, then those of the first texts.

    An encoder reads a thousand sentences in some seconds, and a group may have a hundred thousand.
    """
    if len(sentences) <= MOST_SENTENCES:
        return sentences
    shared = shared_words(query, [text for _, text in sentences])
    return [sentences[index] for index in np.sort(np.argsort(-shared, kind="stable")[:MOST_SENTENCES])]


def _in_order(sentences: list[tuple[int, str]], chosen: Order) -> str:
    lines: dict[int, list[str]] = {}
    for index in sorted(chosen):
        number, sentence = sentences[index]
        lines.setdefault(number, []).append(sentence)
    return "\n".join(" ".join(line) for line in lines.values())

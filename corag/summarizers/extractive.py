"""`extractive`: the most central sentences of the texts, without repetition; runs offline.

A sentence is scored by its similarity to the others (Radev et al., "Centroid-based summarization of multiple
documents", 2004) and, with a question, to the question. Maximal marginal relevance omits sentences that repeat others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from common.configuration import spelling
from corag.models.encoders import EncoderPart, tokens_within, unit
from corag.ranking import marginal_relevance, shared_words
from corag.registry import tokens as make_tokens
from corag.text.chunking import cut_to_tokens, sentence_spans
from corag.text.units import Span
from corag.types import FloatArray, Order, SummaryRequest, TokenCounter

RELEVANCE_WEIGHT = 0.6
"""Relevance against novelty; lambda of maximal marginal relevance."""
MOST_SENTENCES = 500
"""Sentences that are compared; of more, only the most promising are."""
QUERY_WEIGHT = 0.8
"""Weight of the similarity to the question, if there is one; the rest is centrality."""


class Sentence(NamedTuple):
    """A sentence: which text it is from, where, and its words."""

    text_number: int
    span: Span
    text: str


@dataclass(kw_only=True, eq=False)
class ExtractiveSummarizer(EncoderPart):
    """Takes whole sentences from the texts, in their own order, up to an exact number of tokens.

    The vector of a sentence is the mean of what MiniLM makes of its tokens within their text, so a text that a selector
    has embedded is not encoded again.

    Args:
        tokenizer: Counts tokens: name or object; MiniLM's counter by default.
    """

    max_concurrent = 1
    window_tokens = None
    name = "extractive"

    tokenizer: str | TokenCounter | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.tokens = make_tokens(self.tokenizer or "minilm")
        encoder = "" if self.encoder == "minilm" else f" {spelling(self.encoder)}"
        self.identity = f"extractive 3 {RELEVANCE_WEIGHT} {QUERY_WEIGHT} {self.tokens.name}{encoder}"

    def summarize(self, request: SummaryRequest) -> str:
        """Return sentences of the texts, those of one text on one line; empty for texts without any."""
        sentences = _promising(_sentences(request.texts), request.query)
        if not sentences:
            return ""
        texts = [sentence.text for sentence in sentences]
        vectors = self._vectors(request.texts, sentences)
        worth = self._worth(vectors, request.query)
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

    def _vectors(self, texts: Sequence[str], sentences: Sequence[Sentence]) -> FloatArray:
        """Return the unit vector of each sentence, `[N, D]`; one without tokens has that of its text."""
        numbers = sorted({sentence.text_number for sentence in sentences})
        encoded = dict(zip(numbers, self._encoder.whole([texts[number] for number in numbers]), strict=True))
        vectors = []
        for sentence in sentences:
            windows, spans = encoded[sentence.text_number], [sentence.span]
            states = np.concatenate([window.tokens[tokens_within(window.starts, spans)] for window in windows])
            vectors.append(states.mean(axis=0) if len(states) else windows[0].vector)
        return unit(np.array(vectors)).astype(np.float64)

    def _worth(self, vectors: FloatArray, query: str) -> FloatArray:
        """Return the score of each sentence, `[N]`."""
        # The mean cosine to all sentences is the cosine to their mean, up to its length.
        centrality: FloatArray = vectors @ vectors.mean(axis=0)
        if not query:
            return centrality
        relevance: FloatArray = vectors @ self._encoder.question(query).vector
        return QUERY_WEIGHT * relevance + (1 - QUERY_WEIGHT) * centrality


def _sentences(texts: Sequence[str]) -> list[Sentence]:
    """Return each distinct sentence once, in the first text that contains it."""
    first: dict[str, Sentence] = {}
    for number, text in enumerate(texts):
        for start, end in sentence_spans(text):
            if words := text[start:end].strip():
                first.setdefault(words, Sentence(number, (start, end), words))
    return list(first.values())


def _promising(sentences: list[Sentence], query: str) -> list[Sentence]:
    """Return at most `MOST_SENTENCES`, in their order: by the question's words, then those of the first texts.

    An encoder reads a thousand sentences in some seconds, and a group may have a hundred thousand.
    """
    if len(sentences) <= MOST_SENTENCES:
        return sentences
    shared = shared_words(query, [sentence.text for sentence in sentences])
    return [sentences[index] for index in np.sort(np.argsort(-shared, kind="stable")[:MOST_SENTENCES])]


def _in_order(sentences: Sequence[Sentence], chosen: Order) -> str:
    lines: dict[int, list[str]] = {}
    for index in sorted(chosen):
        lines.setdefault(sentences[index].text_number, []).append(sentences[index].text)
    return "\n".join(" ".join(line) for line in lines.values())

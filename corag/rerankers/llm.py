"""`llm`: an ordered combination is worth what the model that answers says of it: the probability that it is enough.

One token per order: the model is asked whether the context is enough, and the value is P(yes) / (P(yes) + P(no)) of its
first token, as in pointwise yes/no reranking (Nogueira et al., "Document Ranking with a Pretrained Sequence-to-Sequence
Model", 2020), here of several chunks together.

The context is last in the prompt, and a child of the search's tree appends a chunk to its parent's context, so their
prompts share a prefix that is all but the new chunk and a few closing words. A server with a prefix cache (llama.cpp,
vLLM, Ollama) computes only these. Orders are sent such that those that share a prefix follow each other. The question
is before the context: it is the same for all orders of a search, so that it is computed once, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from corag.errors import InputError, ReaderError, ScoringError
from corag.memory import LRU
from corag.models.chat import Chat
from corag.models.encoders import cache_capacity
from corag.models.prompts import prompt as prompt_named
from corag.registry import READERS, Part
from corag.rerankers.scorers import JoinedTextScorer
from corag.types import Chunk, FloatArray, Reader

YES, NO = "yes", "no"
"""The replies that a prompt has to ask for; case and white space around them do not matter."""


class PrefixScorer(JoinedTextScorer):
    """Scores joined texts at the cost of what follows the prefix that an order shares with one scored before."""

    shares_prefixes = True


class LanguageModel(Part):
    """The probability, in [0, 1], that a language model finds a context enough for a question; 0 for a blank context.

    Args:
        reader: Whose model is asked, on a server that tells log-probabilities: `openai(model=..., base_url=...)` or
            `ollama(model=...)`. At most its `max_concurrent` requests are under way at a time.
        prompt: What it is asked: `enough`, or the path of a text file with the fields `{question}` and `{context}`
            that asks for yes or no. For a prefix cache, the context has to be last.
    """

    name = "llm"
    max_tokens = None
    gives_probabilities = True

    def __init__(self, *, reader: str | Reader, prompt: str = "enough") -> None:
        made = READERS.make(reader)
        if not isinstance(made, Chat):
            raise InputError(
                f"reader {made.name!r} has no language model to ask; name one with its server, such as "
                "openai(model=..., base_url=...) or ollama(model=...)"
            )
        self.reader, self.prompt = reader, prompt
        self._chat = made
        self._template = prompt_named(str(prompt), "corag/prompts/values", needs=["question", "context"])
        self._values: LRU[tuple[str, str], float] = LRU(cache_capacity())

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return the value of each text, `[len(texts)]`.

        Raises:
            ReaderError: The server failed, or tells no log-probabilities.
            ScoringError: The model would say neither yes nor no.
        """
        pairs = [(query, text) for text in texts]
        return np.array(self._values.get_many(pairs, self._ask), dtype=np.float64)

    def scorer(self, query: str, chunks: Sequence[Chunk]) -> PrefixScorer:
        """Return a scoring function over the joined texts of orders."""
        return PrefixScorer(self, query, chunks)

    def _ask(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        values = dict.fromkeys(pairs, 0.0)
        # Sorted, texts with the same beginning follow each other.
        asked = sorted(pair for pair in values if any(one.isprintable() and not one.isspace() for one in pair[1]))
        conversations = [self._template.messages(question=query, context=text) for query, text in asked]
        replies = self._chat.ask_many(conversations, first_tokens=True) if asked else []
        values |= {pair: self._probability(reply.first_tokens) for pair, reply in zip(asked, replies, strict=True)}
        return [values[pair] for pair in pairs]

    def _probability(self, first_tokens: Mapping[str, float]) -> float:
        if not first_tokens:
            raise ReaderError(
                f"{self._chat.title} tells no log-probabilities of alternatives (top_logprobs), which reranker "
                f"{self.name!r} needs; use a server that does, such as llama.cpp, vLLM, or Ollama from 0.12.11 on"
            )
        mass = dict.fromkeys((YES, NO), 0.0)
        for token, score in first_tokens.items():
            if (reply := token.strip().casefold()) in mass:
                mass[reply] += math.exp(min(score, 0.0))
        if not (total := sum(mass.values())) > 0:
            raise ScoringError(
                f"{self._chat.title} would reply {', '.join(map(repr, list(first_tokens)[:3]))}, neither {YES!r} nor "
                f"{NO!r}; use a model that follows instructions, or a prompt that asks for one of the two"
            )
        return mass[YES] / total

"""The window of a reranker: how much of an order it sees at once, and how longer orders are handled."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from corag.errors import InputError
from corag.registry import Part
from corag.types import Chunk, FloatArray, Order

WindowPolicy = Literal["windows", "truncate"]
"""How an order longer than the window is handled. `windows` scores overlapping windows and takes the best value.
`truncate` cuts its end off and counts it."""

DEFAULT_POLICY: WindowPolicy = "windows"
"""Measured on 69 questions (HotpotQA, 2Wiki, MuSiQue), taking the best combination of up to six chunks by
`minilm-cosine` with a window of 254 tokens and a budget of 512: the whole evidence was selected for 22 questions with
`windows`, 19 with `truncate`, and 15 if longer combinations were excluded. The mean of the windows in place of their
maximum gave 19."""

Output = Literal["probability", "logit"]
LOWEST_LOGIT = -53 * math.log(2)
"""What an empty text is worth as a logit, -36.7, and the least that any text is: the probability 0 has none, and below
this one no probability can be told from 0 beside 1 in double precision."""


class WindowedQuestion(NamedTuple):
    """A question as its reranker needs it, and the most tokens of a text that fit the window beside it."""

    content: Any
    capacity: int


class WindowedReranker(Part, ABC):
    """Base of rerankers that read the joined text of an order, as much of it as fits a window.

    Attributes:
        max_tokens: The window.
    """

    max_tokens: int

    @abstractmethod
    def question(self, query: str) -> WindowedQuestion:
        """Return a question; `InputError` if no text fits beside it."""

    @abstractmethod
    def read(self, texts: Sequence[str]) -> Sequence[Any]:
        """Return what `join` needs of each text."""

    def join(self, orders: Sequence[Sequence[Any]]) -> Sequence[Any]:
        """Return the joined text of each order as a sequence of tokens, of which a slice is a part of the text.

        By default `read` returns token ids, and a joined text has those of its parts, one after the other.
        """
        return list(map(np.concatenate, orders))

    @abstractmethod
    def values(self, pairs: Sequence[tuple[Any, Any]]) -> FloatArray:
        """Return the value of each pair of a question's content and a text that fits the window, `[len(pairs)]`."""

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return the value of each text, cut to the window, `[len(texts)]`.

        Raises:
            InputError: The question leaves no room for a text, or something is not valid Unicode.
        """
        question = self.question(query)
        whole = self.join([[text] for text in self.read(texts)])
        return self.values([(question.content, tokens[: question.capacity]) for tokens in whole])

    def scorer(self, query: str, chunks: Sequence[Chunk]) -> WindowedScorer:
        """Return a scoring function over orders of chunks; see `score`."""
        return WindowedScorer(self, query, [chunk.text for chunk in chunks])


class WindowedScorer:
    """Scores the joined texts of orders.

    Attributes:
        reranker: The reranker; scorers of the same one share batches.
        window_tokens: The most tokens of an order's text that the reranker sees at once, in its own tokens, without
            question and special tokens.
        policy: How orders longer than the window are handled; whoever asks for the scorer may set it.
        overlong_orders: Such orders so far.
    """

    order_matters = True

    def __init__(self, reranker: WindowedReranker, query: str, texts: Sequence[str]) -> None:
        self.reranker = reranker
        self._question, self.window_tokens = reranker.question(query)
        self._texts = reranker.read(texts)
        self.policy: WindowPolicy = "truncate"
        self.overlong_orders: set[Order] = set()

    @property
    def num_truncated(self) -> int:
        """Distinct orders so far that were cut."""
        return len(self.overlong_orders) if self.policy == "truncate" else 0

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Return one value per order, `[len(orders)]`."""
        return self.score_jointly([(self, orders)])[0]

    @staticmethod
    def score_jointly(requests: Sequence[tuple[WindowedScorer, Sequence[Order]]]) -> list[FloatArray]:
        """Return the values of each scorer's orders, run in shared batches; all have the same reranker."""
        pairs: list[tuple[Any, Any]] = []
        starts: list[int] = []  # the first pair of each order
        for scorer, orders in requests:
            joined = scorer.reranker.join([[scorer._texts[index] for index in order] for order in orders])
            for order, tokens in zip(orders, joined, strict=True):
                starts.append(len(pairs))
                pairs += [(scorer._question, tokens[start:end]) for start, end in scorer._spans(order, len(tokens))]
        values = requests[0][0].reranker.values(pairs)
        best = np.maximum.reduceat(values, np.array(starts, dtype=np.intp)) if pairs else values
        return np.split(best, np.cumsum([len(orders) for _, orders in requests])[:-1])

    def _spans(self, order: Order, length: int) -> list[tuple[int, int]]:
        size = self.window_tokens
        if length <= size:
            return [(0, length)]
        self.overlong_orders.add(order)
        return [(0, size)] if self.policy == "truncate" else window_spans(length, size)


def window_spans(num_tokens: int, size: int) -> list[tuple[int, int]]:
    """Return spans of at most `size` tokens that cover a text: half a window apart, the last one flush with the end."""
    last = max(num_tokens - size, 0)
    return [(start, min(start + size, num_tokens)) for start in (*range(0, last, max(size // 2, 1)), last)]


def tokens_beside(num_tokens: int, max_tokens: int, num_special: int) -> int:
    """Return how many tokens of a text fit the window beside a question; `InputError` if none does."""
    capacity = max_tokens - num_special - num_tokens
    if capacity < 1:
        raise InputError(
            f"the question has {num_tokens} tokens, which leaves no room for a text in the reranker's window of "
            f"{max_tokens} tokens; shorten the question"
        )
    return capacity


def as_output(logits: FloatArray, output: Output) -> FloatArray:
    """Return logits as probabilities, or as logits of at least `LOWEST_LOGIT`; -inf is the logit of an empty text."""
    # The logistic function, written so that no logit overflows.
    return np.maximum(logits, LOWEST_LOGIT) if output == "logit" else 0.5 + 0.5 * np.tanh(0.5 * logits)

"""The window of a reranker: how much of an order it sees at once, and how longer orders are handled.

Knows neither models nor texts: numbers of tokens in, spans of tokens out.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from corag.checks import check_choice
from corag.types import FloatArray, Order

WindowPolicy = Literal["windows", "truncate"]
"""How an order longer than the window is handled. `windows` scores overlapping windows and takes the best value.
`truncate` cuts its end off and counts it."""

DEFAULT_POLICY: WindowPolicy = "windows"
"""Measured on 69 questions (HotpotQA, 2Wiki, MuSiQue), taking the best combination of up to six chunks by
`minilm-cosine` with a window of 254 tokens and a budget of 512: the whole evidence was selected for 22 questions with
`windows`, 19 with `truncate`, and 15 if longer combinations were excluded. The mean of the windows in place of their
maximum gave 19."""


def check_policy(policy: WindowPolicy) -> WindowPolicy:
    """Return the policy, or raise `InputError` where there is none of that name."""
    check_choice("window", policy, WindowPolicy)
    return policy


@dataclass(frozen=True, slots=True)
class WindowSpans:
    """The parts of orders that a model is given, each at most a window long: R spans.

    Attributes:
        owners: Position of the order that each span belongs to, `[R]`.
        bounds: First token of each span in its order, and its last + 1.
        num_orders: Number of orders; each has a span at least.
    """

    owners: NDArray[np.intp]
    bounds: list[tuple[int, int]]
    num_orders: int

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        """Yield owner, first token and last + 1 of each span."""
        for owner, (start, end) in zip(self.owners.tolist(), self.bounds, strict=True):
            yield owner, start, end

    def pooled(self, values: FloatArray) -> FloatArray:
        """Return the value of each order, `[num_orders]`: the largest of its spans' values `[R]`."""
        pooled = np.full(self.num_orders, -np.inf)
        np.maximum.at(pooled, self.owners, values)
        return pooled


class WindowedScorer(ABC):
    """Base of scorers whose reranker has a window. A scorer that looks at one chunk at a time declares none.

    Attributes:
        window_tokens: The most tokens of an order's text that the reranker sees at once, in its own tokens, without
            question and special tokens.
        policy: How orders longer than the window are handled.
        overlong_orders: Such orders so far.
    """

    order_matters = True

    def __init__(self, window_tokens: int) -> None:
        self.window_tokens = window_tokens
        self.policy: WindowPolicy = "truncate"
        self.overlong_orders: set[Order] = set()

    def under(self, policy: WindowPolicy) -> Self:
        """Return the same scorer with another policy, and nothing counted yet."""
        scorer = copy.copy(self)
        scorer.policy, scorer.overlong_orders = policy, set()
        return scorer

    @property
    def num_truncated(self) -> int:
        """Distinct orders so far that were cut."""
        return len(self.overlong_orders) if self.policy == "truncate" else 0

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Return one value per order, `[len(orders)]`."""
        return self.score_jointly([(self, orders)])[0]

    @staticmethod
    @abstractmethod
    def score_jointly(requests: Sequence[tuple[Any, Sequence[Order]]]) -> list[FloatArray]:
        """Return the values of each scorer's orders, run in shared batches."""

    def spans(self, orders: Sequence[Order], lengths: Sequence[int]) -> WindowSpans:
        """Return what the model is given of orders whose joined texts have so many tokens, `[len(orders)]`."""
        of_orders = [self._split(order, length) for order, length in zip(orders, lengths, strict=True)]
        owners = np.repeat(np.arange(len(of_orders)), np.array([len(spans) for spans in of_orders], dtype=np.intp))
        return WindowSpans(owners, [span for spans in of_orders for span in spans], len(of_orders))

    def _split(self, order: Order, length: int) -> list[tuple[int, int]]:
        size = self.window_tokens
        if length <= size:
            return [(0, length)]
        self.overlong_orders.add(order)
        return [(0, size)] if self.policy == "truncate" else window_spans(length, size)


def window_spans(num_tokens: int, size: int) -> list[tuple[int, int]]:
    """Return spans of at most `size` tokens that cover a text: half a window apart, the last one flush with the end."""
    last = max(num_tokens - size, 0)
    return [(start, min(start + size, num_tokens)) for start in (*range(0, last, max(size // 2, 1)), last)]

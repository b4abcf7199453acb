"""What a reranker sees at once, and what becomes of orders that are longer.

Knows neither models nor texts: token ids in, the rows that a model is given out.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, Self, get_args

import numpy as np
from numpy.typing import NDArray

from corag.errors import InputError
from corag.types import FloatArray, Order, Scorer

Int64 = NDArray[np.int64]

WindowPolicy = Literal["forbid", "windows", "truncate"]
"""What becomes of an order that is longer than the window: `forbid`: it is no candidate; `windows`: it is scored in
overlapping windows, and is worth what the best of them is; `truncate`: its end is cut off, and that is counted."""

DEFAULT_POLICY: WindowPolicy = "windows"
"""On 69 questions (HotpotQA, 2Wiki, MuSiQue), each policy taking the best of the same combinations of up to six chunks
by `minilm-cosine` with 254 tokens of window and 512 of budget, the whole evidence was selected for 22 questions with
windows, for 19 with cut texts and for 15 where long ones were forbidden. The mean of the windows gave 19."""


def check_policy(policy: WindowPolicy) -> WindowPolicy:
    """Return the policy.

    Raises:
        InputError: There is no such policy.
    """
    if policy not in get_args(WindowPolicy):
        raise InputError(f"window is {policy!r}; it must be one of {', '.join(get_args(WindowPolicy))}")
    return policy


@dataclass(frozen=True, slots=True)
class Window:
    """What a reranker sees at once of the chunks of one question, in its own tokens.

    An order fits when the lengths of its chunks add up to at most `tokens + separator_tokens`.

    Attributes:
        tokens: The most tokens of an order's text; question and special tokens are not among them.
        lengths: Tokens of each chunk plus one separator, `[chunks]`.
        separator_tokens: Tokens of one separator; 0 where the tokenizer drops it.
    """

    tokens: int
    lengths: Int64
    separator_tokens: int = 0


class WindowedScorer(Scorer, Protocol):
    """A scorer whose reranker sees only so much of an order.

    A scorer that never looks at more than one chunk at a time declares no window.
    """

    @property
    def window(self) -> Window:
        """How much the reranker sees."""
        ...

    @property
    def policy(self) -> WindowPolicy:
        """What becomes of longer orders."""
        ...

    @property
    def overlong_orders(self) -> set[Order]:
        """Orders so far that were longer."""
        ...

    def under(self, policy: WindowPolicy) -> Self:
        """Return the same scorer with a policy of its own, and nothing counted yet."""
        ...


@dataclass(frozen=True, slots=True)
class Rows:
    """Token ids that a model is given, and the orders that they are of.

    Attributes:
        ids: Token ids of each row, `[R]`.
        owners: Position of the order that each row is of, `[R]`.
        num_orders: Orders, those without any row included.
    """

    ids: list[Int64]
    owners: NDArray[np.intp]
    num_orders: int

    def pooled(self, values: FloatArray) -> FloatArray:
        """Return the value of each order, `[num_orders]`: the largest of its rows' values `[R]`, 0 without a row."""
        pooled = np.zeros(self.num_orders)
        np.maximum.at(pooled, self.owners, values)
        return pooled


class Fitter:
    """Makes rows that fit a window of orders of any length.

    Args:
        tokens: The most tokens of a row.
        policy: What becomes of longer orders.

    Attributes:
        overlong_orders: Orders so far that were longer.
    """

    def __init__(self, tokens: int, policy: WindowPolicy = "truncate") -> None:
        self.tokens = tokens
        self.policy = policy
        self.overlong_orders: set[Order] = set()

    @property
    def num_truncated(self) -> int:
        """Distinct orders so far that were cut."""
        return len(self.overlong_orders) if self.policy == "truncate" else 0

    def rows(self, orders: Sequence[Order], ids: Sequence[Int64]) -> Rows:
        """Return what a model is given of orders, whose joined texts have these token ids, `[len(orders)]`.

        Under `forbid` a longer order, which a search does not ask for, has no row.
        """
        of_orders = [self._split(order, of_order) for order, of_order in zip(orders, ids, strict=True)]
        owners = np.repeat(np.arange(len(of_orders)), np.array([len(rows) for rows in of_orders], dtype=np.intp))
        return Rows([row for rows in of_orders for row in rows], owners, len(of_orders))

    def _split(self, order: Order, ids: Int64) -> list[Int64]:
        if len(ids) <= self.tokens:
            return [ids]
        self.overlong_orders.add(order)
        if self.policy == "forbid":
            return []
        if self.policy == "truncate":
            return [ids[: self.tokens]]
        return [ids[start : start + self.tokens] for start in window_starts(len(ids), self.tokens)]


class FittedScorer:
    """What scorers share that cut or window the orders they are given; they set both attributes.

    Attributes:
        window: What of an order is seen at once.
    """

    window: Window
    _fitter: Fitter

    def under(self, policy: WindowPolicy) -> Self:
        """Return the same scorer with a policy of its own, and nothing counted yet."""
        scorer = copy.copy(self)
        scorer._fitter = Fitter(self.window.tokens, policy)
        return scorer

    @property
    def policy(self) -> WindowPolicy:
        """What becomes of orders that are longer than the window."""
        return self._fitter.policy

    @property
    def overlong_orders(self) -> set[Order]:
        """Orders so far that were longer than the window."""
        return self._fitter.overlong_orders

    @property
    def num_truncated(self) -> int:
        """Distinct orders so far that were cut."""
        return self._fitter.num_truncated


def window_starts(length: int, tokens: int) -> list[int]:
    """Return where windows of `tokens` begin in a longer text: half a window apart, the last one flush with the end."""
    return [*range(0, length - tokens, max(1, tokens // 2)), length - tokens]

"""The window of a reranker: how much of an order it sees at once, and how longer orders are handled.

Knows neither models nor texts: token ids in, rows of token ids for a model out.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from corag.checks import check_choice
from corag.models.engine.engine import Int64, windows
from corag.types import FloatArray, Order

WindowPolicy = Literal["forbid", "windows", "truncate"]
"""How an order longer than the window is handled. `forbid` excludes it. `windows` scores overlapping windows and takes
the best value. `truncate` cuts its end off and counts it."""

DEFAULT_POLICY: WindowPolicy = "windows"
"""Measured on 69 questions (HotpotQA, 2Wiki, MuSiQue), taking the best combination of up to six chunks by
`minilm-cosine` with a window of 254 tokens and a budget of 512: the whole evidence was selected for 22 questions with
`windows`, 19 with `truncate` and 15 with `forbid`. The mean of the windows in place of their maximum gave 19."""


def check_policy(policy: WindowPolicy) -> WindowPolicy:
    """Return the policy, or raise `InputError` where there is none of that name."""
    check_choice("window", policy, WindowPolicy)
    return policy


@dataclass(frozen=True, slots=True)
class Window:
    """How much a reranker sees at once of the chunks of one question, in its own tokens.

    An order fits when the lengths of its chunks add up to at most `tokens + separator_tokens`.

    Attributes:
        tokens: The most tokens of an order's text, without question and special tokens.
        lengths: Tokens of each chunk plus one separator, `[chunks]`.
        separator_tokens: Tokens of one separator; 0 where the tokenizer drops it.
    """

    tokens: int
    lengths: Int64
    separator_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Rows:
    """Token ids for a model, and the orders that they belong to.

    Attributes:
        ids: Token ids of each row, `[R]`.
        owners: Position of the order that each row belongs to, `[R]`.
        num_orders: Number of orders, including those without a row.
    """

    ids: list[Int64]
    owners: NDArray[np.intp]
    num_orders: int

    def pooled(self, values: FloatArray, lowest: float = 0.0) -> FloatArray:
        """Return the value of each order, `[num_orders]`: the largest of its rows' values `[R]`.

        `lowest` is the value of an order without a row, and the least of any.
        """
        pooled = np.full(self.num_orders, lowest)
        np.maximum.at(pooled, self.owners, values)
        return pooled


class WindowedScorer(ABC):
    """Base of scorers whose reranker has a window. A scorer that looks at one chunk at a time declares none.

    Attributes:
        window: How much of an order the reranker sees.
        policy: How orders longer than the window are handled.
        overlong_orders: Such orders so far.
    """

    order_matters = True

    def __init__(self, window: Window) -> None:
        self.window = window
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

    def rows(self, orders: Sequence[Order], ids: Sequence[Int64]) -> Rows:
        """Return the rows of orders whose joined texts have these token ids, `[len(orders)]`.

        Under `forbid` a longer order, which a search does not ask for, has no row.
        """
        of_orders = [self._split(order, of_order) for order, of_order in zip(orders, ids, strict=True)]
        owners = np.repeat(np.arange(len(of_orders)), np.array([len(rows) for rows in of_orders], dtype=np.intp))
        return Rows([row for rows in of_orders for row in rows], owners, len(of_orders))

    def _split(self, order: Order, ids: Int64) -> list[Int64]:
        tokens = self.window.tokens
        if len(ids) <= tokens:
            return [ids]
        self.overlong_orders.add(order)
        if self.policy == "forbid":
            return []
        if self.policy == "truncate":
            return [ids[:tokens]]
        return [ids[start:end] for start, end in windows(len(ids), tokens)]

"""Scoring functions over candidate indices, and what they share: joining, checking, remembering."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike

from corag.errors import ScoringError
from corag.rerankers.window import Window, WindowPolicy
from corag.text.documents import SEPARATOR
from corag.types import Chunk, FloatArray, Order, Reranker, Scorer


class JoinedTextScorer:
    """Scores the joined text of each order with `Reranker.score`: right for any reranker, fast for none.

    Args:
        reranker: Scores texts.
        query: The question.
        chunks: What the orders index.
    """

    order_matters = True
    num_truncated = 0

    def __init__(self, reranker: Reranker, query: str, chunks: Sequence[Chunk]) -> None:
        self._reranker = reranker
        self._query = query
        self._texts = [chunk.text for chunk in chunks]

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Return one value per order, `[len(orders)]`."""
        return self._reranker.score(self._query, [SEPARATOR.join(self._texts[i] for i in order) for order in orders])


class MemoScorer:
    """Remembers every value and refuses what cannot be ranked.

    Values depend on the query, the reranker and the order alone, so one `MemoScorer` serves every setting of
    a search over the same candidates.

    Args:
        scorer: Computes values.
        name: The reranker's name, for error messages.
        ids: Ids of the chunks that orders index, for error messages.

    Attributes:
        window: What of an order the reranker sees at once; None where it declares no window.
        policy: What becomes of longer orders; None likewise.
    """

    def __init__(self, scorer: Scorer, name: str, ids: Sequence[str]) -> None:
        self.scorer = scorer
        self._name = name
        self._ids = ids
        self._values: dict[Order, float] = {}
        self.order_matters = scorer.order_matters
        self.window: Window | None = getattr(scorer, "window", None)
        self.policy: WindowPolicy | None = getattr(scorer, "policy", None)

    @property
    def num_truncated(self) -> int:
        """Distinct orders so far that were cut to fit the reranker's window."""
        return self.scorer.num_truncated

    @property
    def overlong_orders(self) -> set[Order]:
        """Orders so far that were longer than the reranker's window, for rerankers that declare one."""
        overlong: set[Order] = getattr(self.scorer, "overlong_orders", set())
        return overlong

    @property
    def num_computed(self) -> int:
        """Distinct orders (sets, where order does not matter) that the reranker was asked for."""
        return len(self._values)

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Return one value per order, `[len(orders)]`; only unseen orders reach the reranker.

        Raises:
            ScoringError: The reranker returned another number of values, or what is no finite number.
        """
        if new := self.missing(orders):
            self.learn(new, self.scorer(new))
        return self.recall(orders)

    def _key(self, order: Order) -> Order:
        return order if self.order_matters else tuple(sorted(order))

    def missing(self, orders: Sequence[Order]) -> list[Order]:
        """Return the orders (sets, where order does not matter) whose values are not known yet, each once."""
        keys = dict.fromkeys(map(self._key, orders))
        return [key for key in keys if key not in self._values]

    def learn(self, orders: list[Order], answer: ArrayLike) -> None:
        """Take in what the reranker said about `missing` orders.

        Raises:
            ScoringError: It is another number of values, or no finite numbers.
        """
        self._values.update(zip(orders, self._checked(orders, answer), strict=True))

    def recall(self, orders: Sequence[Order]) -> FloatArray:
        """Return the known values of orders, `[len(orders)]`."""
        return np.array([self._values[self._key(order)] for order in orders], dtype=np.float64)

    def _checked(self, orders: list[Order], answer: ArrayLike) -> list[float]:
        """Return the values in a reranker's answer, if they can be ranked."""
        try:
            values = np.asarray(answer, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ScoringError(
                f"reranker {self._name!r} returned a {type(answer).__name__} that is no array of numbers "
                f"({error}) for {self._named(orders)}; it has to return one number for each order"
            ) from error
        if values.shape != (len(orders),):
            raise ScoringError(
                f"reranker {self._name!r} returned values of shape {values.shape} for {self._named(orders)}; "
                "it has to return one number for each order"
            )
        finite = np.isfinite(values)
        if not finite.all():
            bad = int(np.argmin(finite))
            raise ScoringError(
                f"reranker {self._name!r} returned {values[bad]} for {self._named([orders[bad]])}; values "
                "have to be finite: check the model's precision, or leave out the chunk that causes it"
            )
        found: list[float] = values.tolist()
        return found

    def _named(self, orders: list[Order]) -> str:
        """Return the ids of the first order's chunks, and how many orders more there are."""
        chunks = ", ".join(repr(self._ids[index]) for index in orders[0])
        return f"the chunks {chunks}" + (f" and {len(orders) - 1} more orders" if len(orders) > 1 else "")


class JointScorer(Protocol):
    """A scorer whose orders can share batches with those of other questions.

    Attributes:
        reranker: Only scorers of one and the same share batches.
    """

    reranker: Any

    @staticmethod
    def score_jointly(requests: Sequence[tuple[Any, Sequence[Order]]]) -> list[FloatArray]:
        """Return the values of each scorer's orders, for scorers of one reranker."""
        ...


def score_together(requests: Sequence[tuple[MemoScorer, Sequence[Order]]]) -> list[FloatArray]:
    """Score orders of many questions, in shared batches where their scorers are `JointScorer`s.

    Args:
        requests: Scorers, each at most once, with the orders to score.

    Returns:
        Per request the values of its orders.

    Raises:
        ScoringError: A reranker returned another number of values, or what is no finite number.
    """
    groups: dict[tuple[Callable[..., list[FloatArray]], int], list[tuple[MemoScorer, list[Order]]]] = {}
    for memo, orders in requests:
        if not (new := memo.missing(orders)):
            continue
        joint = getattr(memo.scorer, "score_jointly", None)
        if joint is None:
            memo.learn(new, memo.scorer(new))
        else:
            groups.setdefault((joint, id(cast(JointScorer, memo.scorer).reranker)), []).append((memo, new))
    for (joint, _), members in groups.items():
        answers = joint([(memo.scorer, new) for memo, new in members])
        for (memo, new), values in zip(members, answers, strict=True):
            memo.learn(new, values)
    return [memo.recall(orders) for memo, orders in requests]

"""Scoring functions over candidate indices, and what they share: joining, checking, remembering."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from corag.errors import ScoringError
from corag.types import Chunk, FloatArray, Order, Reranker, Scorer

SEPARATOR = "\n\n"
"""What stands between two chunks in a prompt, and in the text that a reranker is given."""


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
    """

    def __init__(self, scorer: Scorer, name: str, ids: Sequence[str]) -> None:
        self._scorer = scorer
        self._name = name
        self._ids = ids
        self._values: dict[Order, float] = {}
        self.order_matters = scorer.order_matters

    @property
    def num_truncated(self) -> int:
        """Distinct orders so far that did not fit the reranker's window."""
        return self._scorer.num_truncated

    @property
    def num_computed(self) -> int:
        """Distinct orders (sets, where order does not matter) that the reranker was asked for."""
        return len(self._values)

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Return one value per order, `[len(orders)]`; only unseen orders reach the reranker.

        Raises:
            ScoringError: The reranker returned another number of values, or what is no finite number.
        """
        keys = [order if self.order_matters else tuple(sorted(order)) for order in orders]
        new = [key for key in dict.fromkeys(keys) if key not in self._values]
        if new:
            self._values.update(zip(new, self._computed(new), strict=True))
        return np.array([self._values[key] for key in keys], dtype=np.float64)

    def _computed(self, orders: list[Order]) -> list[float]:
        """Return what the reranker says, if it can be ranked."""
        answer = self._scorer(orders)
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

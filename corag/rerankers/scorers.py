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
        return self._reranker.score(
            self._query, [SEPARATOR.join(self._texts[i] for i in order) for order in orders]
        )


class MemoScorer:
    """Remembers every value and refuses what cannot be ranked.

    Values depend on the query, the reranker and the order alone, so one `MemoScorer` serves every setting of
    a search over the same candidates.

    Args:
        scorer: Computes values.
        name: The reranker's name, for error messages.
    """

    def __init__(self, scorer: Scorer, name: str) -> None:
        self._scorer = scorer
        self._name = name
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
            ScoringError: The reranker returned another number of values, or one that is not finite.
        """
        keys = [order if self.order_matters else tuple(sorted(order)) for order in orders]
        new = [key for key in dict.fromkeys(keys) if key not in self._values]
        if new:
            values = np.asarray(self._scorer(new), dtype=np.float64)
            if values.shape != (len(new),):
                raise ScoringError(
                    f"reranker {self._name!r} returned values of shape {values.shape} for {len(new)} orders; "
                    "it has to return one number for each"
                )
            if not np.isfinite(values).all():
                bad = int(np.argmin(np.isfinite(values)))
                raise ScoringError(
                    f"reranker {self._name!r} returned {values[bad]} for the candidates {list(new[bad])}; values have "
                    "to be finite: check the model's precision, or leave out the candidate that causes it"
                )
            self._values.update(zip(new, values.tolist(), strict=True))
        return np.array([self._values[key] for key in keys], dtype=np.float64)

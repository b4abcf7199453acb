"""A reranker with known answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from corag.text.documents import SEPARATOR
from corag.types import Chunk, FloatArray, Order


class TableReranker:
    """A reranker with given values of combinations, by ids of chunks: `TableReranker({("a",): 0.3, ("b", "a"): 0.9})`.

    Every other combination has the value `default`.
    """

    def __init__(self, values: Mapping[tuple[str, ...], float], *, default: float = 0.0) -> None:
        self.name = "table"
        self._values, self._default = dict(values), default

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return the value of each text, `[len(texts)]`; a text is read as ids with separators between them."""
        return self._look_up([tuple(text.split(SEPARATOR)) for text in texts])

    def scorer(self, query: str, chunks: Sequence[Chunk]) -> TableScorer:
        """Return a scoring function over the ids of `chunks`."""
        return TableScorer(self, [chunk.id for chunk in chunks])

    def _look_up(self, combinations: Sequence[tuple[str, ...]]) -> FloatArray:
        return np.array([self._values.get(ids, self._default) for ids in combinations], dtype=np.float64)


class TableScorer:
    """A `TableReranker` bound to the ids that orders index."""

    order_matters = True
    num_truncated = 0

    def __init__(self, reranker: TableReranker, ids: Sequence[str]) -> None:
        self._reranker, self._ids = reranker, ids

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Return one value per order, `[len(orders)]`."""
        return self._reranker._look_up([tuple(self._ids[index] for index in order) for order in orders])

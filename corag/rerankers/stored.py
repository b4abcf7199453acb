"""A reranker whose values are kept on disk, so that a later run computes only what is missing."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from corag.engine.store import Entry, ValueStore
from corag.errors import InputError
from corag.rerankers.scorers import MemoScorer
from corag.types import Chunk, FloatArray, Order, Reranker


class Stored:
    """Looks values up in a file before it asks a reranker for them.

    A value is kept under the hash of the reranker's identity, the question, and the texts of the chunks in their
    order. Several processes and several rerankers may share a file.

    Args:
        reranker: Has to have an `identity`: a text that changes whenever its values may (name, hash of the weights,
            precision, window). A reranker whose values depend on more than question and texts, as those of `bm25` do
            on the other candidates, must not have one.
        path: The file; see `corag.engine.store`.

    Raises:
        InputError: The reranker has no identity.
        DataError: The file cannot be used.
    """

    def __init__(self, reranker: Reranker, path: str | Path) -> None:
        identity = getattr(reranker, "identity", None)
        if not isinstance(identity, str) or not identity:
            raise InputError(
                f"the values of reranker {reranker.name!r} cannot be stored: it has no `identity`; store those of "
                "'cross-encoder' or 'minilm-cosine', or give yours a text that changes whenever its values may"
            )
        self.name = reranker.name
        self.max_tokens = getattr(reranker, "max_tokens", None)
        self.identity = identity
        self._reranker = reranker
        self._store = ValueStore(path)

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return the value of each text, `[len(texts)]`; see `scorer`."""
        return self.scorer(query, [Chunk(str(row), text) for row, text in enumerate(texts)])(
            [(row,) for row in range(len(texts))]
        )

    def scorer(self, query: str, chunks: Sequence[Chunk]) -> StoredScorer:
        """Return a scoring function that asks the reranker only for orders that are not in the file.

        Raises:
            DataError: (When called) the file cannot be used.
            ScoringError: (When called) the reranker returned something that cannot be ranked; it is not kept.
        """
        return StoredScorer(self._reranker, self._store, self.identity, query, chunks)


class StoredScorer:
    """A scorer with a file before it.

    Attributes:
        truncated_orders: Orders so far that did not fit the reranker's window, whoever knew their value.
    """

    def __init__(
        self, reranker: Reranker, store: ValueStore, identity: str, query: str, chunks: Sequence[Chunk]
    ) -> None:
        self._scorer = reranker.scorer(query, chunks)
        self._checked = MemoScorer(self._scorer, reranker.name, [chunk.id for chunk in chunks])
        self._store = store
        self._start = _digest(identity) + _digest(query)
        self._chunks = [_digest(chunk.text) for chunk in chunks]
        self.order_matters = self._scorer.order_matters
        self.truncated_orders: set[Order] = set()

    @property
    def num_truncated(self) -> int:
        """Distinct orders so far that did not fit the window."""
        return len(self.truncated_orders)

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Return one value per order, `[len(orders)]`."""
        keys = {order: self._key(order) for order in orders}
        known = self._store.get(list(keys.values()))
        new = [order for order, key in keys.items() if key not in known]
        if new:
            computed = self._checked(new).tolist()
            cut: set[Order] = getattr(self._scorer, "truncated_orders", set())
            entries = {keys[order]: Entry(value, order in cut) for order, value in zip(new, computed, strict=True)}
            self._store.put(entries)
            known |= entries
        self.truncated_orders.update(order for order, key in keys.items() if known[key].truncated)
        return np.array([known[keys[order]].value for order in orders], dtype=np.float64)

    def _key(self, order: Order) -> bytes:
        # Digests have one length, so no two sequences of them run together to the same bytes.
        return hashlib.sha256(self._start + b"".join(self._chunks[index] for index in order)).digest()


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()

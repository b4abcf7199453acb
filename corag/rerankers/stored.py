"""A reranker whose values are kept on disk, so that a later run computes only what is missing."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np

from corag.errors import InputError
from corag.memory.store import Entry, ValueStore
from corag.rerankers.scorers import MemoScorer, score_together
from corag.rerankers.window import Window, WindowedScorer, WindowPolicy
from corag.types import Chunk, FloatArray, Order, Reranker, Scorer


class Stored:
    """Looks values up in a file before it asks a reranker for them.

    A value is kept under the hash of the reranker's identity, what becomes of orders longer than its window, the
    question, and the texts of the chunks in their order. Several processes and several rerankers may share a file.

    Args:
        reranker: Has to have an `identity`: a text that changes whenever its values may (name, hash of the weights,
            precision, window). A reranker whose values depend on more than question and texts, as those of `bm25` do
            on the other candidates, must not have one.
        path: The file; see `corag.memory.store`.

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
        return StoredScorer(self, self._reranker.scorer(query, chunks), query, chunks)

    def entries(self, requests: Sequence[tuple[MemoScorer, Mapping[Order, bytes]]]) -> list[dict[Order, Entry]]:
        """Return what is known of orders, given with their keys, and have the reranker value what is not."""
        known = self._store.get([key for _, keys in requests for key in keys.values()])
        new = [[order for order, key in keys.items() if key not in known] for _, keys in requests]
        computed = score_together([(memo, orders) for (memo, _), orders in zip(requests, new, strict=True)])
        fresh: dict[bytes, Entry] = {}
        for (memo, keys), orders, values in zip(requests, new, computed, strict=True):
            overlong = memo.overlong_orders
            found = zip(orders, values.tolist(), strict=True)
            fresh |= {keys[order]: Entry(value, order in overlong) for order, value in found}
        if fresh:
            self._store.put(fresh)
            known |= fresh
        return [{order: known[key] for order, key in keys.items()} for _, keys in requests]


class StoredScorer:
    """A scorer with a file before it.

    Attributes:
        reranker: Scorers of one reranker share look-ups and batches.
        policy: What becomes of orders that are longer than the reranker's window.
        overlong_orders: Such orders so far, whoever knew their value.
    """

    def __init__(self, reranker: Stored, scorer: Scorer, query: str, chunks: Sequence[Chunk]) -> None:
        self.reranker = reranker
        self._ids = [chunk.id for chunk in chunks]
        self._query = _digest(query)
        self._chunks = [_digest(chunk.text) for chunk in chunks]
        self._take("truncate", scorer)

    def _take(self, policy: WindowPolicy, scorer: Scorer) -> None:
        """Begin anew with a scorer that follows a policy."""
        self.policy = policy
        self._memo = MemoScorer(scorer, self.reranker.name, self._ids)
        self._start = _digest(f"{self.reranker.identity} window={policy}") + self._query
        self.order_matters = scorer.order_matters
        self.overlong_orders: set[Order] = set()

    @property
    def window(self) -> Window | None:
        """What of an order the reranker sees at once; None where it declares no window."""
        return self._memo.window

    def under(self, policy: WindowPolicy) -> StoredScorer:
        """Return the same scorer with a policy of its own, and nothing counted yet; see `WindowedScorer`."""
        scorer = copy.copy(self)
        scorer._take(policy, cast(WindowedScorer, self._memo.scorer).under(policy))
        return scorer

    @property
    def num_truncated(self) -> int:
        """Distinct orders so far that were cut to fit the window."""
        return len(self.overlong_orders) if self.policy == "truncate" else 0

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Return one value per order, `[len(orders)]`."""
        return self.score_jointly([(self, orders)])[0]

    @staticmethod
    def score_jointly(requests: Sequence[tuple[StoredScorer, Sequence[Order]]]) -> list[FloatArray]:
        """Return the values of each scorer's orders, those not in the file computed in shared batches."""
        asked = [(scorer._memo, {order: scorer._key(order) for order in orders}) for scorer, orders in requests]
        found = requests[0][0].reranker.entries(asked)
        for (scorer, _), entries in zip(requests, found, strict=True):
            scorer.overlong_orders.update(order for order, entry in entries.items() if entry.truncated)
        return [
            np.array([entries[order].value for order in orders], dtype=np.float64)
            for (_, orders), entries in zip(requests, found, strict=True)
        ]

    def _key(self, order: Order) -> bytes:
        # Digests have one length, so no two sequences of them run together to the same bytes.
        return hashlib.sha256(self._start + b"".join(self._chunks[index] for index in order)).digest()


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()

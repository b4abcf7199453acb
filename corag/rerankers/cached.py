"""A reranker whose values are kept on disk, so that a later run computes only what is missing."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self, cast

import numpy as np

from corag.errors import InputError
from corag.memory import DiskStore
from corag.naming import spelling
from corag.rerankers.scorers import CachedScorer, score_together
from corag.rerankers.window import WindowedScorer, WindowPolicy
from corag.types import Chunk, FloatArray, Order, Reranker, Scorer

_VALUE = struct.Struct("<d?")


class CachedReranker:
    """Looks values up in a file before it asks a reranker for them.

    The key of a value is the hash of the reranker's identity, its policy for orders longer than its window, the
    question, and the texts of the chunks in their order. Several processes and several rerankers may share a file.

    Args:
        reranker: Must have an `identity`: a text that changes whenever its values may (name, hash of the weights,
            precision, window). A reranker whose values depend on more than question and texts, such as `bm25`, whose
            values depend on the other candidates, must not have one.
        path: The SQLite file; see `corag.memory.DiskStore`.

    Raises:
        InputError: The reranker has no identity.
        DataError: The file cannot be used.
    """

    def __init__(self, reranker: Reranker, path: str | Path) -> None:
        identity = getattr(reranker, "identity", "")
        if not identity:
            raise InputError(
                f"the values of reranker {reranker.name!r} cannot be cached: it has no `identity`; cache those of "
                "'cross-encoder' or 'minilm-cosine', or give yours a text that changes whenever its values may"
            )
        self.name = reranker.name
        self.max_tokens = getattr(reranker, "max_tokens", None)
        self.identity = identity
        self.output = getattr(reranker, "output", None)
        self._reranker = reranker
        # The scorers keep values in RAM; here are those of earlier questions and runs.
        self._values = DiskStore(path, "values")

    def __str__(self) -> str:
        return spelling(self._reranker)

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return the value of each text, `[len(texts)]`; see `scorer`."""
        chunks = [Chunk(str(row), text) for row, text in enumerate(texts)]
        return self.scorer(query, chunks)([(row,) for row in range(len(texts))])

    def scorer(self, query: str, chunks: Sequence[Chunk]) -> CachedRerankerScorer:
        """Return a scoring function that asks the reranker only for orders that are not in the file.

        It raises `DataError` where the file cannot be used, and `ScoringError` for values that cannot be ranked.
        """
        return CachedRerankerScorer(self, self._reranker.scorer(query, chunks), query, chunks)

    def values(self, requests: Sequence[tuple[CachedScorer, Mapping[Order, bytes]]]) -> list[dict[Order, Any]]:
        """Return value and "was overlong" of orders, given with their keys; new orders share batches."""
        owners: dict[bytes, tuple[int, Order]] = {}
        for number, (_, keys) in enumerate(requests):
            for order, key in keys.items():
                owners.setdefault(key, (number, order))

        def compute(new: list[bytes]) -> list[bytes]:
            orders: list[list[Order]] = [[] for _ in requests]
            for number, order in map(owners.__getitem__, new):
                orders[number].append(order)
            found = score_together([(scorer, asked) for (scorer, _), asked in zip(requests, orders, strict=True)])
            known = {
                (number, order): (value, order in requests[number][0].overlong_orders)
                for number, (asked, values) in enumerate(zip(orders, found, strict=True))
                for order, value in zip(asked, values.tolist(), strict=True)
            }
            return [_VALUE.pack(*known[owners[key]]) for key in new]

        stored = self._values.get_many(list(owners), compute)
        try:
            entries = dict(zip(owners, map(_VALUE.unpack, stored), strict=True))
        except struct.error as error:
            raise self._values.damaged(f"a value in it is damaged ({error})") from error
        return [{order: entries[key] for order, key in keys.items()} for _, keys in requests]


class CachedRerankerScorer(WindowedScorer):
    """A scorer with a file before it; scorers of one reranker share look-ups and batches.

    Its `window_tokens` is None where the reranker declares none.
    """

    def __init__(self, reranker: CachedReranker, scorer: Scorer, query: str, chunks: Sequence[Chunk]) -> None:
        super().__init__(cast(int, getattr(scorer, "window_tokens", None)))
        self.reranker = reranker
        self.order_matters = scorer.order_matters
        self._ids = [chunk.id for chunk in chunks]
        self._query = _digest(query)
        self._chunks = [_digest(chunk.text) for chunk in chunks]
        self._bind(scorer)

    def _bind(self, scorer: Scorer) -> None:
        """Compute values with a scorer that follows this one's policy."""
        self._scorer = CachedScorer(scorer, self.reranker.name, self._ids)
        self._prefix = _digest(f"{self.reranker.identity} window={self.policy}") + self._query

    def under(self, policy: WindowPolicy) -> Self:
        """Return the same scorer with another policy, and nothing counted yet."""
        scorer = super().under(policy)
        scorer._bind(cast(WindowedScorer, self._scorer.scorer).under(policy))
        return scorer

    @staticmethod
    def score_jointly(requests: Sequence[tuple[CachedRerankerScorer, Sequence[Order]]]) -> list[FloatArray]:
        """Return the values of each scorer's orders, those not in the file computed in shared batches."""
        asked = [(scorer._scorer, {order: scorer._key(order) for order in orders}) for scorer, orders in requests]
        found = requests[0][0].reranker.values(asked)
        for (scorer, _), entries in zip(requests, found, strict=True):
            scorer.overlong_orders.update(order for order, (_, overlong) in entries.items() if overlong)
        return [
            np.array([entries[order][0] for order in orders], dtype=np.float64)
            for (_, orders), entries in zip(requests, found, strict=True)
        ]

    def _key(self, order: Order) -> bytes:
        # Digests have one length, so no two sequences of them run together to the same bytes.
        return hashlib.sha256(self._prefix + b"".join(self._chunks[index] for index in order)).digest()


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()

"""What labelling costs in tokens that a model reads, compared with searching every configuration by itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

FORMER_NAMES = {
    "independent_encoded": "alone_encoded", "independent_joined": "alone_joined", "independent_read": "alone_read",
    "cross_encoder_joined": "brute_joined",
}  # fmt: skip
"""What journals of earlier versions call some figures."""


@dataclass(frozen=True, slots=True)
class Work:
    """Tokens read by models: what labelling did, and what two ways without sharing would have done.

    The encoder that embedder and rerankers share counts what it is given. Everything else is counted by the table's
    tokenizer: a text with its question, once, even if a model reads it in overlapping windows. Rerankers without a
    model count nothing. Retrieval (embedding questions and passages, and building an index) is part of what labelling
    did, but not of the ways that it is compared with.

    Attributes:
        encoded: By the shared encoder: questions and passages, once while they are remembered.
        joined: By rerankers that read joined texts: distinct orders with their question, once per question.
        read: By the reader: distinct contexts, once per question.
        independent_encoded: By the shared encoder, if every configuration were searched by itself.
        independent_joined: By rerankers that read joined texts, likewise: every order that each configuration scores.
        independent_read: By the reader, likewise: the context of each configuration.
        cross_encoder_joined: Every order that each configuration scores, as a joined text with its question, for every
            reranker with a model: what a cross-encoder in its place would read.
        contexts: Distinct contexts read.
        configurations: Configurations measured.
    """

    encoded: int = 0
    joined: int = 0
    read: int = 0
    independent_encoded: int = 0
    independent_joined: int = 0
    independent_read: int = 0
    cross_encoder_joined: int = 0
    contexts: int = 0
    configurations: int = 0

    @property
    def spent(self) -> int:
        """Tokens that models read."""
        return self.encoded + self.joined + self.read

    @property
    def independent(self) -> int:
        """Tokens that they would have read, had every configuration been searched by itself with the same rerankers."""
        return self.independent_encoded + self.independent_joined + self.independent_read

    @property
    def cross_encoder(self) -> int:
        """Tokens that they would have read, had every scored order been read as a joined text."""
        return self.cross_encoder_joined + self.independent_read

    def to_dict(self) -> dict[str, Any]:
        """Return all figures, with the sums and ratios."""
        spent = max(1, self.spent)
        return {
            **asdict(self),
            "spent": self.spent,
            "independent": self.independent,
            "cross_encoder": self.cross_encoder,
            "independent_ratio": self.independent / spent,
            "cross_encoder_ratio": self.cross_encoder / spent,
        }


def total(works: Iterable[Mapping[str, int]]) -> Work:
    """Return the sum of works, each given as its fields."""
    sums = dict.fromkeys((field.name for field in fields(Work)), 0)
    for work in works:
        for name in sums:
            sums[name] += work[name] if name in work else work[FORMER_NAMES[name]]
    return Work(**sums)

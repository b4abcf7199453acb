"""What labelling costs in tokens that a model reads, against searching every configuration by itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class Work:
    """Tokens read by models: what labelling really did, and what two ways without sharing would have done.

    The encoder that embedder and rerankers share counts what it is given. All else is counted by the table's tokenizer:
    a text with its question, once, even where a model looks at it in overlapping windows. Rerankers without a model
    count nothing anywhere. Retrieval (embedding questions and passages, and an index where this run had to build it) is
    charged to what was really done, and not to the ways that it is compared with.

    Attributes:
        encoded: By the shared encoder: questions and passages, once while they are remembered.
        joined: By rerankers that read joined texts: distinct orders with their question, once per question.
        read: By the reader: distinct contexts, once per question.
        alone_encoded: By the shared encoder, had every configuration been searched by itself with the same rerankers.
        alone_joined: By rerankers that read joined texts, likewise: every order that each configuration scores.
        alone_read: By the reader, likewise: the context of each configuration.
        brute_joined: Every order that each configuration scores, as a joined text with its question, by every reranker
            with a model: what a cross-encoder in its place would read.
        contexts: Distinct contexts read.
        configurations: Configurations measured.
    """

    encoded: int = 0
    joined: int = 0
    read: int = 0
    alone_encoded: int = 0
    alone_joined: int = 0
    alone_read: int = 0
    brute_joined: int = 0
    contexts: int = 0
    configurations: int = 0

    @property
    def spent(self) -> int:
        """Tokens that models read."""
        return self.encoded + self.joined + self.read

    @property
    def alone(self) -> int:
        """Tokens that they had read, had every configuration been searched by itself with the same rerankers."""
        return self.alone_encoded + self.alone_joined + self.alone_read

    @property
    def brute_force(self) -> int:
        """Tokens that they had read, had every scored order been read as a joined text."""
        return self.brute_joined + self.alone_read

    def to_dict(self) -> dict[str, Any]:
        """Return all figures, with the sums and ratios."""
        spent = max(1, self.spent)
        return {
            **asdict(self),
            "spent": self.spent,
            "alone": self.alone,
            "brute_force": self.brute_force,
            "alone_ratio": self.alone / spent,
            "brute_force_ratio": self.brute_force / spent,
        }


def total(works: Iterable[Mapping[str, int]]) -> Work:
    """Return the sum of works, each given as its fields."""
    sums = dict.fromkeys((field.name for field in fields(Work)), 0)
    for work in works:
        for name in sums:
            sums[name] += work[name]
    return Work(**sums)

"""Tokens read by models: what labelling did, and what two ways without sharing would have done.

The encoder that embedder and rerankers share counts what it is given. Everything else is counted by the table's
tokenizer: a text with its question, once, even if a model reads it in overlapping windows. Rerankers without a model
count nothing. Retrieval (embedding questions and passages, and building an index) is part of what labelling did, but
not of the ways that it is compared with.

| figure | tokens |
| --- | --- |
| encoded | by the shared encoder: questions and passages, once while they are remembered |
| joined | by rerankers that read joined texts: distinct orders with their question, once per question |
| read | by the reader: distinct contexts, once per question |
| independent_encoded, _joined, _read | the same, were every configuration searched and read by itself |
| cross_encoder_joined | every order that each configuration scores, with its question, as a cross-encoder in place of |
| | each reranker with a model would read it |

`contexts` are the distinct contexts read, and `configurations` those measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

FIGURES = (
    "encoded", "joined", "read", "independent_encoded", "independent_joined", "independent_read",
    "cross_encoder_joined", "contexts", "configurations",
)  # fmt: skip
FORMER_NAMES = {
    "independent_encoded": "alone_encoded", "independent_joined": "alone_joined", "independent_read": "alone_read",
    "cross_encoder_joined": "brute_joined",
}  # fmt: skip
"""What journals of earlier versions call some figures."""


def total(works: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the sums of the figures of works, where a missing one counts 0, and what the ways cost in all."""
    rows = list(works)
    sums = {name: sum(row.get(name, row.get(FORMER_NAMES.get(name, ""), 0)) for row in rows) for name in FIGURES}
    spent = sums["encoded"] + sums["joined"] + sums["read"]
    independent = sums["independent_encoded"] + sums["independent_joined"] + sums["independent_read"]
    cross_encoder = sums["cross_encoder_joined"] + sums["independent_read"]
    return {
        **sums,
        "spent": spent,
        "independent": independent,
        "cross_encoder": cross_encoder,
        "independent_ratio": independent / max(1, spent),
        "cross_encoder_ratio": cross_encoder / max(1, spent),
    }

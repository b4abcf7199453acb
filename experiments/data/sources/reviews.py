"""Reviews of products: Amazon's unlocked phones (CRAG, sections 2.1 and 3.1.1)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from corag.text.documents import Document
from experiments.data.sources.source import Inputs, Question

AMAZON_PHONES = {f"reviews-{number}": number for number in (4, 17, 30, 37, 42, 73, 75)}
"""Splits: products with exactly so many reviews; the numbers are those of the paper's table 1."""


def amazon_phones(inputs: Inputs, split: str) -> Iterator[Question]:
    """Convert the reviews of unlocked phones: a question about each product with so many reviews, which are its pool.

    All of a product's reviews are evidence, repeated ones too: the paper gives all of them to its baseline. The paper
    does not tell its questions, nor its products.
    """
    by_product: dict[str, list[str]] = {}
    for row in inputs.rows(split):
        product, review = (row["Product Name"] or "").strip(), (row["Reviews"] or "").strip()
        if product and review:
            by_product.setdefault(product, []).append(review)
    for product, reviews in by_product.items():
        if len(reviews) != AMAZON_PHONES[split]:
            continue
        name = f"phone-{hashlib.sha256(product.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
        passages = tuple(Document(f"{name}-{number}", review) for number, review in enumerate(reviews))
        yield Question(
            name,
            f"What do customers like about {product}, and what do they complain about?",
            gold=tuple(passage.id for passage in passages),
            passages=passages,
            pool=True,
            extra={"product": product},
        )

"""Runs a model over rows of token ids in batches that waste little."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from corag.models.engine.batches import Int64, pack, pad
from corag.models.engine.source import Float32, Forward


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows and what the model made of them.

    Attributes:
        rows: Their positions in what was given, `[B]`.
        output: The model's output, `[B, ...]`.
        mask: 1 where a row has a token, `[B, L]`.
    """

    rows: NDArray[np.intp]
    output: Float32
    mask: Int64


@dataclass(frozen=True, slots=True)
class Engine:
    """A model together with how its batches are made.

    Attributes:
        forward: The model.
        pad_token: The id that fills shorter rows up.
        max_batch_tokens: The most tokens of a batch.
    """

    forward: Forward
    pad_token: int
    max_batch_tokens: int

    def run(self, ids: Sequence[Int64], token_types: Sequence[Int64] | None = None) -> Iterator[Batch]:
        """Run all rows, longest first.

        Args:
            ids: Token ids of each row, special tokens included.
            token_types: Which segment each token belongs to, for models that ask for it.
        """
        for rows in pack([len(row) for row in ids], self.max_batch_tokens):
            tokens, mask = pad([ids[row] for row in rows], self.pad_token)
            inputs = {"input_ids": tokens, "attention_mask": mask}
            if token_types is not None:
                inputs["token_type_ids"], _ = pad([token_types[row] for row in rows], 0)
            yield Batch(rows, self.forward(inputs), mask)

"""Rows of unlike lengths become batches that waste little: packed by length, padded to their longest row.

Knows nothing of models: lengths in, rows out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]

MAX_PADDING = 0.05
"""The largest share of a batch's tokens that may be padding."""


def pack(lengths: Sequence[int] | Int64, max_batch_tokens: int) -> list[NDArray[np.intp]]:
    """Return the rows of each batch, longest first; every row is in exactly one batch.

    A batch is closed when another row would bring it, padding included, above `max_batch_tokens`, or its padding
    above `MAX_PADDING` of its tokens. A row longer than `max_batch_tokens` is a batch by itself. Lengths are not
    rounded to get fewer shapes: what OpenVINO prepares for a new shape costs it less than the padding would.

    Args:
        lengths: Tokens of each row, `[n]`.
        max_batch_tokens: The most tokens of a batch: rows times the longest of them.
    """
    tokens = np.asarray(lengths, dtype=np.int64)
    by_length = np.argsort(-tokens, kind="stable")
    starts: list[int] = []
    width = num_tokens = 0
    for position, length in enumerate(tokens[by_length].tolist()):
        area = (position - starts[-1] + 1) * width if starts else 0
        padding = area - num_tokens - length
        if not starts or area > max_batch_tokens or padding > MAX_PADDING * area:
            starts.append(position)
            width, num_tokens = length, 0
        num_tokens += length
    return np.split(by_length, starts[1:]) if starts else []


def pad(rows: Sequence[Int64], value: int) -> tuple[Int64, Int64]:
    """Return the rows as one array padded with `value`, and its mask (1 where a row is), both `[B, longest]`."""
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max()) < lengths[:, None]
    padded = np.full(mask.shape, value, dtype=np.int64)
    padded[mask] = np.concatenate(rows)
    return padded, mask.astype(np.int64)

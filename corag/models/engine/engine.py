"""Rows of token ids through a model, in batches that waste little: packed by length, padded to their longest row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from corag.models.engine.replicas import Job, Replicas, Rows
from corag.optional import require

Int64 = NDArray[np.int64]
Float32 = NDArray[np.float32]
Reduction = Literal["first", "mean"]
"""Of the states of a row: the first one, or the mean of those that are no padding."""

MAX_PADDING = 0.05
"""The largest share of a batch's tokens that may be padding."""


class Forward(Protocol):
    """A loaded model."""

    def __call__(self, inputs: Mapping[str, Int64], reduction: Reduction | None = None) -> Float32:
        """Map named inputs, `[B, L]` each, to the model's first output, `[B, ...]`, or what a reduction makes of it."""


class Source(NamedTuple):
    """A transformers model.

    Attributes:
        name: What its files in the cache folder begin with.
        sha256: Of everything that its values depend on; tells its cached files from another's.
        inputs: Names of its inputs.
        load: Returns the PyTorch module in fp32, in evaluation mode.
    """

    name: str
    sha256: str
    inputs: tuple[str, ...]
    load: Callable[[], Any]


class Batch(NamedTuple):
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
        replicas: The model, on each of its devices.
        pad_token: The id that fills shorter rows up.
        max_batch_tokens: The most tokens of a batch.
    """

    replicas: Replicas[Forward]
    pad_token: int
    max_batch_tokens: int

    def run(
        self,
        ids: Sequence[Int64],
        token_types: Sequence[Int64] | None = None,
        reduction: Reduction | None = None,
    ) -> Iterator[Batch]:
        """Run all rows, longest first.

        Args:
            ids: Token ids of each row, special tokens included.
            token_types: Which segment each token belongs to, for models that ask for it.
            reduction: What to make of the states of each row.

        Raises:
            ModelError: A single row does not fit the memory of its device.
        """

        def run(forward: Forward, rows: Rows) -> Batch:
            tokens, mask = pad([ids[row] for row in rows], self.pad_token)
            inputs = {"input_ids": tokens, "attention_mask": mask}
            if token_types is not None:
                inputs["token_type_ids"], _ = pad([token_types[row] for row in rows], 0)
            return Batch(rows, forward(inputs) if reduction is None else forward(inputs, reduction), mask)

        lengths = [len(row) for row in ids]
        job = Job(run, lambda rows: len(rows) * max(lengths[row] for row in rows))
        for _, batch in self.replicas.run(pack(lengths, self.max_batch_tokens), job):
            yield batch


def reduced(states: Float32, mask: Int64, reduction: Reduction) -> Float32:
    """Return one vector for each row, `[B, d]`, of its states, `[B, L, d]`."""
    if reduction == "first":
        return states[:, 0]
    weights = mask[:, None].astype(np.float32)
    return cast(Float32, (weights @ states)[:, 0] / weights.sum(axis=2))


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


def windows(num_tokens: int, size: int) -> list[tuple[int, int]]:
    """Return spans of at most `size` tokens that cover a text: half a window apart, the last one flush with the end."""
    if not num_tokens:
        return []
    last = max(num_tokens - size, 0)
    return [(start, min(start + size, num_tokens)) for start in (*range(0, last, max(size // 2, 1)), last)]


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the notices and progress bars of transformers."""
    notices = require("transformers", "models").utils.logging
    before, bars = notices.get_verbosity(), notices.is_progress_bar_enabled()
    notices.set_verbosity_error()
    notices.disable_progress_bar()
    try:
        yield
    finally:
        notices.set_verbosity(before)
        if bars:
            notices.enable_progress_bar()

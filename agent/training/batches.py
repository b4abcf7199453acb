"""Batches of a training table as tensors. Letters: `b` rows, `d` features, `R` rerankers, `C` configurations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agent.ranges import Ranges
from agent.scaling import FeatureScaling
from agent.training.data import TrainingTable


class Batch(NamedTuple):
    """Rows of a table.

    Attributes:
        features: `[b, d]`.
        reranker: Best reranker, `[b]`.
        settings: Best settings on the scale [0, 1] of `Ranges`, `[b, 3]`.
        weight: Weight for the reranker label and for pairs, `[b]`.
        quality: Quality with each reranker, `[b, R]`, or None.
        utility: Utility of each measured configuration, `[b, C]`, or None.
    """

    features: Tensor
    reranker: Tensor
    settings: Tensor
    weight: Tensor
    quality: Tensor | None
    utility: Tensor | None


class Batches:
    """A table cut into batches along a given order of its rows; the last one may be smaller.

    Args:
        rows: The whole table.
        order: Order of its rows, `[n]`.
        batch_size: Rows per batch.
        rank: Which of `num_processes` processes this is; each takes its share of every batch, so that the batch size
            does not depend on the number of devices.
        num_processes: How many train together.
    """

    def __init__(
        self, rows: Batch, order: NDArray[np.int64], batch_size: int, rank: int = 0, num_processes: int = 1
    ) -> None:
        self._rows = rows
        self._parts = [part[rank::num_processes] for part in torch.from_numpy(order).split(batch_size)]

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Iterator[Batch]:
        for part in self._parts:
            yield Batch(*(None if column is None else column[part] for column in self._rows))


def whole_table(table: TrainingTable, ranges: Ranges, scaling: FeatureScaling | None = None) -> Batch:
    """Return all rows of a table as one batch, their features scaled where a scaling is given."""
    return Batch(
        features=torch.from_numpy(table.features if scaling is None else scaling(table.features)),
        reranker=torch.from_numpy(table.reranker),
        settings=torch.from_numpy(ranges.to_unit(table.settings).astype(np.float32)),
        weight=torch.from_numpy(table.weight),
        quality=None if table.quality is None else torch.from_numpy(table.quality),
        utility=None if table.utility is None else torch.from_numpy(table.utility),
    )

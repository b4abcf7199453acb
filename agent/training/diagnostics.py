"""What a trained agent does on known questions: confusion, regret by reranker, and where the questions lie.

NumPy only. Letters: `n` questions, `R` rerankers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agent.predict import ConfigurationAgent
from agent.training.data import TrainingTable

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Diagnostics:
    """An agent on the questions of a table.

    Attributes:
        rerankers: Names in label order.
        best: Best reranker of each question, int64 `[n]`.
        predicted: Predicted reranker of each question, int64 `[n]`.
        regret: Utility, or else quality, that each prediction loses to the best, float64 `[n]`, or None without either.
        before: The features on their two principal axes, float64 `[n, 2]`.
        after: The feature maps on theirs, float64 `[n, 2]`.
    """

    rerankers: tuple[str, ...]
    best: NDArray[np.int64]
    predicted: NDArray[np.int64]
    regret: FloatArray | None
    before: FloatArray
    after: FloatArray

    def confusion(self) -> NDArray[np.int64]:
        """Return how often each reranker (column) was predicted where another (row) was best, `[R, R]`."""
        counts = np.zeros((len(self.rerankers), len(self.rerankers)), dtype=np.int64)
        np.add.at(counts, (self.best, self.predicted), 1)
        return counts

    def tables(self) -> dict[str, tuple[list[str], list[list[object]]]]:
        """Return columns and rows of `confusion`, `regret` (by best reranker, means) and `projection`."""
        names, counts = self.rerankers, self.confusion()
        lost: list[float | None] = [None] * len(names)
        if self.regret is not None:
            lost = [float(self.regret[self.best == i].mean()) if counts[i].any() else None for i in range(len(names))]
        regret = zip(names, counts.sum(axis=1).tolist(), counts.sum(axis=0).tolist(), lost, strict=True)
        points = zip(self.best.tolist(), self.before.tolist(), self.after.tolist(), strict=True)
        return {
            "confusion": (["best", *names], [[name, *row] for name, row in zip(names, counts.tolist(), strict=True)]),
            "regret": (["reranker", "best", "predicted", "regret"], [list(row) for row in regret]),
            "projection": (
                ["best", "before_x", "before_y", "after_x", "after_y"],
                [[names[label], *before, *after] for label, before, after in points],
            ),
        }


def diagnose(agent: ConfigurationAgent, table: TrainingTable) -> Diagnostics:
    """Return what an agent does on the questions of a table."""
    predictions = agent.predict(table.features)
    assert isinstance(predictions, list)
    names = agent.config.rerankers
    predicted = np.array([names.index(prediction.reranker) for prediction in predictions], dtype=np.int64)
    chosen, values = predicted, table.quality
    if table.grid is not None:
        settings = [[found.iterations, found.exploration, found.cost_weight] for found in predictions]
        chosen, values = table.grid.nearest(predicted, settings, agent.config.ranges), table.utility
    regret = None if values is None else (values.max(axis=1) - values[np.arange(len(table)), chosen]).astype(np.float64)
    maps = agent.feature_maps(table.features)
    return Diagnostics(names, table.reranker, predicted, regret, principal_axes(table.features), principal_axes(maps))


def principal_axes(vectors: NDArray[np.floating]) -> FloatArray:
    """Return vectors `[n, d]` on their two principal axes, `[n, 2]`; the largest coordinate of each is positive."""
    centred = np.asarray(vectors, dtype=np.float64) - np.mean(vectors, axis=0, dtype=np.float64)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    points = centred @ axes[:2].T
    points = np.pad(points, ((0, 0), (0, 2 - points.shape[1])))
    largest = points[np.abs(points).argmax(axis=0), [0, 1]]
    return points * np.where(largest < 0, -1.0, 1.0)

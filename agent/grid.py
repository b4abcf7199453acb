"""The configurations that were measured: what a prediction is worth is what the nearest of them gave.

Letters: `b` rows, `C` configurations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agent.errors import AgentError
from agent.ranges import SETTINGS, Ranges


@dataclass(frozen=True, eq=False)
class ConfigurationGrid:
    """Measured configurations.

    Attributes:
        reranker: Label of each one's reranker, int64 `[C]`.
        settings: Iterations, exploration and cost weight of each in natural units, float32 `[C, 3]`.
    """

    reranker: NDArray[np.int64]
    settings: NDArray[np.float32]

    def __post_init__(self) -> None:
        object.__setattr__(self, "reranker", np.ascontiguousarray(self.reranker, dtype=np.int64))
        object.__setattr__(self, "settings", np.ascontiguousarray(self.settings, dtype=np.float32))
        if self.reranker.ndim != 1 or self.settings.shape != (len(self.reranker), len(SETTINGS)):
            raise AgentError(
                f"a grid needs one label and {len(SETTINGS)} settings per configuration, got shapes "
                f"{self.reranker.shape} and {self.settings.shape}"
            )

    def __len__(self) -> int:
        return len(self.reranker)

    def nearest(self, reranker: ArrayLike, settings: ArrayLike, ranges: Ranges) -> NDArray[np.int64]:
        """Return the measured configuration that stands for each predicted one, `[b]`.

        It is the one of the same reranker whose settings are nearest on the scale [0, 1] of `ranges`; among equals the
        first.

        Args:
            reranker: Predicted labels, `[b]`.
            settings: Predicted settings in natural units, `[b, 3]`.
            ranges: The agent's ranges.

        Raises:
            AgentError: A reranker was never measured.
        """
        labels = np.asarray(reranker)
        missing = np.setdiff1d(labels, self.reranker)
        if missing.size:
            raise AgentError(
                f"reranker label {missing[0]} has no measured configuration; label with it, or leave it out"
            )
        apart = ranges.to_unit(settings)[:, None] - ranges.to_unit(self.settings)[None]
        distance = np.where(self.reranker == labels[:, None], np.square(apart).sum(axis=-1), np.inf)
        return np.asarray(distance.argmin(axis=1), dtype=np.int64)

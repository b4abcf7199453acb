"""The training table: feature vectors and labels, checked at the door, and the scaling of features. NumPy only.

Letters: `n` questions, `d` features, `R` rerankers, `C` measured configurations.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent.config import DESCRIPTIONS, AgentConfig
from agent.configurations import SETTINGS, ConfigurationGrid
from agent.errors import AgentError


@dataclass(frozen=True, eq=False)
class TrainingTable:
    """What is known about the questions of one split.

    Attributes:
        features: Feature vectors, float32 `[n, d]`.
        reranker: Index of each question's best reranker, int64 `[n]`.
        settings: Each question's best iterations, exploration and cost weight in natural units,
            float32 `[n, 3]`.
        weight: How much a question counts for the reranker label and for pairs, at least 0, float32
            `[n]`. A question whose best and next best reranker are too close has weight 0 (paper 5.2.2)
            and then teaches the settings only.
        quality: Answer quality with each reranker, higher is better, float32 `[n, R]`, or None.
        ids: Name of each question, `n` of them.
        grid: The configurations that were measured, or None.
        utility: What each of them gave, quality or quality traded against cost, higher is better, float32 `[n, C]`;
            given exactly where a grid is. It then decides the regret of a prediction, settings included.
    """

    features: NDArray[np.float32]
    reranker: NDArray[np.int64]
    settings: NDArray[np.float32]
    weight: NDArray[np.float32]
    quality: NDArray[np.float32] | None
    ids: tuple[str, ...]
    grid: ConfigurationGrid | None = None
    utility: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        if not np.issubdtype(np.asarray(self.reranker).dtype, np.integer):
            raise AgentError(f"reranker must hold label indices, got dtype {np.asarray(self.reranker).dtype}")
        object.__setattr__(self, "reranker", np.ascontiguousarray(self.reranker, dtype=np.int64))
        if self.reranker.ndim != 1:
            raise AgentError(f"reranker must have 1 axis, got shape {self.reranker.shape}")
        for name, axes in (("features", 2), ("settings", 2), ("weight", 1), ("quality", 2), ("utility", 2)):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _float_array(name, getattr(self, name), axes))
        for name in ("features", "reranker", "settings", "weight", "quality", "utility"):
            array = getattr(self, name)
            if array is not None and len(array) != len(self.ids):
                raise AgentError(f"{name} has {len(array)} rows for {len(self.ids)} ids; give one per question")
        if self.settings.shape[1] != len(SETTINGS):
            raise AgentError(f"settings need the columns {SETTINGS}, got shape {self.settings.shape}")
        if (self.grid is None) != (self.utility is None):
            raise AgentError("grid and utility belong together; give both or neither")
        if self.grid is not None and self.utility is not None and self.utility.shape[1] != len(self.grid):
            raise AgentError(f"utility has {self.utility.shape[1]} columns for {len(self.grid)} configurations")
        if (self.reranker < 0).any():
            raise AgentError(f"reranker labels must be at least 0, got {self.reranker.min()}")
        if (self.weight < 0).any():
            raise AgentError(f"weight must be at least 0, got {self.weight.min()}")

    def __len__(self) -> int:
        return len(self.ids)

    def digest(self) -> str:
        """Return the SHA-256 of the whole content, hexadecimal."""
        sha = hashlib.sha256("\n".join(self.ids).encode())
        grid = (None, None) if self.grid is None else (self.grid.reranker, self.grid.settings)
        for array in (self.features, self.reranker, self.settings, self.weight, self.quality, *grid, self.utility):
            if array is not None:
                sha.update(str(array.shape).encode())
                sha.update(array.tobytes())
        return sha.hexdigest()

    def check_fits(self, config: AgentConfig) -> None:
        """Raise an `AgentError` unless an agent of this configuration can learn from the table."""
        if self.features.shape[1] != config.feature_dim:
            raise AgentError(
                f"features have {self.features.shape[1]} columns but feature_dim is {config.feature_dim}; "
                f"build them with the embedder {config.embedder!r} and the recipe {config.features}"
            )
        num_rerankers = len(config.rerankers)
        if len(self) and self.reranker.max() >= num_rerankers:
            raise AgentError(f"reranker label {self.reranker.max()} needs to be below {num_rerankers} (rerankers)")
        if self.quality is not None and self.quality.shape[1] != num_rerankers:
            raise AgentError(f"quality has {self.quality.shape[1]} columns for {num_rerankers} rerankers")
        if self.grid is not None and set(self.grid.reranker.tolist()) != set(range(num_rerankers)):
            raise AgentError(
                f"the grid measured the reranker labels {sorted(set(self.grid.reranker.tolist()))}, but the agent has "
                f"{num_rerankers} rerankers; measure each of them"
            )
        outside = np.flatnonzero(~config.ranges.contains(self.settings))
        if outside.size:
            row = outside[0]
            values = dict(zip(SETTINGS, self.settings[row].tolist(), strict=True))
            raise AgentError(
                f"settings of question {self.ids[row]!r} leave the ranges: {values}; widen {config.ranges}"
            )

    def check_trainable(self) -> None:
        """Raise an `AgentError` unless there are two questions and two rerankers to tell apart."""
        if len(self) < 2:
            raise AgentError(f"training needs at least 2 questions, got {len(self)}; label more")
        seen = np.unique(self.reranker[self.weight > 0])
        if seen.size < 2:
            raise AgentError(
                f"training needs at least 2 different best rerankers among the questions with weight > 0, "
                f"got labels {seen.tolist()}; label more questions or lower the bar for counting one"
            )

    def of(self, rows: NDArray[np.bool_]) -> TrainingTable:
        """Return the questions that a mask `[n]` is true for."""
        arrays = ("features", "reranker", "settings", "weight", "quality", "utility")
        kept: dict[str, Any] = {
            name: None if (array := getattr(self, name)) is None else array[rows] for name in arrays
        }
        ids = tuple(name for name, keep in zip(self.ids, rows.tolist(), strict=True) if keep)
        return replace(self, ids=ids, **kept)


def _float_array(name: str, values: object, axes: int) -> NDArray[np.float32]:
    try:
        array = np.ascontiguousarray(values, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise AgentError(f"{name} must be an array of numbers: {error}") from error
    if array.ndim != axes:
        raise AgentError(f"{name} must have {axes} axes, got shape {array.shape}")
    bad = np.argwhere(~np.isfinite(array))
    if bad.size:
        raise AgentError(f"{name} must be finite; row {bad[0][0]} holds {array[tuple(bad[0])]}; drop or correct it")
    return array


def check_disjoint(train: TrainingTable, val: TrainingTable) -> None:
    """Raise an `AgentError` if a question is in both splits."""
    shared = sorted(set(train.ids) & set(val.ids))
    if shared:
        raise AgentError(
            f"{len(shared)} questions are in both training and validation, such as {shared[0]!r}; "
            "split by question, and by document where questions share one"
        )


def checked_descriptions(config: AgentConfig, vectors: object) -> dict[str, NDArray[np.float32]]:
    """Return the tensor of the descriptions' vectors by name, nothing where `config` describes no reranker.

    Raises:
        AgentError: They do not fit `config.described`, or hold what is no finite number.
    """
    if not config.described:
        if vectors is not None:
            raise AgentError("descriptions are given, but the configuration names no described rerankers; name them")
        return {}
    if vectors is None:
        raise AgentError(f"the configuration describes {', '.join(config.described)}; give the vectors as descriptions")
    array = _float_array(DESCRIPTIONS, vectors, 2)
    shape = (len(config.described), config.feature_dim)
    if array.shape != shape:
        raise AgentError(
            f"descriptions must have shape {shape}, one vector for each described reranker; got {array.shape}"
        )
    return {DESCRIPTIONS: array}


def epoch_order(num_rows: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Return the order of the rows in one epoch, a permutation `[num_rows]`.

    It depends on (seed, epoch) alone, so that an interrupted training continues as if it had not been.
    """
    return np.random.default_rng((seed, epoch)).permutation(num_rows)


Float32 = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class FeatureScaling:
    """Scales features to mean 0 and deviation 1 / sqrt(d): subtract `mean` `[d]`, multiply by `factor` `[d]`.

    The factor of a constant feature (deviation up to 1e-6) is 0, since stretching it would enlarge rounding errors.
    """

    mean: Float32
    factor: Float32

    @classmethod
    def of(cls, features: Float32) -> FeatureScaling:
        """Return the scaling that training features `[n, d]` ask for."""
        deviation = features.std(axis=0, dtype=np.float64)
        varies = deviation > 1e-6
        factor = np.divide(1 / np.sqrt(features.shape[1]), deviation, out=np.zeros_like(deviation), where=varies)
        return cls(features.mean(axis=0, dtype=np.float64).astype(np.float32), factor.astype(np.float32))

    def __call__(self, features: Float32) -> Float32:
        """Return scaled features, `[n, d]`."""
        return (features - self.mean) * self.factor

    def fold(self, weights: Mapping[str, Float32]) -> dict[str, Float32]:
        """Return weights that do with plain features what the given ones do with scaled features."""
        weight = weights["encoder.0.weight"].astype(np.float64) * self.factor
        bias = weights["encoder.0.bias"] - weight @ self.mean
        return {**weights, "encoder.0.weight": weight.astype(np.float32), "encoder.0.bias": bias.astype(np.float32)}

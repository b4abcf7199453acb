"""The training table: feature vectors and labels, checked at the door, and the scaling of features. NumPy only.

Letters: `n` questions, `b` rows, `d` features, `R` configurations of the agent, `C` measured ones, search settings
included.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agent.config import DESCRIPTIONS, SETTINGS, AgentConfig, Ranges
from agent.errors import AgentError

Float32 = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class MeasuredGrid:
    """What was measured where the agent predicts settings: labels, `[C]`, and settings in natural units, `[C, 3]`."""

    label: NDArray[np.int64]
    settings: Float32

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", np.ascontiguousarray(self.label, dtype=np.int64))
        object.__setattr__(self, "settings", np.ascontiguousarray(self.settings, dtype=np.float32))
        if self.label.ndim != 1 or self.settings.shape != (len(self.label), len(SETTINGS)):
            raise AgentError(
                f"a grid needs one label and {len(SETTINGS)} settings for each cell, got shapes {self.label.shape} and "
                f"{self.settings.shape}"
            )

    def __len__(self) -> int:
        return len(self.label)

    def nearest(self, label: ArrayLike, settings: ArrayLike, ranges: Ranges) -> NDArray[np.int64]:
        """Return the measured cell that stands for each prediction, `[b]`.

        It has the same label, `[b]`, and the settings, `[b, 3]`, nearest on the scale [0, 1] of `ranges`; among equals
        the first counts. A label without measured cells is an `AgentError`.
        """
        labels = np.asarray(label)
        missing = np.setdiff1d(labels, self.label)
        if missing.size:
            raise AgentError(f"label {missing[0]} has no measured settings; label with it, or leave it out")
        apart = ranges.to_unit(settings)[:, None] - ranges.to_unit(self.settings)[None]
        distance = np.where(self.label == labels[:, None], np.square(apart).sum(axis=-1), np.inf)
        return np.asarray(distance.argmin(axis=1), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class TrainingTable:
    """What is known about the questions of one split.

    Attributes:
        features: Feature vectors, float32 `[n, d]`.
        label: Index of each question's best configuration, int64 `[n]`.
        weight: How much a question counts for the label and for pairs, at least 0, float32 `[n]`. A question whose best
            and next best configuration are too close has weight 0 (paper 5.2.2) and then teaches the settings only.
        ids: Name of each question, `n` of them.
        quality: Answer quality with each configuration, higher is better, float32 `[n, R]`, or None.
        settings: Each question's best iterations, exploration and cost weight in natural units, float32 `[n, 3]`; None
            for an agent that does not predict them.
        grid: What was measured, or None.
        utility: What each cell of the grid gave, higher is better, float32 `[n, C]`; given exactly where a grid is. It
            then decides the regret of a prediction, settings included.
    """

    features: Float32
    label: NDArray[np.int64]
    weight: Float32
    ids: tuple[str, ...]
    quality: Float32 | None = None
    settings: Float32 | None = None
    grid: MeasuredGrid | None = None
    utility: Float32 | None = None

    def __post_init__(self) -> None:
        if not np.issubdtype(np.asarray(self.label).dtype, np.integer):
            raise AgentError(f"label must hold indices, got dtype {np.asarray(self.label).dtype}")
        object.__setattr__(self, "label", np.ascontiguousarray(self.label, dtype=np.int64))
        if self.label.ndim != 1:
            raise AgentError(f"label must have 1 axis, got shape {self.label.shape}")
        for name, axes in (("features", 2), ("weight", 1), ("quality", 2), ("settings", 2), ("utility", 2)):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _float_array(name, getattr(self, name), axes))
        for name in _ARRAYS:
            array = getattr(self, name)
            if array is not None and len(array) != len(self.ids):
                raise AgentError(f"{name} has {len(array)} rows for {len(self.ids)} ids; give one per question")
        if self.settings is not None and self.settings.shape[1] != len(SETTINGS):
            raise AgentError(f"settings need the columns {SETTINGS}, got shape {self.settings.shape}")
        if (self.grid is None) != (self.utility is None):
            raise AgentError("grid and utility belong together; give both or neither")
        if self.grid is not None and self.utility is not None and self.utility.shape[1] != len(self.grid):
            raise AgentError(f"utility has {self.utility.shape[1]} columns for {len(self.grid)} measured cells")
        for name in ("label", "weight"):
            if (getattr(self, name) < 0).any():
                raise AgentError(f"{name} must be at least 0, got {getattr(self, name).min()}")

    def __len__(self) -> int:
        return len(self.ids)

    def digest(self) -> str:
        """Return the SHA-256 of the whole content, hexadecimal."""
        sha = hashlib.sha256("\n".join(self.ids).encode())
        grid = (None, None) if self.grid is None else (self.grid.label, self.grid.settings)
        for array in (*(getattr(self, name) for name in _ARRAYS), *grid):
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
        number = len(config.configurations)
        if len(self) and self.label.max() >= number:
            raise AgentError(f"label {self.label.max()} must be below {number}, the number of configurations")
        if self.quality is not None and self.quality.shape[1] != number:
            raise AgentError(f"quality has {self.quality.shape[1]} columns for {number} configurations")
        if (self.settings is None) != (config.ranges is None):
            raise AgentError("a table has settings exactly where the agent has ranges for them; give both or neither")
        if self.grid is not None and set(self.grid.label.tolist()) != set(range(number)):
            raise AgentError(
                f"the grid measured the labels {sorted(set(self.grid.label.tolist()))}, but the agent has {number} "
                "configurations; measure each of them"
            )
        if config.ranges is None or self.settings is None:
            return
        outside = np.flatnonzero(~config.ranges.contains(self.settings))
        if outside.size:
            row = outside[0]
            raise AgentError(f"settings of {self.ids[row]!r} are {self.settings[row]}, outside {config.ranges}")

    def check_trainable(self) -> None:
        """Raise an `AgentError` unless there are two questions and two configurations to tell apart."""
        if len(self) < 2:
            raise AgentError(f"training needs at least 2 questions, got {len(self)}; label more")
        seen = np.unique(self.label[self.weight > 0])
        if seen.size < 2:
            raise AgentError(
                f"training needs at least 2 different best configurations among the questions with weight > 0, "
                f"got labels {seen.tolist()}; label more questions or lower the bar for counting one"
            )

    def of(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> TrainingTable:
        """Return some questions, given by a mask `[n]` or by their indices."""
        chosen = np.arange(len(self))[rows]
        kept: dict[str, Any] = {
            name: None if (array := getattr(self, name)) is None else array[chosen] for name in _ARRAYS
        }
        return replace(self, ids=tuple(self.ids[row] for row in chosen), **kept)


_ARRAYS = ("features", "label", "weight", "quality", "settings", "utility")


def _float_array(name: str, values: object, axes: int) -> Float32:
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


def checked_descriptions(config: AgentConfig, vectors: object) -> dict[str, Float32]:
    """Return the tensor of the descriptions' vectors by name, nothing where `config` describes no reranker.

    Raises:
        AgentError: They do not fit `config.described`, or hold what is no finite number.
    """
    if not config.described:
        if vectors is not None:
            raise AgentError("descriptions are given, but the agent describes no configurations; name them")
        return {}
    if vectors is None:
        raise AgentError(f"the agent describes {', '.join(config.described)}; give the vectors as descriptions")
    array = _float_array(DESCRIPTIONS, vectors, 2)
    shape = (len(config.described), config.feature_dim)
    if array.shape != shape:
        raise AgentError(
            f"descriptions must have shape {shape}, one vector for each described configuration; got {array.shape}"
        )
    return {DESCRIPTIONS: array}


def epoch_order(num_rows: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Return the order of the rows in one epoch, a permutation `[num_rows]`.

    It depends on (seed, epoch) alone, so that an interrupted training continues as if it had not been.
    """
    return np.random.default_rng((seed, epoch)).permutation(num_rows)


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

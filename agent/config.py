"""What rebuilds an agent (`AgentConfig`) and what trains one (`TrainConfig`). NumPy only.

The columns of a settings array are always `SETTINGS`, in that order.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from common.checks import check_choice, check_count, check_range, check_seed
from common.configuration import Configuration, parse
from common.errors import InputError

Keep = Literal["best", "last"]
FloatArray = NDArray[np.float64]

SETTINGS = ("iterations", "exploration", "cost_weight")
"""Columns of every settings array: iterations (paper 5.1), c of eq. 5, and lambda, the price of 256 tokens."""


@dataclass(frozen=True, slots=True)
class Ranges:
    """Lowest and highest value of each search setting that the agent may predict.

    Iterations are regressed on a log scale, since ten more matter at 10 and not at 1000.
    """

    iterations: tuple[int, int]
    exploration: tuple[float, float]
    cost_weight: tuple[float, float]

    def __post_init__(self) -> None:
        for name in SETTINGS:
            bounds = getattr(self, name)
            if not isinstance(bounds, tuple) or len(bounds) != 2:
                raise InputError(f"ranges.{name} must be a pair (low, high), got {bounds!r}")
            for bound in bounds:
                _check_setting(f"ranges.{name}", name, bound)
            if bounds[0] > bounds[1]:
                raise InputError(f"ranges.{name} must have low <= high, got {bounds!r}")

    def to_unit(self, settings: ArrayLike) -> FloatArray:
        """Return settings `[n, 3]` in natural units on the scale [0, 1]; a range of one value maps to 0."""
        low, high = _scaled(self._bounds())
        span = np.where(high > low, high - low, 1.0)
        return np.asarray((_scaled(settings) - low) / span)

    def from_unit(self, unit: ArrayLike) -> FloatArray:
        """Return settings `[n, 3]` in natural units for values in [0, 1]; iterations are whole numbers.

        The result is clipped to the ranges, because exp(log x) may miss x by a rounding error.
        """
        low, high = _scaled(self._bounds())
        settings = low + np.asarray(unit, dtype=np.float64) * (high - low)
        settings[:, 0] = np.rint(np.exp(settings[:, 0]))
        return np.asarray(np.clip(settings, *self._bounds()))

    def _bounds(self) -> FloatArray:
        return np.array([self.iterations, self.exploration, self.cost_weight], dtype=np.float64).T


def _scaled(settings: ArrayLike) -> FloatArray:
    scaled = np.array(settings, dtype=np.float64)
    scaled[:, 0] = np.log(scaled[:, 0])
    return scaled


def _check_names(name: str, value: object) -> None:
    """Raise unless `value` is a tuple of at least one non-empty string, none of them twice."""
    valid = isinstance(value, tuple) and value and all(isinstance(item, str) and item.strip() for item in value)
    if not valid or len(set(value)) < len(value):  # type: ignore[call-overload, arg-type]
        raise InputError(f"{name} must be a tuple of at least one non-empty name, each once; got {value!r}")


def _check_setting(label: str, name: str, value: object) -> None:
    if name == "iterations":
        check_count(label, value, least=1)
    else:
        check_range(label, value, 0, math.inf)


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """Everything needed to rebuild an agent around its weights, and to feed it.

    Attributes:
        configurations: The classes that it chooses among, in label order: configurations without the settings that it
            predicts.
        fallback: The best single one of them, which the agent has to beat.
        feature_dim: Length of a feature vector; 0 for an agent without a network, which always names its fallback.
        embedder: Name of the embedder of the queries.
        features: Recipe of the feature vector: names of its parts in order. The agent only keeps them
            for whoever builds the vectors.
        hidden: Sizes of the hidden layers (paper 5.1).
        map_dim: Size of the feature map on which the contrastive loss works (paper 5.1).
        ranges: Ranges of the search settings that the second head predicts; None without such a head.
        min_lead: Lead in probability that another configuration has to exceed over the fallback for the agent to depart
            from it, from 0 (it goes by its own prediction always) to 1 (never). Not in the paper.
        fallback_settings: Iterations, exploration and cost weight of the fallback; given where `ranges` are.
    """

    configurations: tuple[Configuration, ...]
    fallback: Configuration
    feature_dim: int = 0
    embedder: str = ""
    features: tuple[str, ...] = ("query",)
    hidden: tuple[int, ...] = (512, 256)
    map_dim: int = 128
    ranges: Ranges | None = None
    min_lead: float = 0.0
    fallback_settings: tuple[int, float, float] | None = None

    def __post_init__(self) -> None:
        _check_names("configurations", self.configurations)
        object.__setattr__(self, "configurations", tuple(map(parse, self.configurations)))
        object.__setattr__(self, "fallback", parse(self.fallback))
        check_choice("fallback", self.fallback, self.configurations)
        if (self.fallback_settings is None) != (self.ranges is None):
            raise InputError("fallback_settings and ranges belong together; give both or neither")
        for name, value in zip(SETTINGS, self.fallback_settings or (), strict=self.ranges is not None):
            _check_setting(f"fallback_settings, {name},", name, value)
        check_count("feature_dim", self.feature_dim, least=0)
        if self.feature_dim:
            _check_names("embedder", (self.embedder,))
            _check_names("features", self.features)
        if not isinstance(self.hidden, tuple):
            raise InputError(f"hidden must be a tuple of layer sizes, got {self.hidden!r}")
        for name, size in (*(("every size in hidden", size) for size in self.hidden), ("map_dim", self.map_dim)):
            check_count(name, size, least=1)
        check_range("min_lead", self.min_lead, 0, 1, "it is a lead in probability")

    @property
    def best_single(self) -> Configuration:
        """The fallback with its search settings."""
        return self.fallback.with_search(*(self.fallback_settings or ()))

    @property
    def encoder_shapes(self) -> tuple[tuple[int, int], ...]:
        """(inputs, outputs) of each encoder layer, from features to feature map; none without a network."""
        sizes = (self.feature_dim, *self.hidden, self.map_dim)
        return tuple(pairwise(sizes)) if self.feature_dim else ()

    @property
    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every weight tensor by name, weights `[outputs, inputs]`; none without a network."""
        if not self.feature_dim:
            return {}
        layers = {f"encoder.{i}": shape for i, shape in enumerate(self.encoder_shapes)}
        layers["choice"] = (self.map_dim, len(self.configurations))
        if self.ranges is not None:
            layers["settings"] = (self.map_dim, len(SETTINGS))
        shapes: dict[str, tuple[int, ...]] = {}
        for name, (inputs, outputs) in layers.items():
            shapes |= {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}
        return shapes

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that JSON can hold."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> AgentConfig:
        """Return the configuration that `to_dict` wrote; an `InputError` if it is damaged."""
        try:
            fields = _with_tuples(values)
            if fields.get("ranges") is not None:
                fields["ranges"] = Ranges(**_with_tuples(fields["ranges"]))
            return cls(**fields)
        except (TypeError, ValueError, AttributeError) as error:
            raise InputError(f"the settings are not those of an agent: {error}") from error


def _with_tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}


@dataclass(frozen=True)
class TrainConfig:
    """How an agent is trained, by Adam; the defaults are the paper's (6.1), which names no optimizer and no epoch.

    Attributes:
        lr: Learning rate.
        batch_size: Questions per step; pairs are formed within a batch, so at least 2.
        epochs: Passes over the training questions.
        margin: Distance beyond which a negative pair adds no loss.
        contrastive_weight: Weight of the contrastive loss in the total, in which the classification loss has 1.
        settings_weight: Weight of the regression loss in the total.
        standardize: Scale every feature to mean 0 and standard deviation 1 / sqrt(features) on the training questions,
            so that a vector has a length of about 1, as an embedding has, and no part dominates. The scaling is folded
            into the first layer of the trained agent, so its inputs stay as they are.
        seed: Seed of the initial weights and of the order of the questions.
        keep: Which epoch's weights are the result: those of the best or of the last.
    """

    lr: float = 1e-3
    batch_size: int = 32
    epochs: int = 60
    margin: float = 1.0
    contrastive_weight: float = 1.0
    settings_weight: float = 1.0
    standardize: bool = False
    seed: int = 0
    keep: Keep = "best"

    def __post_init__(self) -> None:
        for name in ("lr", "margin"):
            check_range(name, getattr(self, name), sys.float_info.min, math.inf, "greater than 0")
        for name in ("contrastive_weight", "settings_weight"):
            check_range(name, getattr(self, name), 0, math.inf)
        for name, least in {"batch_size": 2, "epochs": 1}.items():
            check_count(name, getattr(self, name), least=least)
        check_seed("seed", self.seed)
        check_choice("keep", self.keep, get_args(Keep))

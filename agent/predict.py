"""The trained agent: feature vectors in, configurations out. NumPy only, so that loading needs no torch.

Letters: `b` rows, `d` features, `R` configurations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agent.config import SETTINGS, AgentConfig, FloatArray
from common.configuration import Configuration
from common.errors import InputError


@dataclass(frozen=True, slots=True)
class AgentPrediction:
    """The configuration for one question; `str` spells a selector.

    Attributes:
        configuration: The most probable configuration, the fallback's if it `fell_back`.
        iterations: Search iterations; None, like the next two, if the agent does not predict them.
        exploration: c of the paper's eq. 5.
        cost_weight: lambda: the price of 256 tokens, in units of value.
        probabilities: Probability of every configuration that the agent knows, in label order; they sum to 1.
        fell_back: Whether the most probable configuration leads by no more than `AgentConfig.min_lead`, so this is
            the fallback, settings included.
    """

    configuration: Configuration
    iterations: int | None
    exploration: float | None
    cost_weight: float | None
    probabilities: Mapping[str, float]
    fell_back: bool

    @property
    def unit(self) -> str | None:
        """The unit that the configuration names: passages, sentences or windows; None if it names none."""
        return self.configuration.settings.get("unit")

    @property
    def reranker(self) -> str | None:
        """The reranker that the configuration names, spelled; None if it names none."""
        return self.configuration.settings.get("reranker")

    def __str__(self) -> str:
        return str(self.configuration.with_search(self.iterations, self.exploration, self.cost_weight))


class ConfigurationAgent:
    """Predicts a configuration, and search settings where it has a head for them, from a feature vector.

    Its weights are the finite float32 tensors named in `config.tensor_shapes`, else there is an `InputError`. Without a
    network there are none, and every question gets the fallback.
    """

    def __init__(self, config: AgentConfig, weights: Mapping[str, NDArray[np.float32]] = MappingProxyType({})) -> None:
        _check_weights(config, weights)
        self.config = config
        self.weights = MappingProxyType(dict(weights))
        # In float64 no finite float32 feature can overflow to infinity on its way through.
        self._encoder_layers = [f"encoder.{layer}" for layer in range(len(config.encoder_shapes))]
        self._tensors = {name: np.ascontiguousarray(tensor.T, dtype=np.float64) for name, tensor in weights.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return ConfigurationAgent, (self.config, dict(self.weights))

    @property
    def has_network(self) -> bool:
        """Whether predictions depend on the features."""
        return bool(self.weights)

    def predict(self, features: ArrayLike) -> AgentPrediction | list[AgentPrediction]:
        """Return the configuration for each feature vector.

        Args:
            features: One vector `[d]` or several `[b, d]`, made by `config.embedder` with the recipe `config.features`.

        Returns:
            One prediction for `[d]`, a list of `b` for `[b, d]`.

        Raises:
            InputError: The features have another dimension or are not finite.
        """
        rows, single = self._rows(features)
        names, ranges = self.config.configurations, self.config.ranges
        probabilities, unit = self._outputs(rows)
        labels, settings, fell_back = decide(self.config, probabilities, unit)
        predictions = []
        for label, row, odds, back in zip(labels, settings.tolist(), probabilities, fell_back, strict=True):
            iterations, exploration, cost_weight = (None,) * 3 if ranges is None else (int(row[0]), *row[1:])
            known = dict(zip(names, odds.tolist(), strict=True))
            predictions.append(AgentPrediction(names[label], iterations, exploration, cost_weight, known, bool(back)))
        return predictions[0] if single else predictions

    def _outputs(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return probabilities, `[b, R]`, and settings on the scale [0, 1], `[b, 3]`."""
        settings = np.zeros((len(rows), len(SETTINGS)))
        if not self.has_network:
            certain = np.array([name == self.config.fallback for name in self.config.configurations])
            return np.tile(certain.astype(np.float64), (len(rows), 1)), settings
        maps = rows
        for layer in self._encoder_layers:
            maps = np.maximum(self._linear(layer, maps), 0.0)
        logits = self._linear("choice", maps)
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        if self.config.ranges is not None:
            # The logistic function through tanh, because exp(-x) overflows for large negative x.
            settings = 0.5 * (1.0 + np.tanh(0.5 * self._linear("settings", maps)))
        return odds / odds.sum(axis=1, keepdims=True), settings

    def _linear(self, layer: str, rows: FloatArray) -> FloatArray:
        return np.asarray(rows @ self._tensors[f"{layer}.weight"] + self._tensors[f"{layer}.bias"])

    def _rows(self, features: ArrayLike) -> tuple[FloatArray, bool]:
        try:
            rows = np.asarray(features, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"features must be an array of numbers: {error}") from error
        dim = self.config.feature_dim
        if rows.ndim not in (1, 2) or (dim and rows.shape[-1] != dim):
            raise InputError(
                f"features must have shape [{dim}] or [b, {dim}], got {list(rows.shape)}; build them with "
                f"the embedder {self.config.embedder!r} and the recipe {self.config.features}"
            )
        if not (np.abs(rows) <= np.finfo(np.float32).max).all():
            raise InputError(f"features must be finite float32 values; check the embedder {self.config.embedder!r}")
        return np.atleast_2d(rows), rows.ndim == 1


def _check_weights(config: AgentConfig, weights: Mapping[str, NDArray[np.float32]]) -> None:
    shapes = config.tensor_shapes
    if different := sorted(set(weights) ^ set(shapes)):
        raise InputError(f"expected the tensors {', '.join(shapes)}; missing or unknown: {', '.join(different)}")
    for name, shape in shapes.items():
        tensor = weights[name]
        if tensor.shape != shape or tensor.dtype != np.float32 or not np.isfinite(tensor).all():
            raise InputError(
                f"tensor {name!r} must be finite float32 of shape {shape}, got {tensor.dtype} of shape {tensor.shape}"
            )


def decide(
    config: AgentConfig, probabilities: FloatArray, unit: FloatArray
) -> tuple[NDArray[np.int64], FloatArray, NDArray[np.bool_]]:
    """Return the label, `[b]`, the search settings in natural units, `[b, 3]`, and `fell_back`, `[b]`.

    Training and prediction share this rule. The most probable configuration, of equals the first in label order, comes
    with the predicted settings. If it leads the fallback by no more than `config.min_lead`, the row falls back:
    it gets the fallback with its settings.

    `probabilities` are those of the configurations, `[b, R]`; `unit` the predicted settings on the scale [0, 1] of
    `config.ranges`, `[b, 3]`, without ranges returned as they are.
    """
    labels = np.asarray(probabilities.argmax(axis=1), dtype=np.int64)
    settings = unit if config.ranges is None else config.ranges.from_unit(unit)
    fell_back = np.zeros(len(labels), dtype=bool)
    fallback = config.configurations.index(config.fallback)
    if config.feature_dim and config.min_lead:
        fell_back = probabilities.max(axis=1) - probabilities[:, fallback] <= config.min_lead
    # Without a network there is nothing but the fallback to go by.
    kept = fell_back if config.feature_dim else np.ones(len(labels), dtype=bool)
    labels[kept] = fallback
    if config.fallback_settings is not None:
        settings[kept] = config.fallback_settings
    return labels, settings, fell_back

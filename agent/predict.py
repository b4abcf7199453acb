"""The trained agent: feature vectors in, configurations out. NumPy only, so that loading needs no torch.

Letters: `b` rows, `d` features, `M` size of the feature map, `R` rerankers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agent.config import AgentConfig
from agent.configurations import SETTINGS, FloatArray
from agent.errors import AgentError


@dataclass(frozen=True, slots=True)
class AgentPrediction:
    """The configuration for one question.

    Attributes:
        reranker: The most probable reranker, among those available; the fixed configuration's where the agent keeps
            to that, settings included (`AgentConfig.min_lead`).
        iterations: Search iterations.
        exploration: c of the paper's eq. 5.
        cost_weight: lambda of the paper's eq. 5.
        probabilities: Probability of every reranker the agent knows, in label order; they sum to 1.
        unsure: Whether the most probable reranker leads by too little, so that the fixed configuration stands here.
    """

    reranker: str
    iterations: int
    exploration: float
    cost_weight: float
    probabilities: Mapping[str, float]
    unsure: bool = False


class ConfigurationAgent:
    """Predicts reranker and search settings from a feature vector.

    Its weights are the float32 tensors named in `config.tensor_shapes`. An `AgentError` says that one is missing,
    unknown, of the wrong shape or type, or not finite.
    """

    def __init__(self, config: AgentConfig, weights: Mapping[str, NDArray[np.float32]]) -> None:
        _check_weights(config, weights)
        self.config = config
        self.weights = MappingProxyType(dict(weights))
        # In float64 no finite float32 feature can overflow to infinity on its way through.
        self._encoder = [self._layer(f"encoder.{i}") for i in range(len(config.encoder_shapes))]
        self._reranker = self._layer("reranker")
        self._settings = self._layer("settings")

    def predict(
        self, features: ArrayLike, available: Collection[str] | None = None
    ) -> AgentPrediction | list[AgentPrediction]:
        """Return the configuration for each feature vector.

        Args:
            features: One vector `[d]` or several `[b, d]`, made by `config.embedder` with the recipe `config.features`.
            available: Names of the rerankers to choose from; None for all. Ties go to the first in label order.

        Returns:
            One prediction for `[d]`, a list of `b` for `[b, d]`.

        Raises:
            AgentError: The features have another dimension or are not finite, or no available reranker is known.
        """
        rows, single = self._rows(features)
        names = self.config.rerankers
        allowed = np.array([available is None or name in available for name in names])
        if not allowed.any():
            raise AgentError(
                f"none of the available rerankers {sorted(available or ())} is known to the agent; "
                f"it knows {', '.join(names)}"
            )
        maps = self._maps(rows)
        logits = maps @ self._reranker[0] + self._reranker[1]
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities = odds / odds.sum(axis=1, keepdims=True)
        # The logistic function through tanh, because exp(-x) overflows for large negative x.
        unit = 0.5 * (1.0 + np.tanh(0.5 * (maps @ self._settings[0] + self._settings[1])))
        decided = decide(self.config, probabilities, unit, allowed)
        predictions = [
            AgentPrediction(
                names[label], int(iterations), exploration, cost_weight, dict(zip(names, row, strict=True)), unsure
            )
            for label, (iterations, exploration, cost_weight), unsure, row in zip(
                *(column.tolist() for column in (*decided, probabilities)), strict=True
            )
        ]
        return predictions[0] if single else predictions

    def feature_maps(self, features: ArrayLike) -> FloatArray:
        """Return the feature map of each vector, as trained by the contrastive loss: `[M]`, or `[b, M]` for several."""
        rows, single = self._rows(features)
        maps = self._maps(rows)
        return np.asarray(maps[0]) if single else maps

    def _maps(self, rows: FloatArray) -> FloatArray:
        for weight, bias in self._encoder:
            rows = np.maximum(rows @ weight + bias, 0.0)
        return rows

    def _rows(self, features: ArrayLike) -> tuple[FloatArray, bool]:
        try:
            rows = np.asarray(features, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise AgentError(f"features must be an array of numbers: {error}") from error
        dim = self.config.feature_dim
        if rows.ndim not in (1, 2) or rows.shape[-1] != dim:
            raise AgentError(
                f"features must have shape [{dim}] or [b, {dim}], got {list(rows.shape)}; build them with "
                f"the embedder {self.config.embedder!r} and the recipe {self.config.features}"
            )
        if not (np.abs(rows) <= np.finfo(np.float32).max).all():
            raise AgentError(
                f"features must be finite float32 values; check the output of the embedder {self.config.embedder!r}"
            )
        return np.atleast_2d(rows), rows.ndim == 1

    def _layer(self, name: str) -> tuple[FloatArray, FloatArray]:
        weight = self.weights[f"{name}.weight"].astype(np.float64)
        return np.ascontiguousarray(weight.T), self.weights[f"{name}.bias"].astype(np.float64)


def _check_weights(config: AgentConfig, weights: Mapping[str, NDArray[np.float32]]) -> None:
    shapes = config.tensor_shapes
    if set(weights) != set(shapes):
        raise AgentError(
            f"the weights do not fit the configuration: "
            f"missing tensors {sorted(set(shapes) - set(weights))}, "
            f"unknown tensors {sorted(set(weights) - set(shapes))}"
        )
    for name, shape in shapes.items():
        tensor = weights[name]
        if tensor.shape != shape or tensor.dtype != np.float32:
            raise AgentError(
                f"tensor {name!r} must be float32 of shape {shape}, got {tensor.dtype} of shape {tensor.shape}"
            )
        if not np.isfinite(tensor).all():
            raise AgentError(f"tensor {name!r} holds values that are not finite")


def decide(
    config: AgentConfig, probabilities: FloatArray, unit: FloatArray, allowed: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.int64], FloatArray, NDArray[np.bool_]]:
    """Return the label of the reranker, `[b]`, the search settings in natural units, `[b, 3]`, and `unsure`, `[b]`.

    Training and prediction share this rule. The most probable reranker, among equals the first in label order, comes
    with the predicted settings. If it leads the fixed configuration's reranker by less than `config.min_lead`, the
    row is unsure and gets the fixed configuration, provided that its reranker is allowed.

    `probabilities` are `[b, R]`, the settings `unit`, `[b, 3]`, on the scale [0, 1] of `config.ranges`, and `allowed`,
    `[R]`, has at least one reranker.
    """
    if allowed is not None:
        probabilities = np.where(allowed, probabilities, -1.0)
    labels = np.asarray(probabilities.argmax(axis=1), dtype=np.int64)
    settings, unsure = config.ranges.from_unit(unit), np.zeros(len(labels), dtype=bool)
    if config.min_lead and config.fixed is not None:
        fixed = config.rerankers.index(config.fixed.reranker)
        if allowed is None or allowed[fixed]:
            unsure = probabilities.max(axis=1) - probabilities[:, fixed] < config.min_lead
            labels[unsure] = fixed
            settings[unsure] = [getattr(config.fixed, name) for name in SETTINGS]
    return labels, settings, unsure

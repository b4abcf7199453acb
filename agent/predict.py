"""The trained agent: feature vectors in, configurations out. NumPy only, so that loading needs no torch.

Letters: `b` rows, `d` features, `M` size of the feature map, `R` labelled rerankers, `K` descriptions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agent.config import DESCRIPTIONS, AgentConfig
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
        probabilities: Probability of every reranker the agent knows, in label order, then of those that it knows by
            their description alone; they sum to 1.
        unsure: Whether the most probable reranker leads by too little, so that the fixed configuration stands here.
    """

    reranker: str
    iterations: int
    exploration: float
    cost_weight: float
    probabilities: Mapping[str, float]
    unsure: bool = False


TEMPERATURE = 0.1
"""Unit of squared distance to a description: at the margin of the paper, 1, a description is e^10 times less probable
than at distance 0. The odds follow distances learned with another margin in proportion."""


class ConfigurationAgent:
    """Predicts reranker and search settings from a feature vector.

    The classification head divides probability among the rerankers that questions were labelled with, as in the paper.
    Those known by their description alone (`config.unlabelled`) first take the share that a softmax of the negative
    squared distances from the question's map to the maps of all descriptions gives them; the paper leaves open how
    predictions use descriptions.

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
        self._nearness = self.nearness() if config.unlabelled else None

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
        names = self.config.all_rerankers
        allowed = np.array([available is None or name in available for name in names])
        if not allowed.any():
            raise AgentError(
                f"none of the available rerankers {sorted(available or ())} is known to the agent; "
                f"it knows {', '.join(names)}"
            )
        maps = self._maps(rows)
        probabilities = _softmax(maps @ self._reranker[0] + self._reranker[1])
        if self._nearness is not None:
            near = _softmax(maps @ self._nearness[0] + self._nearness[1])
            labelled, others = self.described_rows
            share = near[:, labelled].sum(axis=1, keepdims=True)
            probabilities = np.hstack([probabilities * share, near[:, others]])
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

    def with_reranker(self, name: str, description: ArrayLike) -> ConfigurationAgent:
        """Return an agent that can also choose a reranker that it was never trained on, by its description.

        Args:
            name: Name of the reranker.
            description: Vector of the description, `[d]`, made as those of the agent's own were; see `config.embedder`.

        Raises:
            AgentError: The agent knows the name already, was trained without descriptions, or the vector is none.
        """
        config = self.config
        if not config.described:
            raise AgentError(
                f"the agent was trained without descriptions of its rerankers, so that of {name!r} has nothing to be "
                "compared with; train it with: corag train --recipe paper"
            )
        if name in config.all_rerankers:
            raise AgentError(f"the agent knows {name!r} already; its rerankers are {', '.join(config.all_rerankers)}")
        rows, single = self._rows(description)
        if not single:
            raise AgentError(f"the description must be one vector [{config.feature_dim}], got {list(rows.shape)}")
        vectors = np.vstack([self.weights[DESCRIPTIONS], rows.astype(np.float32)])
        return ConfigurationAgent(
            replace(config, described=(*config.described, name)), {**self.weights, DESCRIPTIONS: vectors}
        )

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

    @cached_property
    def described_rows(self) -> tuple[list[int], list[int]]:
        """The rows of the descriptions that belong to labelled rerankers, and those of the others."""
        known, described = self.config.rerankers, list(enumerate(self.config.described))
        return [row for row, name in described if name in known], [row for row, name in described if name not in known]

    def nearness(self) -> tuple[FloatArray, FloatArray]:
        """Return weight `[M, K]` and bias `[K]` of the linear layer whose softmax says which description is near.

        -|m - v|^2 / t is 2 m v / t - |v|^2 / t but for a term that all descriptions share.
        """
        maps = self._maps(self.weights[DESCRIPTIONS].astype(np.float64))
        return np.ascontiguousarray(2.0 * maps.T / TEMPERATURE), -np.square(maps).sum(axis=1) / TEMPERATURE

    def _layer(self, name: str) -> tuple[FloatArray, FloatArray]:
        weight = self.weights[f"{name}.weight"].astype(np.float64)
        return np.ascontiguousarray(weight.T), self.weights[f"{name}.bias"].astype(np.float64)


def _softmax(logits: FloatArray) -> FloatArray:
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))


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

    `probabilities` are those of `config.all_rerankers`, or of the labelled among them, the settings `unit`, `[b, 3]`,
    on the scale [0, 1] of `config.ranges`, and `allowed`, one for each probability, has at least one reranker.
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

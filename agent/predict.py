"""The trained agent: feature vectors in, configurations out. NumPy only, so that loading needs no torch.

Letters: `b` rows, `d` features, `M` size of the feature map, `R` labelled configurations, `K` descriptions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agent.config import DESCRIPTIONS, SETTINGS, AgentConfig, FloatArray, setting_of, spelled
from agent.errors import AgentError


@dataclass(frozen=True, slots=True)
class AgentPrediction:
    """The configuration for one question; `str` spells a selector.

    Attributes:
        configuration: The most probable configuration, among those available; the fallback's if `unsure`.
        iterations: Search iterations; None, like the next two, if the agent does not predict them.
        exploration: c of the paper's eq. 5.
        cost_weight: lambda of the paper's eq. 5.
        probabilities: Probability of every configuration that the agent knows, in label order, then of those that it
            knows by their description alone; they sum to 1.
        unsure: Whether the most probable configuration leads by less than `AgentConfig.min_lead`, so that this is the
            fallback, settings included.
    """

    configuration: str
    iterations: int | None
    exploration: float | None
    cost_weight: float | None
    probabilities: Mapping[str, float]
    unsure: bool = False

    @property
    def unit(self) -> str | None:
        """The unit that the configuration names."""
        return setting_of(self.configuration, "unit")

    @property
    def reranker(self) -> str | None:
        """The reranker that the configuration names."""
        return setting_of(self.configuration, "reranker")

    def __str__(self) -> str:
        return spelled(self.configuration, self.iterations, self.exploration, self.cost_weight)


TEMPERATURE = 0.1
"""Unit of squared distance to a description: at the margin of the paper, 1, a description is e^10 times less probable
than at distance 0. The odds follow distances learned with another margin in proportion."""


class ConfigurationAgent:
    """Predicts a configuration, and search settings where it has a head for them, from a feature vector.

    The classification head divides probability among the configurations that questions were labelled with, as in the
    paper. Those known by their description alone (`config.unlabelled`) first take the share that a softmax of the
    negative squared distances from the question's map to the maps of all descriptions gives them; the paper leaves open
    how predictions use descriptions.

    Its weights are the float32 tensors named in `config.tensor_shapes`; without a network there are none, and every
    question gets the fallback. An `AgentError` says that one is missing, unknown, of the wrong shape or type, or not
    finite.
    """

    def __init__(self, config: AgentConfig, weights: Mapping[str, NDArray[np.float32]] = MappingProxyType({})) -> None:
        _check_weights(config, weights)
        self.config = config
        self.weights = MappingProxyType(dict(weights))
        # In float64 no finite float32 feature can overflow to infinity on its way through.
        self._encoder = [self._layer(f"encoder.{i}") for i in range(len(config.encoder_shapes))]
        self._choice = self._layer("choice") if weights else None
        self._settings = self._layer("settings") if weights and config.ranges is not None else None
        self._near = self._nearness() if config.unlabelled else None

    @property
    def has_network(self) -> bool:
        """Whether predictions depend on the features."""
        return bool(self.weights)

    def predict(
        self, features: ArrayLike, available: Collection[str] | None = None
    ) -> AgentPrediction | list[AgentPrediction]:
        """Return the configuration for each feature vector.

        Args:
            features: One vector `[d]` or several `[b, d]`, made by `config.embedder` with the recipe `config.features`.
            available: Configurations to choose from; None for all. Ties go to the first in label order.

        Returns:
            One prediction for `[d]`, a list of `b` for `[b, d]`.

        Raises:
            AgentError: The features have another dimension or are not finite, or no available configuration is known.
        """
        rows, single = self._rows(features)
        names, ranges = self.config.all_configurations, self.config.ranges
        allowed = np.array([available is None or name in available for name in names])
        if not allowed.any():
            raise AgentError(
                f"none of the available configurations {sorted(available or ())} is known to the agent; "
                f"it knows {', '.join(names)}"
            )
        probabilities, unit = self._outputs(rows)
        labels, settings, unsure = decide(self.config, probabilities, unit, allowed)
        predictions = []
        for row, (label, is_unsure) in enumerate(zip(labels.tolist(), unsure.tolist(), strict=True)):
            iterations, exploration, cost_weight = (None,) * 3 if ranges is None else settings[row].tolist()
            odds = dict(zip(names, probabilities[row].tolist(), strict=True))
            count = None if iterations is None else int(iterations)
            predictions.append(AgentPrediction(names[label], count, exploration, cost_weight, odds, is_unsure))
        return predictions[0] if single else predictions

    def _outputs(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return probabilities, `[b, R + K]`, and settings on the scale [0, 1], `[b, 3]`."""
        if self._choice is None:
            certain = np.array([name == self.config.fallback.configuration for name in self.config.configurations])
            return np.tile(certain.astype(np.float64), (len(rows), 1)), np.zeros((len(rows), len(SETTINGS)))
        maps = self._maps(rows)
        probabilities = _softmax(maps @ self._choice[0] + self._choice[1])
        if self._near is not None:
            near = _softmax(maps @ self._near[0] + self._near[1])
            labelled = np.isin(self.config.described, self.config.configurations)
            share = near[:, labelled].sum(axis=1, keepdims=True)
            probabilities = np.hstack([probabilities * share, near[:, ~labelled]])
        if self._settings is None:
            return probabilities, np.zeros((len(rows), len(SETTINGS)))
        # The logistic function through tanh, because exp(-x) overflows for large negative x.
        return probabilities, 0.5 * (1.0 + np.tanh(0.5 * (maps @ self._settings[0] + self._settings[1])))

    def with_configuration(self, name: str, description: ArrayLike) -> ConfigurationAgent:
        """Return an agent that can also choose a configuration that it was never trained on, by its description.

        Args:
            name: The configuration, such as `corag(unit=passage, reranker=my-reranker)`.
            description: Vector of the description, `[d]`, made as those of the agent's own were; see `config.embedder`.

        Raises:
            AgentError: The agent knows the name already, was trained without descriptions, or the vector is none.
        """
        config = self.config
        if not config.described:
            raise AgentError(
                f"the agent was trained without descriptions, so that of {name!r} has nothing to be compared with; "
                "train it with: corag train --recipe paper"
            )
        if name in config.all_configurations:
            raise AgentError(f"the agent knows {name!r} already; it knows {', '.join(config.all_configurations)}")
        rows, single = self._rows(description)
        if not single:
            raise AgentError(f"the description must be one vector [{config.feature_dim}], got {list(rows.shape)}")
        vectors = np.vstack([self.weights[DESCRIPTIONS], rows.astype(np.float32)])
        return ConfigurationAgent(
            replace(config, described=(*config.described, name)), {**self.weights, DESCRIPTIONS: vectors}
        )

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
        if rows.ndim not in (1, 2) or (dim and rows.shape[-1] != dim):
            raise AgentError(
                f"features must have shape [{dim}] or [b, {dim}], got {list(rows.shape)}; build them with "
                f"the embedder {self.config.embedder!r} and the recipe {self.config.features}"
            )
        if not (np.abs(rows) <= np.finfo(np.float32).max).all():
            raise AgentError(
                f"features must be finite float32 values; check the output of the embedder {self.config.embedder!r}"
            )
        return np.atleast_2d(rows), rows.ndim == 1

    def _nearness(self) -> tuple[FloatArray, FloatArray]:
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
    if different := sorted(set(weights) ^ set(shapes)):
        raise AgentError(f"expected the tensors {', '.join(shapes)}; missing or unknown: {', '.join(different)}")
    for name, shape in shapes.items():
        tensor = weights[name]
        if tensor.shape != shape or tensor.dtype != np.float32 or not np.isfinite(tensor).all():
            raise AgentError(
                f"tensor {name!r} must be finite float32 of shape {shape}, got {tensor.dtype} of shape {tensor.shape}"
            )


def decide(
    config: AgentConfig, probabilities: FloatArray, unit: FloatArray, allowed: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.int64], FloatArray, NDArray[np.bool_]]:
    """Return the label, `[b]`, the search settings in natural units, `[b, 3]`, and `unsure`, `[b]`.

    Training and prediction share this rule. The most probable configuration, of equals the first in label order, comes
    with the predicted settings. If it leads the fallback by less than `config.min_lead`, the row is unsure and gets the
    fallback with its settings, if this is allowed.

    Args:
        config: Of the agent.
        probabilities: Of `config.all_configurations`, or of the labelled ones only, `[b, R]`.
        unit: Predicted settings on the scale [0, 1] of `config.ranges`, `[b, 3]`; without ranges returned as they are.
        allowed: Which configurations may be chosen, at least one, `[R]`; None for all.
    """
    if allowed is not None:
        probabilities = np.where(allowed, probabilities, -1.0)
    labels = np.asarray(probabilities.argmax(axis=1), dtype=np.int64)
    settings = unit if config.ranges is None else config.ranges.from_unit(unit)
    unsure = np.zeros(len(labels), dtype=bool)
    fallback = config.configurations.index(config.fallback.configuration)
    if config.feature_dim and config.min_lead and (allowed is None or allowed[fallback]):
        unsure = probabilities.max(axis=1) - probabilities[:, fallback] < config.min_lead
    # Without a network there is nothing but the fallback to go by.
    kept = unsure if config.feature_dim else labels == fallback
    labels[kept] = fallback
    if config.ranges is not None:
        settings[kept] = config.fallback.settings
    return labels, settings, unsure

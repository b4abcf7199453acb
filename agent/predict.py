"""The trained agent: feature vectors in, configurations out. NumPy only, so that loading needs no torch.

Letters: `b` rows, `d` features, `R` configurations.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agent.config import KEEP, MARGIN, ROOM, SETTINGS, AgentConfig, FloatArray
from agent.configuration import Configuration
from common.errors import InputError


@dataclass(frozen=True, slots=True)
class AgentPrediction:
    """The configuration for one question; `str` spells a selector.

    Attributes:
        configuration: The most probable configuration, among those available; the fallback's if `unsure`.
        iterations: Search iterations; None, like the next two, if the agent does not predict them.
        exploration: c of the paper's eq. 5.
        cost_weight: lambda: the price of 256 tokens, in units of value.
        probabilities: Probability of every configuration that the agent knows, in label order; they sum to 1.
        unsure: Whether the most probable configuration leads by less than `AgentConfig.min_lead`, so that this is the
            fallback, settings included; or, of an agent that forecasts, whether this is the fallback, as no cheaper one
            is sure enough to keep what is promised.
        keeps: Evidence that the configuration is expected to hold, as a share of the most that any holds; None, as the
            next, of an agent that does not forecast.
        spends: Share of the budget that it is expected to spend.
        novelty: How far the question is from the texts that the agent knows; see `ConfigurationAgent.novelty`.
    """

    configuration: Configuration
    iterations: int | None
    exploration: float | None
    cost_weight: float | None
    probabilities: Mapping[str, float]
    unsure: bool = False
    keeps: float | None = None
    spends: float | None = None
    novelty: float | None = None

    @property
    def unit(self) -> str | None:
        """The unit that the configuration names."""
        return self.configuration.unit

    @property
    def reranker(self) -> str | None:
        """The reranker that the configuration names."""
        return self.configuration.reranker

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

    @property
    def has_network(self) -> bool:
        """Whether predictions depend on the features."""
        return bool(self.weights)

    def predict(
        self,
        features: ArrayLike,
        available: Collection[str] | None = None,
        keep: float = KEEP,
        room: ArrayLike = 0.0,
    ) -> AgentPrediction | list[AgentPrediction]:
        """Return the configuration for each feature vector.

        Args:
            features: One vector `[d]` or several `[b, d]`, made by `config.embedder` with the recipe `config.features`.
            available: Configurations to choose from; None for all. Ties go to the first in label order.
            keep: Promise of an agent that forecasts: the share of the evidence held by the configuration that holds
                most that has to be kept, from 0 to 1. Others have no use for it, nor for the next.
            room: Passages that each budget holds, one number or `[b]`; inf where it holds all.

        Returns:
            One prediction for `[d]`, a list of `b` for `[b, d]`.

        Raises:
            InputError: The features have another dimension or are not finite, or no available configuration is known.
        """
        rows, single = self._rows(features)
        names, ranges = self.config.configurations, self.config.ranges
        allowed = np.array([available is None or name in available for name in names])
        if not allowed.any():
            raise InputError(
                f"none of the available configurations {sorted(available or ())} is known to the agent; "
                f"it knows {', '.join(names)}"
            )
        probabilities, unit = self._outputs(rows)
        labels, settings, unsure = decide(self.config, probabilities, unit, allowed)
        forecast, novelty = self.forecast(rows), self.novelty(rows)
        if forecast is not None:
            fallback = self._fallbacks(np.broadcast_to(np.asarray(room, dtype=np.float64), len(rows)))
            doubt = np.maximum(0.0, novelty - (self.config.novelty or 0.0))
            labels = cheapest(forecast, fallback, MARGIN + doubt, keep, allowed)
            unsure = labels == fallback
        predictions = []
        for number, (label, row, odds) in enumerate(zip(labels, settings.tolist(), probabilities, strict=True)):
            iterations, exploration, cost_weight = (None,) * 3 if ranges is None else (int(row[0]), *row[1:])
            known = dict(zip(names, odds.tolist(), strict=True))
            expected: tuple[float, ...] = ()
            if forecast is not None:
                held, spent = forecast[number]
                share = float(held[label] / max(held[allowed].max(), 1e-9))
                expected = (share, float(spent[label]), float(novelty[number]))
            predictions.append(
                AgentPrediction(
                    names[label], iterations, exploration, cost_weight, known, bool(unsure[number]), *expected
                )
            )
        return predictions[0] if single else predictions

    def logits(self, features: ArrayLike) -> FloatArray:
        """Return the unnormalised log-probabilities of the configurations for features `[b, d]`, `[b, R]`.

        An `InputError` says that the agent has no network; see also `predict`.
        """
        if not self.has_network:
            raise InputError(f"the agent has no network, it always names {self.config.fallback}, so it has no logits")
        return self._linear("choice", self._maps(self._rows(features)[0]))

    def forecast(self, features: ArrayLike) -> FloatArray | None:
        """Return what each configuration is expected to hold of the evidence, and to spend of the budget.

        Shares in [0, 1], `[b, 2, R]`; None of an agent that does not forecast.
        """
        if not self.has_network or self.config.novelty is None:
            return None
        logits = self._linear("forecast", self._maps(self._rows(features)[0]))
        return np.asarray(0.5 * (1.0 + np.tanh(0.5 * logits))).reshape(len(logits), 2, -1)

    def novelty(self, features: ArrayLike) -> FloatArray:
        """Return how far features `[b, d]` are from the texts that the agent knows, `[b]`; 0 if it knows of none.

        The smallest Mahalanobis distance to the mean features of a text, divided by the square root of the number of
        whitened features: Lee et al., "A Simple Unified Framework for Detecting Out-of-Distribution Samples" (2018), on
        features and not on classes.
        """
        rows, _ = self._rows(features)
        if not self.config.texts:
            return np.zeros(len(rows))
        centres = np.asarray(self.weights["novelty.centres"], dtype=np.float64)
        apart = (rows[:, None] - centres[None]) @ self._tensors["novelty.weight"]
        return np.asarray(np.sqrt(np.square(apart).mean(axis=2)).min(axis=1))

    def _fallbacks(self, room: FloatArray) -> NDArray[np.int64]:
        """Return the index of the fallback of each question, `[b]`."""
        names, config = self.config.configurations, self.config
        safe = names.index(config.fallback.configuration)
        filling = safe if config.filling is None else names.index(config.filling)
        return np.where(room >= ROOM, filling, safe)

    def _outputs(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return probabilities, `[b, R]`, and settings on the scale [0, 1], `[b, 3]`."""
        settings = np.zeros((len(rows), len(SETTINGS)))
        if not self.has_network:
            certain = np.array([name == self.config.fallback.configuration for name in self.config.configurations])
            return np.tile(certain.astype(np.float64), (len(rows), 1)), settings
        maps = self._maps(rows)
        logits = self._linear("choice", maps)
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        if self.config.ranges is not None:
            # The logistic function through tanh, because exp(-x) overflows for large negative x.
            settings = 0.5 * (1.0 + np.tanh(0.5 * self._linear("settings", maps)))
        return odds / odds.sum(axis=1, keepdims=True), settings

    def _maps(self, rows: FloatArray) -> FloatArray:
        rows = rows[:, : self.config.inputs]
        for layer in self._encoder_layers:
            rows = np.maximum(self._linear(layer, rows), 0.0)
        return rows

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
    config: AgentConfig,
    probabilities: FloatArray,
    unit: FloatArray,
    allowed: NDArray[np.bool_] | None = None,
) -> tuple[NDArray[np.int64], FloatArray, NDArray[np.bool_]]:
    """Return the label, `[b]`, the search settings in natural units, `[b, 3]`, and `unsure`, `[b]`.

    Training and prediction share this rule. The most probable configuration, of equals the first in label order, comes
    with the predicted settings. If it leads the fallback by less than `config.min_lead`, the row is unsure and gets the
    fallback with its settings, if this is allowed.

    `probabilities` are those of the configurations, `[b, R]`; `unit` the predicted settings on the scale [0, 1] of
    `config.ranges`, `[b, 3]`, without ranges returned as they are; `allowed` which configurations may be chosen, `[R]`.
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


def cheapest(
    forecast: FloatArray,
    fallback: NDArray[np.int64],
    margin: FloatArray | float,
    keep: float,
    allowed: NDArray[np.bool_] | None = None,
) -> NDArray[np.int64]:
    """Return the configuration that is expected to spend least of those that keep the promise, `[b]`.

    One keeps it if it is expected to hold at least the share `keep` of what the best one holds and, since forecasts
    are less sure than the fallback, at least that share and `margin` of what the fallback holds. The fallback always
    may be taken; if it is not `allowed`, the one that holds most replaces it.

    Args:
        forecast: Evidence held and budget spent by each configuration, shares in [0, 1], `[b, 2, R]`.
        fallback: Index of that of each question, `[b]`.
        margin: One, or one a question, `[b]`.
        keep: Share of the evidence to keep, in [0, 1].
        allowed: Which configurations may be chosen, `[R]`; all by default.
    """
    held, spent = forecast[:, 0], forecast[:, 1]
    usable = np.ones(held.shape[1], dtype=bool) if allowed is None else allowed
    held = np.where(usable, held, -np.inf)
    safe = np.where(usable[fallback], fallback, held.argmax(axis=1))
    floor = np.take_along_axis(held, safe[:, None], axis=1)[:, 0] * (keep + margin)
    keeps = (held >= keep * held.max(axis=1, keepdims=True)) & (held >= floor[:, None])
    np.put_along_axis(keeps, safe[:, None], True, axis=1)
    return np.asarray(np.where(keeps & usable, spent, np.inf).argmin(axis=1), dtype=np.int64)

"""Which configuration a question gets: kinds of questions, what each configuration is worth to each kind, and a price.

The probability of each kind weighs what is known about it, so that what counts (quality, tokens or time) can be changed
without training anything. A question that is like nothing known gets what serves all kinds best.

Letters: `b` questions, `d` features, `K` kinds, `C` configurations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from corag.errors import InputError
from corag.types import FloatArray

if TYPE_CHECKING:
    from agent import ConfigurationAgent

Preference = Literal["quality", "balanced", "tokens", "latency"]
Prefer: TypeAlias = "Preference | float"
"""What counts: a name, or the price of a whole budget of tokens in units of quality."""


@dataclass(frozen=True, slots=True)
class Prices:
    """What cost is worth, in units of quality, which is at most 1.

    Attributes:
        budget: Of a whole budget of tokens.
        second: Of a second of selection.
    """

    budget: float = 0.0
    second: float = 0.0


FREE = Prices()
LEAST_GAIN = 1e-6
"""A smaller gain is a rounding error."""
NEAREST = 1000.0
"""The sharpness at which the nearest kind alone counts."""

PRICES: Mapping[str, Prices] = {
    "quality": FREE,
    "balanced": Prices(budget=0.05, second=0.02),
    "tokens": Prices(budget=0.15),
    "latency": Prices(second=0.05),
}


def prices_of(prefer: Prefer | str | None) -> Prices:
    """Return the prices that a preference stands for; an unknown one is an `InputError`."""
    if prefer is None:
        return PRICES["quality"]
    if isinstance(prefer, str) and prefer in PRICES:
        return PRICES[prefer]
    try:
        budget = float(prefer)
    except (TypeError, ValueError):
        budget = np.nan
    if not 0 <= budget < np.inf or isinstance(prefer, bool):
        raise InputError(
            f"prefer is {prefer!r}; give {', '.join(get_args(Preference))}, or the price of a whole budget of tokens "
            "in units of quality, such as 0.1"
        )
    return Prices(budget=budget)


@dataclass(frozen=True, eq=False)
class Worth:
    """What configurations give and cost, on average.

    Attributes:
        quality: Expected quality or gain in quality, `[..., C]`.
        budget_share: Tokens over budget, likewise.
        seconds: Time of a selection, likewise.
    """

    quality: FloatArray
    budget_share: FloatArray
    seconds: FloatArray

    def utility(self, prices: Prices) -> FloatArray:
        """Return quality less costs, in the same shape."""
        worth: FloatArray = self.quality - prices.budget * self.budget_share - prices.second * self.seconds
        return worth


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of questions: name, what they are, as in "questions about privacy policies", and how many are known."""

    name: str
    about: str
    questions: int = 0


@dataclass(frozen=True, slots=True)
class Route:
    """What was decided for a question.

    Attributes:
        place: Place of the configuration, in 0 to C - 1.
        kind: Place of the most probable kind; None where there is but one.
        probability: Of that kind.
        cosine: To the centre of the nearest kind; None where nothing was compared.
        unsure: Whether the question is unlike all known ones, so that the default stands here.
        gain: Expected gain in utility over the default.
    """

    place: int
    kind: int | None = None
    probability: float = 1.0
    cosine: float | None = None
    unsure: bool = False
    gain: float = 0.0


@dataclass(frozen=True, eq=False)
class Router:
    """Kinds of questions and how to tell them apart.

    Attributes:
        kinds: The kinds.
        worth: Of each configuration to questions of each kind, `[K, C]`.
        unknown: Of each configuration to questions of no known kind, `[C]`.
        centres: Mean features of the questions of each kind, unit vectors `[K, d]`.
        sharpness: The probability of a kind is the softmax of this times the cosine to its centre.
        unsure_below: A question whose cosine to the nearest centre is lower is unlike all known ones.
        min_gain: Expected gain in utility that it takes to depart from what serves unknown questions.
        as_good: Share of the known questions of each kind on which each configuration was at least as good as the
            default, `[K, C]`; None where that is not known.
        network: Tells the probability of each kind in place of the cosines.
    """

    kinds: tuple[Kind, ...]
    worth: Worth
    unknown: Worth
    centres: FloatArray
    sharpness: float = NEAREST
    unsure_below: float = -1.0
    min_gain: float = 0.0
    as_good: FloatArray | None = None
    network: ConfigurationAgent | None = None

    def __post_init__(self) -> None:
        number, configurations = self.worth.quality.shape
        if len(self.kinds) != number or self.unknown.quality.shape != (configurations,):
            raise ValueError(f"{len(self.kinds)} kinds for worths of shape {self.worth.quality.shape}")
        if number > 1 and (self.centres.ndim != 2 or len(self.centres) != number):
            raise ValueError(f"centres of shape {self.centres.shape} for {number} kinds")
        if self.as_good is not None and self.as_good.shape != (number, configurations):
            raise ValueError(f"as_good of shape {self.as_good.shape} for {number} kinds")
        if self.network is not None and self.network.config.configurations != tuple(kind.name for kind in self.kinds):
            raise ValueError("the network knows other kinds")

    @property
    def looks(self) -> bool:
        """Whether the choice depends on the question."""
        return len(self.kinds) > 1

    def fallback(self, prices: Prices, usable: NDArray[np.bool_] | None = None) -> int:
        """Return the configuration for questions of no known kind; the first among equals."""
        return int(_allowed(self.unknown.utility(prices), usable).argmax())

    def routes(self, features: FloatArray, prices: Prices, usable: NDArray[np.bool_] | None = None) -> list[Route]:
        """Return what is decided for questions, given their features, `[b, d]`.

        `usable`, `[C]`, says which configurations can be used here; at least one.
        """
        default = self.fallback(prices, usable)
        if not self.looks:
            return [Route(default)] * len(features)
        cosines = unit_rows(features) @ self.centres.T
        probability = softmax(self.sharpness * cosines) if self.network is None else self._predicted(features)
        expected = _allowed(probability @ self.worth.utility(prices), usable)
        nearest = cosines.max(axis=1)
        unsure = nearest < self.unsure_below
        best = expected.argmax(axis=1)
        rows = np.arange(len(features))
        gain = expected[rows, best] - expected[rows, default]
        stays = unsure | (gain <= max(self.min_gain, LEAST_GAIN))
        kind = probability.argmax(axis=1)
        columns = (np.where(stays, default, best), kind, probability[rows, kind], nearest, unsure, gain * ~stays)
        return [Route(*values) for values in zip(*(column.tolist() for column in columns), strict=True)]

    def _predicted(self, features: FloatArray) -> FloatArray:
        assert self.network is not None
        predictions = self.network.predict(features)
        assert isinstance(predictions, list)
        return np.array([list(one.probabilities.values()) for one in predictions]).reshape(len(features), -1)


def unit_rows(vectors: FloatArray) -> FloatArray:
    """Return vectors `[n, d]` scaled to length 1; zeros stay."""
    rows = np.asarray(vectors, dtype=np.float64)
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12))


def softmax(logits: FloatArray) -> FloatArray:
    """Return the softmax of rows, `[n, K]`."""
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))


def _allowed(utility: FloatArray, usable: NDArray[np.bool_] | None) -> FloatArray:
    return utility if usable is None else np.where(usable, utility, -np.inf)

"""Which configuration a question gets: kinds of questions, what each configuration is worth to each kind, and a price.

The probability of each kind weighs what is known about it, so that what counts (quality, tokens or time) can be changed
without training anything. A question that is like nothing known gets what serves all kinds best.

Letters: `b` questions, `d` features, `P` known questions, `K` kinds, `C` configurations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
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


PRICES: Mapping[str, Prices] = {
    "quality": Prices(),
    "balanced": Prices(budget=0.05, second=0.02),
    "tokens": Prices(budget=0.2),
    "latency": Prices(second=0.2),
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
    """A kind of questions: its name, and what they are, as in "questions about privacy policies"."""

    name: str
    about: str


@dataclass(frozen=True, slots=True)
class Route:
    """What was decided for a question.

    Attributes:
        place: Place of the configuration, in 0 to C - 1.
        kind: The most probable kind; None where there is but one, or the question is unlike all known ones.
        probability: Of that kind.
        alike: How many of the nearest known questions are of that kind.
        neighbours: Number of nearest known questions that were looked at.
        similarity: Mean cosine to these; None where nothing was compared.
        unsure: Whether the question is unlike all known ones, so that the default stands here.
        gain: Expected gain in utility over the default.
    """

    place: int
    kind: Kind | None = None
    probability: float = 1.0
    alike: int = 0
    neighbours: int = 0
    similarity: float | None = None
    unsure: bool = False
    gain: float = 0.0


@dataclass(frozen=True, eq=False)
class Router:
    """Kinds of questions and how to tell them apart.

    Attributes:
        kinds: The kinds.
        worth: Of each configuration to questions of each kind, `[K, C]`.
        unknown: Of each configuration to questions of no known kind, `[C]`.
        points: Features of known questions, or of the centres of kinds, unit vectors `[P, d]`.
        kind_of: Kind of each, `[P]`.
        neighbours: Number of nearest points that are looked at.
        unsure_below: A question whose mean cosine to these is lower is unlike all known ones.
        min_gain: Expected gain in utility that it takes to depart from what serves unknown questions.
        network: Tells the probability of each kind; without one it is the share of the nearest points.
    """

    kinds: tuple[Kind, ...]
    worth: Worth
    unknown: Worth
    points: FloatArray
    kind_of: NDArray[np.int64]
    neighbours: int = 1
    unsure_below: float = -1.0
    min_gain: float = 0.0
    network: ConfigurationAgent | None = None

    def __post_init__(self) -> None:
        number, configurations = self.worth.quality.shape
        if len(self.kinds) != number or self.unknown.quality.shape != (configurations,):
            raise ValueError(f"{len(self.kinds)} kinds for worths of shape {self.worth.quality.shape}")
        if number > 1 and (
            self.points.ndim != 2 or not len(self.points) or len(self.points) != len(self.kind_of)
            or not 0 <= self.kind_of.min() <= self.kind_of.max() < number
        ):  # fmt: skip
            raise ValueError(f"points of shape {self.points.shape} for {number} kinds")
        if not self.neighbours >= 1:
            raise ValueError(f"neighbours is {self.neighbours}, below 1")
        if self.network is not None and self.network.config.rerankers != tuple(kind.name for kind in self.kinds):
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
        near, similarity = self._near(features)
        shares = self._shares(near)
        probability = shares if self.network is None else self._predicted(features)
        utility = _allowed(self.worth.utility(prices), usable)
        expected = probability @ np.where(np.isfinite(utility), utility, -1e9)
        found = []
        for row in range(len(features)):
            kind = int(probability[row].argmax())
            if similarity[row] < self.unsure_below:
                found.append(Route(default, neighbours=near.shape[1], similarity=float(similarity[row]), unsure=True))
                continue
            best = int(expected[row].argmax())
            gain = float(expected[row, best] - expected[row, default])
            if gain <= self.min_gain:
                best, gain = default, 0.0
            found.append(
                Route(
                    best,
                    self.kinds[kind],
                    float(probability[row, kind]),
                    int((self.kind_of[near[row]] == kind).sum()),
                    near.shape[1],
                    float(similarity[row]),
                    gain=gain,
                )
            )
        return found

    def _near(self, features: FloatArray) -> tuple[NDArray[np.int64], FloatArray]:
        """Return the places of the nearest points, `[b, k]`, and the mean cosine to them, `[b]`."""
        cosines = unit_rows(features) @ self.points.T
        near = np.argsort(-cosines, axis=1, kind="stable")[:, : self.neighbours]
        return near, np.take_along_axis(cosines, near, axis=1).mean(axis=1)

    def _shares(self, near: NDArray[np.int64]) -> FloatArray:
        kinds = self.kind_of[near]
        return np.stack([(kinds == kind).mean(axis=1) for kind in range(len(self.kinds))], axis=1)

    def _predicted(self, features: FloatArray) -> FloatArray:
        assert self.network is not None
        predictions = self.network.predict(features)
        assert isinstance(predictions, list)
        return np.array([list(one.probabilities.values()) for one in predictions])

    @cached_property
    def feature_dim(self) -> int:
        """Length of a feature vector."""
        return int(self.points.shape[1])


def unit_rows(vectors: FloatArray) -> FloatArray:
    """Return vectors `[n, d]` scaled to length 1; zeros stay."""
    rows = np.asarray(vectors, dtype=np.float64)
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12))


def _allowed(utility: FloatArray, usable: NDArray[np.bool_] | None) -> FloatArray:
    return utility if usable is None else np.where(usable, utility, -np.inf)

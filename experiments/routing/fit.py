"""A router fitted to labels over kinds.

What a configuration is worth to a kind is shrunk towards what it is worth to all of them, so that a kind with few
questions departs from the default only for a large gain. A network tells the kinds apart: the encoder of the Siamese
agent, whose positive pairs are questions of one kind, with a kind in the place of a reranker.

Letters: `n` questions, `K` kinds, `C` configurations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

import agent
from corag.checks import check_choice, check_range
from corag.errors import InputError
from corag.selectors.corag.features import check_recipe
from corag.selectors.corag.routing import Kind, Router, Worth, softmax, unit_rows
from corag.types import FloatArray
from experiments.data.config import comma_separated
from experiments.data.splits import divide
from experiments.routing.arrays import KindLabels
from experiments.tune.shrinkage import Prior, estimate, prior_of

Tells = Literal["centres", "network"]
FOLDS = 5
SHARPNESS = (5.0, 10.0, 20.0, 30.0, 40.0, 60.0, 80.0)
UNSETTLED = agent.Ranges((1, 1), (0.0, 0.0), (0.0, 0.0))
"""Kinds have no settings to predict."""


@dataclass(frozen=True)
class RouterSettings:
    """How a router is fitted.

    Attributes:
        features: Parts of the feature vector, separated by commas: query, candidates.
        tells: What tells kinds apart: the cosines to their centres, or a network.
        unsure: Share of the questions of known kinds that count as unlike all known ones.
        min_gain: Expected gain in quality that it takes to depart from the default.
        training: Settings of the network's training.
    """

    features: str = "query,candidates"
    tells: Tells = "centres"
    unsure: float = 0.2
    min_gain: float = 0.02
    training: agent.TrainConfig = field(
        default_factory=lambda: agent.TrainConfig(
            epochs=20, settings_weight=0.0, standardize=True, keep="last", accelerator="cpu", logger="none"
        )
    )

    def __post_init__(self) -> None:
        check_choice("tells", self.tells, Tells)
        check_range("unsure", self.unsure, 0, 1, "0.2 is usual")
        check_range("min_gain", self.min_gain, 0, 1, "0 follows every expected gain")
        if "curve" in self.parts:
            raise InputError("features has 'curve', which would tell data sets apart by numbers of candidates; drop it")

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of the feature vector."""
        return check_recipe(comma_separated(self.features))


def fit_kinds(
    labels: KindLabels, settings: RouterSettings, folder: Path, about: Mapping[str, str] | None = None
) -> Router:
    """Return a router fitted to questions.

    Args:
        labels: The questions.
        settings: How.
        folder: For the network's training, which goes on there when it was interrupted.
        about: What the questions of each kind are, as in "questions about privacy policies".
    """
    names = labels.kind_names
    kind_of = np.array([names.index(kind) for kind in labels.kinds.tolist()], dtype=np.int64)
    worth, unknown = worths(labels)
    features = unit_rows(labels.features(settings.parts))
    sizes = np.bincount(kind_of).tolist()
    kinds = tuple(
        Kind(name, (about or {}).get(name, f"questions of {name}"), size)
        for name, size in zip(names, sizes, strict=True)
    )
    cosines = _held_out_cosines(features, kind_of, labels.groups)
    # What is as good as the default by a rounding error is as good.
    as_good = labels.quality >= labels.quality[:, [int(unknown.quality.argmax())]] - 1e-6
    return Router(
        kinds,
        worth,
        unknown,
        centres_of(features, kind_of),
        best_sharpness(cosines, kind_of),
        float(np.quantile(cosines.max(axis=1), settings.unsure)),
        settings.min_gain,
        np.stack([as_good[kind_of == place].mean(axis=0) for place in range(len(names))]),
        fit_network(labels, kind_of, names, settings, folder) if settings.tells == "network" else None,
    )


def centres_of(features: FloatArray, kind_of: NDArray[np.int64]) -> FloatArray:
    """Return the mean features of each kind, given unit vectors, `[n, d]`: unit vectors `[K, d]`."""
    return unit_rows(np.stack([features[kind_of == place].mean(axis=0) for place in range(kind_of.max() + 1)]))


def _held_out_cosines(features: FloatArray, kind_of: NDArray[np.int64], groups: NDArray[np.str_]) -> FloatArray:
    """Return the cosine of each question to the centres, `[n, K]`, that others make: of other documents."""
    folds = divide(kind_of.astype(str), groups, [1.0] * FOLDS, 0)
    found = np.zeros((len(features), kind_of.max() + 1))
    for fold in np.unique(folds):
        inside, outside = folds != fold, folds == fold
        # A kind of one document has no other ones.
        rows = inside | ~np.isin(kind_of, kind_of[inside])
        found[outside] = features[outside] @ centres_of(features[rows], kind_of[rows]).T
    return found


def best_sharpness(cosines: FloatArray, kind_of: NDArray[np.int64]) -> float:
    """Return the sharpness under which the kinds of held-out questions are most probable, each kind weighing alike."""
    weight = 1 / np.bincount(kind_of)[kind_of]
    rows = np.arange(len(kind_of))
    losses = [-(weight * np.log(softmax(one * cosines)[rows, kind_of] + 1e-12)).sum() for one in SHARPNESS]
    return SHARPNESS[int(np.argmin(losses))]


def worths(labels: KindLabels) -> tuple[Worth, Worth]:
    """Return what configurations are worth to each kind, `[K, C]`, and to a kind that nobody has seen, `[C]`.

    Quality is the gain over the default, shrunk towards the mean over kinds, each weighing about alike.
    """
    gains = labels.quality - labels.quality[:, :1]
    rows = {kind: labels.kinds == kind for kind in labels.kind_names}
    quality = np.zeros((len(rows), len(labels.names)))
    means = np.zeros(len(labels.names))
    for column in range(1, len(labels.names)):
        prior: Prior = prior_of({kind: gains[of_kind, column] for kind, of_kind in rows.items()})
        means[column] = prior.mean
        for place, of_kind in enumerate(rows.values()):
            found = estimate(gains[of_kind, column], labels.groups[of_kind].tolist(), prior)
            quality[place, column] = found.posterior
    share = labels.measured.budget_share
    shares = np.stack([share[of_kind].mean(axis=0) for of_kind in rows.values()])
    seconds = np.broadcast_to(labels.seconds, shares.shape)
    return Worth(quality, shares, seconds), Worth(means, shares.mean(axis=0), labels.seconds)


def fit_network(
    labels: KindLabels, kind_of: NDArray[np.int64], names: tuple[str, ...], settings: RouterSettings, folder: Path
) -> agent.ConfigurationAgent:
    """Return a network that tells kinds apart; each kind weighs alike."""
    features = labels.features(settings.parts).astype(np.float32)
    sizes = np.bincount(kind_of, minlength=len(names))
    table = agent.TrainingTable(
        features=features,
        reranker=kind_of,
        settings=np.tile(np.array([1, 0, 0], dtype=np.float32), (len(labels), 1)),
        weight=(len(labels) / (len(names) * sizes[kind_of])).astype(np.float32),
        quality=None,
        ids=tuple(f"{kind}/{row}" for row, kind in enumerate(labels.kinds.tolist())),
    )
    config = agent.AgentConfig(
        feature_dim=features.shape[1],
        rerankers=names,
        ranges=UNSETTLED,
        embedder=labels.embedder,
        features=settings.parts,
    )
    facts = {"classes": "kinds of questions, in the place of rerankers"}
    return agent.fit(table, None, config, settings.training, folder, facts=facts).agent


def taken(values: FloatArray, places: NDArray[np.int64]) -> FloatArray:
    """Return one column of each row, `[n]`."""
    return np.asarray(values[np.arange(len(values)), places])

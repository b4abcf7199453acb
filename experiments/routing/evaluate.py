"""What a router gains on questions that took no part: held-out documents, kinds left out, and the choosing questions.

Letters: `n` questions, `C` configurations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corag.cli.console import progress
from corag.selectors.corag.routing import FREE
from corag.types import FloatArray
from experiments.data.splits import divide
from experiments.protocol.leads import Lead, lead
from experiments.routing.arrays import KindLabels
from experiments.routing.fit import FOLDS, RouterSettings, fit_kinds, taken
from experiments.tune.dial import DialPoint, point, settings_of_dial

Places = NDArray[np.int64]
ARRAYS = ("router", "fixed", "known", "told", "unsure")
PROTOCOLS = {
    "documents": "training questions, in five folds by document",
    "kinds": "training questions, each kind in turn by a router that learned from the others",
    "choosing": "choosing questions, by a router that learned from the training questions",
}


@dataclass(frozen=True, eq=False)
class Held:
    """Questions that took no part in a choice, and what was chosen for them.

    Attributes:
        labels: The questions, `n`.
        router: Place of the configuration that the router chose, `[n]`.
        fixed: Of the best single configuration on the questions that the router learned from, each kind weighing about
            alike: what the router falls back to.
        known: Of what the router would have chosen if it had been told the kind.
        told: Whether the router took the most probable kind for the right one, `[n]`.
        unsure: Whether it kept to the default because the question was unlike all it knew, `[n]`.
        dial: What it chose at each price, by name of the preference.
    """

    labels: KindLabels
    router: Places
    fixed: Places
    known: Places
    told: NDArray[np.bool_]
    unsure: NDArray[np.bool_]
    dial: dict[str, Places]

    def gain(self, places: Places, over: Places | None = None, values: FloatArray | None = None) -> FloatArray:
        """Return the difference in quality, or in `values` `[n, C]`, from the best single configuration, `[n]`."""
        values = self.labels.quality if values is None else values
        return taken(values, places) - taken(values, self.fixed if over is None else over)

    def lead(self, places: Places | None = None, kind: str | None = None) -> Lead:
        """Return the lead of the router, or of other choices, over the best single configuration."""
        rows = np.ones(len(self.labels), dtype=bool) if kind is None else self.labels.kinds == kind
        return lead(self.gain(self.router if places is None else places)[rows], self.labels.groups[rows].tolist())

    def by_kinds(self, differences: FloatArray) -> float:
        """Return the mean over kinds of differences, `[n]`, each kind weighing alike."""
        kinds = self.labels.kinds
        return float(np.mean([differences[kinds == kind].mean() for kind in self.labels.kind_names]))

    def means(self, places: Places) -> dict[str, float]:
        """Return the mean figures of choices, where questions have them."""
        found = {name: taken(values, places) for name, values in self.labels.figures.items()}
        seconds = float(self.labels.seconds[places].mean())
        means = {name: float(np.nanmean(values)) for name, values in found.items() if np.isfinite(values).any()}
        return {"quality": float(taken(self.labels.quality, places).mean()), **means, "seconds": seconds}

    def curve(self) -> list[DialPoint]:
        """Return quality, tokens and time at each price."""
        return [point(name, settings_of_dial()[name], self.labels.measured, at) for name, at in self.dial.items()]


def evaluate(labels: KindLabels, settings: RouterSettings, folder: Path, *, quiet: bool = False) -> dict[str, Held]:
    """Return what was chosen under each protocol; trainings go on in `folder` where they were interrupted."""
    jobs = list(_jobs(labels))
    pieces: dict[str, list[Held]] = {}
    with progress("evaluate", quiet=quiet) as report:
        for number, (protocol, name, inside, outside) in enumerate(jobs, start=1):
            found = held(labels.of(inside), labels.of(outside), settings, folder / protocol / name)
            pieces.setdefault(protocol, []).append(found)
            report(number, len(jobs))
    return {protocol: joined(found) for protocol, found in pieces.items()}


def held(known: KindLabels, asked: KindLabels, settings: RouterSettings, folder: Path) -> Held:
    """Return what a router that learned from `known` chooses for the questions `asked`."""
    router = fit_kinds(known, settings, folder)
    features = asked.features(settings.parts)
    routes = router.routes(features, FREE)
    names = [kind.name for kind in router.kinds]
    of_kind = router.worth.utility(FREE).argmax(axis=1)
    default = router.fallback(FREE)
    return Held(
        asked,
        np.array([route.place for route in routes], dtype=np.int64),
        np.full(len(asked), default, dtype=np.int64),
        np.array([of_kind[names.index(kind)] if kind in names else default for kind in asked.kinds.tolist()]),
        np.array(
            [
                route.kind is not None and names[route.kind] == kind
                for route, kind in zip(routes, asked.kinds, strict=True)
            ]
        ),
        np.array([route.unsure for route in routes]),
        {
            name: np.array([route.place for route in router.routes(features, prices)], dtype=np.int64)
            for name, prices in settings_of_dial().items()
        },
    )


def joined(pieces: Sequence[Held]) -> Held:
    """Return the pieces of a protocol as one."""
    arrays = {name: np.concatenate([getattr(one, name) for one in pieces]) for name in ARRAYS}
    dial = {name: np.concatenate([one.dial[name] for one in pieces]) for name in pieces[0].dial}
    return Held(KindLabels.joined([one.labels for one in pieces]), **arrays, dial=dial)


def _jobs(labels: KindLabels) -> Iterator[tuple[str, str, Places, Places]]:
    """Yield protocol, name, and the places of the questions that are learned from and asked."""
    training, choosing = np.flatnonzero(labels.parts == "training"), np.flatnonzero(labels.parts == "choosing")
    kinds, groups = labels.kinds[training], labels.groups[training]
    folds = divide(kinds, groups, [1.0] * FOLDS, 0)
    for fold in np.unique(folds):
        yield "documents", str(fold), training[folds != fold], training[folds == fold]
    for kind in dict.fromkeys(kinds.tolist()):
        yield "kinds", kind, training[kinds != kind], training[kinds == kind]
    if len(choosing):
        yield "choosing", "all", training, choosing


def ceiling(held_: Held) -> float:
    """Return the mean gain of an oracle that picks the best configuration of each question, noise included."""
    return float((held_.labels.quality.max(axis=1) - taken(held_.labels.quality, held_.fixed)).mean())

"""What tuning on one's own questions gains, by their number: each kind in turn is somebody's own data.

`python -m experiments.tune.curve --out runs/curve` reads the labels over kinds. For each kind, so many of its questions
are drawn, by documents; the priors come from the other kinds; the configuration that `corag tune` would choose is
measured on the questions that were not drawn. A question's gain is its mean over the draws that left it out.

Letters: `n` questions of a kind, `C` configurations.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from corag.checks import check_choice, check_count
from corag.cli.console import progress, say
from corag.errors import DataError, InputError
from corag.text.visible import to_json
from experiments.data.config import comma_separated
from experiments.protocol.alone import run_alone
from experiments.protocol.leads import Answer, Lead, Quality, lead
from experiments.run.journal import output_file, write_atomically
from experiments.tune.choose import Labelled, best, estimates, labelled, priors
from experiments.tune.configurations import DEFAULT
from experiments.tune.shrinkage import Prior
from experiments.tune.sweep import Labels
from experiments.tune.table import SHIPPED, LabelRow, read_labels

Apart = Literal["documents", "questions"]
LEAST_TEST = 15
"""Fewer questions left for testing say nothing."""


@dataclass(frozen=True)
class CurveConfig:
    """Measure what tuning gains by the number of questions, on labels over kinds.

    Attributes:
        out: File for the figures (JSON).
        labels: Table of labels over kinds.
        only: Names of kinds, separated by commas; by default all.
        sizes: Numbers of own questions.
        draws: Draws of each number.
        apart: What own questions and those for testing do not share: documents, as where new documents come, or nothing
            but themselves (questions), as where people go on asking about the same ones.
        answer: Figure of the answer: f1 or rougeL.
        evidence_weight: Weight of evidence recall in the quality.
        seed: Seed of the draws.
    """

    out: str
    labels: str = str(SHIPPED)
    only: str | None = None
    sizes: list[int] = field(default_factory=lambda: [30, 60, 150, 300])
    draws: int = 100
    apart: Apart = "documents"
    answer: Answer = "f1"
    evidence_weight: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.sizes:
            raise InputError("sizes is empty; give numbers of questions, such as [30, 60, 150]")
        for number in self.sizes:
            check_count("sizes", number, "60 is usual", least=1)
        check_count("draws", self.draws, "100 is usual", least=1)
        check_choice("apart", self.apart, Apart)


@dataclass(frozen=True)
class Point:
    """What so many own questions of a kind gain.

    Attributes:
        kind: The kind.
        questions: Number of own questions.
        default: Mean quality of the default on the questions for testing.
        lead: Gain over it.
        chosen: How often each configuration was chosen.
    """

    kind: str
    questions: int
    default: float
    lead: Lead
    chosen: Mapping[str, int]


def kinds_of(rows: Sequence[LabelRow], quality: Quality) -> dict[str, Labelled]:
    """Return the questions of each kind under the configurations that all of its questions have, the default first."""
    found: dict[str, dict[str, list[LabelRow]]] = {}
    for row in rows:
        found.setdefault(row["kind"], {}).setdefault(row["query"], []).append(row)
    kinds = {}
    for kind, of_query in found.items():
        labels: list[Labels] = [{row["configuration"]: row for row in of_one} for of_one in of_query.values()]  # type: ignore[misc]
        shared = [name for name in labels[0] if all(name in one for one in labels)]
        if DEFAULT not in shared:
            raise DataError(f"the labels of kind {kind!r} lack {DEFAULT!r} on some question; label with it")
        names = [DEFAULT, *(name for name in shared if name != DEFAULT)]
        groups = [of_one[0]["group"] for of_one in of_query.values()]
        kinds[kind] = labelled(names, labels, groups, np.zeros((len(labels), 1)), quality)
    return kinds


def curve(kind: str, questions: Labelled, others: Sequence[LabelRow], config: CurveConfig) -> list[Point]:
    """Return a point for each number of own questions that leaves enough for testing."""
    known = priors(others, questions.names, DEFAULT, Quality(config.answer, config.evidence_weight))
    random = np.random.default_rng(config.seed)
    return [
        point for size in config.sizes if (point := _point(kind, questions, known, size, config, random)) is not None
    ]


def _point(
    kind: str,
    questions: Labelled,
    known: Mapping[str, Prior],
    size: int,
    config: CurveConfig,
    random: np.random.Generator,
) -> Point | None:
    """Return what so many own questions gain; None where too few are left for testing in every draw."""
    number = len(questions.groups)
    groups = questions.groups if config.apart == "documents" else np.arange(number).astype(str)
    gains, times = np.zeros(number), np.zeros(number)
    chosen: Counter[str] = Counter()
    for _ in range(config.draws):
        own, test = divided(groups, size, random)
        if len(own) < size or len(test) < LEAST_TEST:
            continue
        part = questions.rows(own)
        name = part.names[best(part.worth(estimates(part, known)))]
        chosen[name] += 1
        if name != DEFAULT:
            gains[test] += questions.gains(name)[test]
        times[test] += 1
    tested = times > 0
    if not tested.any():
        return None
    gain = lead(gains[tested] / times[tested], groups[tested].tolist(), seed=config.seed)
    return Point(kind, size, float(questions.qualities[tested, 0].mean()), gain, dict(chosen.most_common()))


def divided(
    groups: NDArray[np.str_], size: int, random: np.random.Generator
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows of at most `size` own questions, and of the questions that share no document with them.

    Whole groups, in random order, are put aside until they hold `size` questions; these are drawn from them.
    """
    names, place = np.unique(groups, return_inverse=True)
    order = random.permutation(len(names))
    sizes = np.bincount(place)[order].cumsum()
    aside = np.isin(place, order[: int(np.searchsorted(sizes, size)) + 1])
    inside = random.permutation(np.flatnonzero(aside))[:size]
    return np.sort(inside), np.flatnonzero(~aside)


def report(points: Sequence[Point]) -> str:
    """Return the figures as a Markdown table."""
    header = ["kind", "own", "tested, groups", "default", "gain", "of it", "p", "chosen most"]
    lines = [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header))]
    for point in points:
        one = point.lead
        name, times = next(iter(point.chosen.items()))
        interval = f"{one.mean:+.3f} ({one.low:+.3f} to {one.high:+.3f})"
        share = f"{one.mean / point.default:+.0%}" if point.default else "-"
        often = f"`{name}`, {times} of {sum(point.chosen.values())}"
        tested, default = f"{one.questions}, {one.groups}", f"{point.default:.3f}"
        cells = [point.kind, str(point.questions), tested, default, interval, share, f"{one.p:.3f}", often]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def measure(config: CurveConfig) -> list[Point]:
    """Measure all kinds, write the figures, and print the table."""
    out = output_file(config.out, b"[")
    rows = read_labels(config.labels)
    kinds = kinds_of(rows, Quality(config.answer, config.evidence_weight))
    wanted = comma_separated(config.only) or list(kinds)
    if unknown := [name for name in wanted if name not in kinds]:
        raise InputError(f"kind {unknown[0]!r} has no labels; the kinds are {', '.join(kinds)}")
    points: list[Point] = []
    with progress("kinds") as told:
        for number, name in enumerate(wanted, start=1):
            points += curve(name, kinds[name], [row for row in rows if row["kind"] != name], config)
            told(number, len(wanted))
    if not points:
        raise DataError(f"no kind of {config.labels} has {min(config.sizes) + LEAST_TEST} questions; ask for fewer")
    write_atomically(out, to_json([asdict(point) for point in points], indent=2) + "\n")
    say(report(points))
    return points


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; return the exit status."""
    return run_alone(CurveConfig, measure, arguments)


if __name__ == "__main__":
    sys.exit(main())

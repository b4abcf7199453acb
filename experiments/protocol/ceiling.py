"""How much of an oracle's gap is the reader's luck: configurations chosen by one reader's answers, read by another.

`python -m experiments.tune.label --reader OTHER --out second.parquet` measures the other reader, and
`python -m experiments.protocol.ceiling --second second.parquet` compares. No router can gain more than what is kept.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from corag.cli.console import say
from corag.errors import DataError
from experiments.agents.figures import gap_interval
from experiments.protocol.alone import run_alone
from experiments.protocol.leads import Answer, Lead, Quality, lead
from experiments.tune.table import SHIPPED, LabelRow, read_labels


@dataclass(frozen=True)
class CeilingConfig:
    """Say how much of the best configuration's lead on each question survives another reader.

    Attributes:
        second: Table of labels by the other reader; its questions and configurations may be fewer.
        labels: Table of labels by the first reader.
        default: Configuration that the best is compared with.
        answer: Figure of the answer that counts: f1 or rougeL.
        evidence_weight: Weight of evidence recall in the quality.
    """

    second: str
    labels: str = str(SHIPPED)
    default: str = "corag"
    answer: Answer = "f1"
    evidence_weight: float = 0.5


@dataclass(frozen=True)
class Ceiling:
    """What choosing for each question by its own labels gains.

    Attributes:
        gap: Lead over the default by the answers that the choice was made by.
        kept: Lead of the same choice by the other reader's answers.
        share: What is kept of the gap.
        low: Lower end of the share's 95% interval, over resampled groups.
        high: Upper end.
    """

    gap: Lead
    kept: Lead
    share: float
    low: float
    high: float


def ceiling(first: Sequence[LabelRow], second: Sequence[LabelRow], quality: Quality, default: str) -> Ceiling:
    """Return what is kept of an oracle's gap; where several configurations are best, the default or their mean counts.

    Raises:
        DataError: The tables share no question that was measured with the default and another configuration, or the
            oracle has no gap.
    """
    one, other = _by_question(first, quality), _by_question(second, quality)
    gaps, kept, groups = [], [], []
    for question in one.keys() & other.keys():
        names = one[question].keys() & other[question].keys()
        if default not in names or len(names) < 2:
            continue
        best = max(one[question][name] for name in names)
        chosen = [name for name in names if one[question][name] == best]
        chosen = [default] if default in chosen else chosen
        gaps.append(best - one[question][default])
        kept.append(np.mean([other[question][name] for name in chosen]) - other[question][default])
        groups.append(question[:2])
    if not sum(gaps):
        raise DataError(
            f"the tables share no question on which another configuration beats {default!r}; label the same questions "
            "and configurations with both readers"
        )
    places = [" ".join(group) for group in groups]
    low, high = gap_interval(np.array(kept), np.array(gaps), np.unique(places, return_inverse=True)[1], 0)
    share = float(np.sum(kept) / np.sum(gaps))
    return Ceiling(lead(np.array(gaps), places), lead(np.array(kept), places), share, low, high)


def _by_question(rows: Sequence[LabelRow], quality: Quality) -> Mapping[tuple[str, str, str], Mapping[str, float]]:
    """Return the quality of each configuration by kind, group and question."""
    found: dict[tuple[str, str, str], dict[str, float]] = {}
    for row in rows:
        if (value := quality.of(row)) is not None:
            found.setdefault((row["kind"], row["group"], row["query"]), {})[row["configuration"]] = value
    return found


def _report(config: CeilingConfig) -> None:
    quality = Quality(config.answer, config.evidence_weight)
    found = ceiling(read_labels(config.labels), read_labels(config.second), quality, config.default)
    say(f"best of each question over {config.default}, by the reader that it is chosen by: {found.gap}")
    say(f"the same choice, by the other reader: {found.kept}")
    say(f"kept: {found.share:.0%} ({found.low:.0%} to {found.high:.0%})")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; return the exit status."""
    return run_alone(CeilingConfig, _report, arguments)


if __name__ == "__main__":
    sys.exit(main())

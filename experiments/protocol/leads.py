"""Paired leads over groups of questions that share documents: interval, p, and what lead could have been seen.

Letters: `n` questions. A group counts as a whole, because answers from one document are wrong together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from corag.errors import InputError
from corag.types import FloatArray
from experiments.agents.figures import gap_interval, sign_flip_p

POWER = 1.96 + 0.84
"""Standard errors that a lead must be for four runs in five to find it at p < .05 (two-sided)."""

Answer = Literal["f1", "rougeL"]


@dataclass(frozen=True)
class Quality:
    """One figure for how well a configuration serves a question.

    Attributes:
        answer: Figure of the answer.
        evidence_weight: Weight of evidence recall, from 0 to 1; the answer has the rest. Where a question has only one
            of both, that one counts alone.
    """

    answer: Answer = "f1"
    evidence_weight: float = 0.5

    def __post_init__(self) -> None:
        if self.answer not in ("f1", "rougeL"):
            raise InputError(f"answer is {self.answer!r}; it must be f1 or rougeL")
        if not 0 <= self.evidence_weight <= 1:
            raise InputError(f"evidence_weight is a share from 0 to 1, got {self.evidence_weight}")

    def of(self, figures: Mapping[str, float]) -> float | None:
        """Return the quality that figures of a selection make, in [0, 1]; None where there is neither of both.

        A selection that failed is worth 0.
        """
        if figures.get("failed"):
            return 0.0
        weighted = {self.answer: 1 - self.evidence_weight, "evidence_recall": self.evidence_weight}
        known = {name: weight for name, weight in weighted.items() if name in figures}
        total = sum(known.values())
        return sum(weight * figures[name] for name, weight in known.items()) / total if total else None


@dataclass(frozen=True)
class Lead:
    """A mean difference of pairs.

    Attributes:
        mean: The mean.
        low: Lower end of its 95% interval, over resampled groups.
        high: Upper end.
        p: Two-sided, of a sign flip over groups.
        questions: Number of pairs.
        groups: Number of groups.
        visible: The smallest lead that four runs in five would find at p < .05.
    """

    mean: float
    low: float
    high: float
    p: float
    questions: int
    groups: int
    visible: float

    def __str__(self) -> str:
        return f"{self.mean:+.3f} ({self.low:+.3f} to {self.high:+.3f}, p {self.p:.3f}, {self.questions} questions)"


def lead(differences: FloatArray, groups: Sequence[str], *, seed: int = 0) -> Lead:
    """Return the lead that paired differences, `[n]`, show; `groups`, `[n]`, name the group of each.

    Raises:
        InputError: There is no difference.
    """
    if not len(differences):
        raise InputError("no question has figures of both configurations; give questions with answers or gold")
    _, place = np.unique(np.array(groups, dtype=str), return_inverse=True)
    mean = float(differences.mean())
    low, high = gap_interval(differences, np.ones(len(differences)), place, seed)
    p = sign_flip_p(differences, place, seed)
    spread = standard_error(differences, groups)
    return Lead(mean, low, high, p, len(differences), len(set(groups)), POWER * spread)


def standard_error(differences: FloatArray, groups: Sequence[str]) -> float:
    """Return the standard error of the mean of differences, `[n]`, that go together in `groups`, `[n]`."""
    _, place = np.unique(np.array(groups, dtype=str), return_inverse=True)
    sums = np.bincount(place, weights=differences - differences.mean())
    # One group more than there are degrees of freedom.
    spread = len(sums) / max(1, len(sums) - 1)
    return float(np.sqrt(spread * np.square(sums).sum()) / len(differences))


def visible_lead(differences: FloatArray, groups: Sequence[str], questions: int) -> float:
    """Return the smallest lead that so many questions like these would show in four of five runs at p < .05."""
    return POWER * standard_error(differences, groups) * float(np.sqrt(len(differences) / questions))

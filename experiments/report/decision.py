"""What a comparison says for a decision: which method, what limits the answers, whether there are enough questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, log10

from experiments.report.difference import Difference
from experiments.report.measures import Row

SMALL = 0.05
"""A loss that counts as none, and the gain that enough questions would show."""
POWER = 1.96 + 0.84
"""Standard errors that a difference must be for four comparisons of five to show it at p < .05 (two-sided)."""
SAME_TOKENS = 0.05
"""Smaller relative differences in tokens are not mentioned."""
MOST_SHORTFALL = 0.1
"""Up to this mean shortfall nothing limits the answers."""
NEARLY_SPENT = 0.8
"""The share of a budget from which more of it is worth a try."""
FEWEST = 30
"""Fewer questions do not show that two methods are alike: none of them may be one on which they differ."""


@dataclass(frozen=True)
class Contest:
    """Two methods on the same questions: how much more quality ours has, and the mean tokens of both.

    `what` is what quality is of, answers or evidence; `title` is that of the measure. `lost` has the parts of quality
    of which ours has significantly less, and how much: nobody is told to use what loses one of them.
    """

    ours: str
    theirs: str
    gain: Difference
    tokens: tuple[float, float]
    what: str = "answers"
    title: str = "F1"
    lost: Mapping[str, float] = field(default_factory=dict)

    @property
    def outcome(self) -> str:
        """`Better` or `Worse` if significant, `The same` if a loss of `SMALL` can be excluded, else `Unclear`.

        `Mixed` if quality is not worse, but a part of it is.
        """
        if self.lost and not (self.gain.is_certain and self.gain.mean < 0):
            return "Mixed"
        if self.gain.is_certain:
            return "Better" if self.gain.mean > 0 else "Worse"
        return "The same" if self.gain.low > -SMALL and self.gain.n >= FEWEST else "Unclear"

    @property
    def saving(self) -> float:
        """The share of their tokens that ours does without; negative if it takes more, 0 if about as many."""
        ours, theirs = self.tokens
        share = 1 - ours / theirs if theirs else 0.0
        return share if abs(share) >= SAME_TOKENS else 0.0

    @property
    def in_tokens(self) -> str:
        """The difference in tokens in words, such as `46% fewer tokens than top-k`."""
        if not self.saving:
            return f"as many tokens as {self.theirs}"
        return f"{abs(self.saving):.0%} {'fewer' if self.saving > 0 else 'more'} tokens than {self.theirs}"

    def decision(self, advice: str = "") -> list[str]:
        """Return the decision in a sentence, and whether there are enough questions in another one.

        `advice` is what to do, if more than quality decides that.
        """
        advice = f": {advice}" if advice else ""
        if self.outcome == "Mixed":
            parts = {self.title: self.gain.mean, **self.lost}
            changes = ", ".join(f"{title} {change:+.3f}" for title, change in parts.items())
            return [f"**Mixed {self.what}** with {self.in_tokens}: {changes}{advice}."]
        if self.outcome == "Unclear":
            between = f"{self.what} between {self.ours} and {self.theirs}, with {self.in_tokens}"
            return [f"**No clear difference** in {between}{advice}.", *self._too_few()]
        better = self.gain.mean if self.outcome != "The same" else self.saving
        if better and not advice:
            advice = f": use {self.ours if better > 0 else self.theirs}"
        return [f"**{self.outcome} {self.what}** with {self.in_tokens}{advice}."]

    @property
    def detectable(self) -> float:
        """Smallest detectable difference with this many questions (80% power)."""
        return POWER * (self.gain.high - self.gain.low) / 2 / 1.96

    def _too_few(self) -> list[str]:
        needed = max(FEWEST, self.gain.n * (self.detectable / SMALL) ** 2)
        if needed <= self.gain.n:
            return []
        step = 10 ** max(0, int(log10(needed)) - 1)
        number = f"{step * ceil(needed / step):,} would show a difference of {SMALL:g} in {self.title}"
        return [f"**{self.gain.n} questions are too few**: {number}."]

    def statistics(self) -> str:
        """Return the figures behind the decision."""
        sure = "excludes 0" if self.gain.is_certain else "includes 0"
        return (
            f"Mean difference in {self.title}, {self.ours} against {self.theirs}: {self.gain.mean:+.3f}, 95% interval "
            f"{self.gain.low:+.3f} to {self.gain.high:+.3f}, which {sure} (paired bootstrap over groups of questions "
            f"that share documents, p = {self.gain.p:.3g}, {self.gain.n} questions); {self.tokens[0]:.0f} and "
            f"{self.tokens[1]:.0f} tokens. Smallest detectable difference (80% power): {self.detectable:.3f}."
        )


def bottleneck(
    rows: Sequence[Row],
    name: str,
    title: str,
    *,
    budget: int | None = None,
    missing: str = "some evidence is not among the candidates; try more (--num_candidates)",
) -> list[str]:
    """Return in a sentence what limits a method's quality most: the reader, the selection or the retriever; or nothing.

    What a question lacks to 1 in the measure `name` is put down to the retriever if some evidence is not among the
    candidates, to the selection if some of the rest was not selected, and else to the reader. `missing` is the first.
    A larger budget than `budget` helps only where that was nearly spent.
    """
    rows = [row for row in rows if row.get(name) is not None and row.get("full_evidence") is not None]
    stages: dict[str, list[float]] = {"reader": [], "selection": [], "retriever": []}
    for row in rows:
        stage = "reader" if row["full_evidence"] == 1 else "selection" if "true_k" in row else "retriever"
        stages[stage].append(1 - row[name])
    lacking = {stage: sum(values) for stage, values in stages.items()}
    worst = max(lacking, key=lambda stage: lacking[stage])
    if not rows or sum(lacking.values()) <= MOST_SHORTFALL * len(rows) or lacking[worst] <= sum(lacking.values()) / 2:
        return []
    number = f"{len(stages[worst])} of {len(rows)} questions"
    spent = [row["cost_tokens"] for row in rows if "cost_tokens" in row]
    remedy = "a larger budget"
    if budget is not None and spent and (mean := sum(spent) / len(spent)) < NEARLY_SPENT * budget:
        remedy = f"a lower cost_weight or a higher keep: {mean:.0f} of {budget} tokens are spent"
    why = {
        "reader": f"{title} {1 - lacking[worst] / max(1, len(stages[worst])):.2f} with all evidence in the context "
        f"({number})",
        "selection": f"for {number} it leaves out evidence that is among the candidates; try {remedy}",
        "retriever": f"for {number} {missing}",
    }
    return [f"**The {worst} is your bottleneck**: {why[worst]}."]

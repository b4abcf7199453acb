"""Quality against tokens: whether the default is on the Pareto front, and what `corag` gains at equal tokens.

Letters: `p` points, `n` questions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from corag.cli.page import Table
from corag.types import FloatArray
from experiments.report.difference import Difference, paired_difference
from experiments.report.measures import MEASURES, Measure
from experiments.report.results import BOUND, CHALLENGER, DEFAULT, CurvePoint, Result, selector_name

TABLE = "table"
"""The curve of the methods compared, which are single points."""
REFERENCES = ("sentence-threshold(threshold=0.5)", "naive")
"""Simple methods, as they are by default, that `corag` is compared with at equal tokens."""
CAPTION = (
    "Lines: corag over lambda, sentence-threshold over its threshold, naive over budgets of 32 tokens or more. Other "
    "marks: the methods compared. Dotted: the Pareto front of all points. Bars: 95% intervals over groups of questions "
    "that share documents. "
)


@dataclass(frozen=True)
class Curves:
    """Points over the same questions: tokens of the selections and quality, `[p, n]`, and groups of the questions, `n`.

    Means of several sets count each set alike.
    """

    measure: Measure
    points: Sequence[CurvePoint]
    tokens: FloatArray
    quality: FloatArray
    groups: Sequence[str]
    num_sets: int = 1

    @classmethod
    def of(cls, results: Sequence[Result]) -> Curves | None:
        """Return the curves of one set of questions, with the compared methods as points; None if there are none.

        Points that failed on a question are left out.
        """
        for result in results:
            if not result.curves:
                continue
            drawn = {(point.method, point.budget) for point in result.curves}
            table = [
                CurvePoint(TABLE, method, result.budget, rows)
                for method, rows in result.rows.items()
                if selector_name(method) != BOUND and (method, result.budget) not in drawn
            ]
            is_known = any("kept" in row for row in result.curves[0].rows)
            measure = MEASURES["kept" if is_known else "evidence_recall"]
            questions = [row["query"] for row in result.curves[0].rows if row.get(measure.name) is not None]
            points = [point.of(questions) for point in (*result.curves, *table)]
            points = [one for one in points if one.rows and all(measure.name in row for row in one.rows)]
            if points:
                tokens, quality = (
                    np.array([[row[name] for row in point.rows] for point in points], dtype=float)
                    for name in ("cost_tokens", measure.name)
                )
                groups = [str(row.get("group", row["query"])) for row in points[0].rows]
                return cls(measure, [one.of([]) for one in points], tokens, quality, groups).without_repeats()
        return None

    @classmethod
    def mean(cls, of_sets: Sequence[Curves]) -> Curves:
        """Return the means of several sets, of the points that all have."""
        first = of_sets[0]
        points = [point for point in first.points if all(point in one.points for one in of_sets)]
        total, tokens, quality, groups = sum(len(one.groups) for one in of_sets), [], [], []
        for number, one in enumerate(of_sets):
            rows = [one.points.index(point) for point in points]
            weight = total / len(of_sets) / len(one.groups)
            tokens.append(weight * one.tokens[rows])
            quality.append(weight * one.quality[rows])
            groups += [f"{number} {name}" for name in one.groups]
        return cls(first.measure, points, np.hstack(tokens), np.hstack(quality), groups, len(of_sets))

    @classmethod
    def of_sets(cls, results: Iterable[Sequence[Result]]) -> Curves | None:
        """Return the means of the curves of several sets; None for fewer than two with curves of one measure."""
        of_sets = [curves for of_set in results if (curves := cls.of(of_set)) is not None]
        return cls.mean(of_sets) if len(of_sets) > 1 and len({one.measure.name for one in of_sets}) == 1 else None

    def without_repeats(self) -> Curves:
        """Return them without compared methods that are points of their curve, spelled otherwise."""
        values = np.hstack([self.tokens, self.quality])
        kept = [
            row
            for row, point in enumerate(self.points)
            if point.curve != TABLE
            or not any(np.array_equal(values[row], values[other]) for other in self.curve(selector_name(point.method)))
        ]
        points = [self.points[row] for row in kept]
        return replace(self, points=points, tokens=self.tokens[kept], quality=self.quality[kept])

    def curve(self, name: str) -> list[int]:
        """Return the rows of a curve's points, fewest tokens first."""
        rows = [row for row, point in enumerate(self.points) if point.curve == name]
        return sorted(rows, key=lambda row: float(self.tokens[row].mean()))

    def means(self, rows: Sequence[int], *, bars: bool = False) -> list[tuple[float, float, Difference | None]]:
        """Return mean tokens and quality of points, with the interval of quality if `bars` are asked for."""
        return [
            (
                float(self.tokens[row].mean()),
                float(self.quality[row].mean()),
                paired_difference(self.quality[row], groups=self.groups) if bars else None,
            )
            for row in rows
        ]

    def hull(self) -> list[int]:
        """Return the rows of the points on the Pareto front of all points and their mixtures."""
        x, y = self.tokens.mean(axis=1), self.quality.mean(axis=1)
        found: list[int] = []
        for row in np.lexsort((-y, x)).tolist():
            while len(found) > 1 and not _turns_right(x[[*found[-2:], row]], y[[*found[-2:], row]]):
                found.pop()
            found.append(row)
        best = max(range(len(found)), key=lambda number: y[found[number]])
        return found[: best + 1]

    def gain(self, line: Sequence[int], row: int) -> Difference | None:
        """Return how much more quality a line has than a point, at the point's tokens; None where the line spends more.

        `line` are rows of points, fewest tokens first. Between two of them counts, question by question, the mixture
        of both that spends as much on average; beyond the last, the last.
        """
        x, tokens = self.tokens[list(line)].mean(axis=1), float(self.tokens[row].mean())
        if not len(x) or tokens < x[0]:
            return None
        position = float(np.interp(tokens, x, np.arange(len(x))))
        left, share = int(position), position % 1
        right = min(left + 1, len(x) - 1)
        mixed = (1 - share) * self.quality[line[left]] + share * self.quality[line[right]]
        return paired_difference(mixed, self.quality[row], groups=self.groups)

    def verdict(self) -> str:
        """Return in words whether the default is on the hull, and what `corag` gains over simple methods."""
        if not self.curve(DEFAULT):
            return ""
        [row], hull = self.curve(DEFAULT), self.hull()
        [(tokens, quality, _), (enough, _, _)], gap = self.means([row, hull[-1]]), self.gain(hull, row)
        default = f"The default (corag, {self.measure.title} {quality:.3f} at {tokens:.0f} tokens) is"
        place = f"the Pareto front of all {len(self.points)} points"
        if row not in hull and gap is not None and gap.mean > 0:
            where = f"below {place}, by {gap.mean:.3f} ({gap.low:+.3f} to {gap.high:+.3f})"
        else:
            where = (
                f"as high as {place}, for which {enough:.0f} tokens are enough" if tokens > enough else f"on {place}"
            )
        return f"{default} {where}. At equal tokens, corag against {'; against '.join(map(self._against, REFERENCES))}."

    def _against(self, method: str) -> str:
        """Return in words what `corag` gains over a method at its largest budget."""
        rows = [row for row in self.curve(selector_name(method)) if self.points[row].method == method]
        if not rows:
            return f"{method}: it failed on a question"
        gain = self.gain(self.curve(CHALLENGER), rows[-1])
        where = f"{method} ({self.tokens[rows[-1]].mean():.0f} tokens)"
        if gain is None:
            return f"{where}: no lambda spends as little"
        return f"{where}: {gain}, {'beyond' if gain.is_certain else 'no more than'} chance"

    def table(self) -> Table:
        """Return all points, and what `corag` gains over each simple one at its tokens."""
        hull, corag, rows = self.hull(), self.curve(CHALLENGER), []
        for row, point in enumerate(self.points):
            gain = None if point.curve in (DEFAULT, CHALLENGER) else self.gain(corag, row)
            quality = self.measure.text(float(self.quality[row].mean()))
            rows.append([
                point.method, str(point.budget), f"{self.tokens[row].mean():.1f}",
                f"**{quality}**" if row in hull else quality, "-" if gain is None else str(gain),
            ])  # fmt: skip
        note = "Bold: on the Pareto front. Gain: of corag, interpolated between two lambdas, at the tokens of the line."
        return Table(
            ["method", "budget", "tokens", self.measure.title, "gain of corag at these tokens"], rows, note=note
        )


def _turns_right(x: FloatArray, y: FloatArray) -> bool:
    """Return whether a way over three points turns to the right at the second."""
    return bool((x[1] - x[0]) * (y[2] - y[0]) < (y[1] - y[0]) * (x[2] - x[0]))

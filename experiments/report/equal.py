"""At how many tokens one method holds what another one holds at a budget: interpolated, with intervals by document.

Held is the mean of answer recall and evidence recall, each over the questions that have it; data sets count alike.
Letters: `s` resamples of the documents, the first of them the documents themselves; `n` questions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from corag.cli.page import Table
from corag.types import FloatArray
from experiments.report.drawing import Points

SAMPLES = 500
FIGURES = ("answer_recall", "evidence_recall", "cost_tokens")

Rows = Sequence[Mapping[str, Any]]
"""Figures of each question under each method and budget; `data`, `budget`, `method`, `query`, `group`, `FIGURES`."""
Curves = Mapping[tuple[str, int], FloatArray]
"""What is held, and in how many tokens, by method and budget, `[s, 2]`."""


@dataclass(frozen=True)
class Need:
    """What another method holds at a budget, its tokens, and those that ours needs for it, with a 95% interval.

    They are infinite where ours does not hold as much at any budget, and those of its smallest budget where it holds
    more there: nothing tells then how many fewer are enough.
    """

    budget: int
    held: float
    tokens: float
    needs: float
    low: float
    high: float
    smallest: float

    @property
    def needed(self) -> str:
        """Tokens that ours needs, in words."""
        if np.isinf(self.needs):
            return "not held"
        return f"{self.needs:.0f}" if self.needs > self.smallest else f"fewer than {self.needs:.0f}"

    def __str__(self) -> str:
        """Tokens of the other, and of ours."""
        interval = " to ".join("more" if np.isinf(end) else f"{end:.0f}" for end in (self.low, self.high))
        return f"{self.tokens:.0f}: {self.needed}" + (f" ({interval})" if self.smallest < self.needs < np.inf else "")


def curves(rows: Rows, seed: int = 0) -> Curves:
    """Return the means over data sets of what all of them have, of the documents and of resamples of them."""
    cells: dict[str, dict[tuple[str, int], list[Mapping[str, Any]]]] = {}
    for row in rows:
        cells.setdefault(row["data"], {}).setdefault((row["method"], row["budget"]), []).append(row)
    random, found = np.random.default_rng(seed), dict[tuple[str, int], list[FloatArray]]()
    for of_set in cells.values():
        order = sorted(next(iter(of_set.values())), key=lambda row: str(row["query"]))
        names = [str(row.get("group", row["query"])) for row in order]
        # As in `paired_difference`: if all are of one group, each question by itself.
        _, group = np.unique(names if len(set(names)) > 1 else np.arange(len(names)), return_inverse=True)
        drawn = random.multinomial(group.max() + 1, np.full(group.max() + 1, 1 / (group.max() + 1)), SAMPLES)
        weights = np.vstack([np.ones(len(group)), drawn[:, group]])
        for cell, of_cell in of_set.items():
            values = [[row.get(name) for name in FIGURES] for row in sorted(of_cell, key=lambda row: str(row["query"]))]
            figures = np.array(values, dtype=np.float64)
            known = weights @ np.isfinite(figures)
            of = np.divide(weights @ np.nan_to_num(figures), known, out=np.full(known.shape, np.nan), where=known > 0)
            found.setdefault(cell, []).append(of)
    overall = {cell: means(np.array(of)) for cell, of in found.items() if len(of) == len(cells)}
    return {cell: np.stack([means(of[:, :2].T), of[:, 2]], axis=1) for cell, of in overall.items()}


def means(values: FloatArray) -> FloatArray:
    """Return the means over the first axis of what is known; NaN where nothing is."""
    return np.asarray(np.ma.filled(np.ma.masked_invalid(values).mean(axis=0), np.nan))


def needs(found: Curves, ours: str, theirs: str) -> list[Need]:
    """Return what one method needs for what another holds, at each budget of the other.

    Not at our smallest budget if ours holds more there.
    """
    budgets = sorted(budget for method, budget in found if method == ours)
    own = [found[ours, budget] for budget in budgets]
    listed = []
    for (method, budget), other in sorted(found.items(), key=lambda item: item[0][1]):
        if method == theirs and len(own) > 1 and (budget > budgets[0] or other[0, 0] >= own[0][0, 0]):
            held, tokens = np.maximum.accumulate([of[:, 0] for of in own]).T, np.log([of[:, 1] for of in own]).T
            wanted = [
                np.exp(np.interp(value, curve, at)) if value <= curve[-1] else np.inf
                for value, curve, at in zip(other[:, 0], held, tokens, strict=True)
            ]
            low, high = np.quantile(wanted, [0.025, 0.975], method="nearest").tolist()
            listed.append(
                Need(budget, float(other[0, 0]), float(other[0, 1]), float(wanted[0]), low, high, float(own[0][0, 1]))
            )
    return listed


def needs_table(kinds: Mapping[str, Curves], ours: str, others: Mapping[str, str]) -> Table:
    """Return what ours needs for what others hold, by their titles: a line for each budget, of each sort of kinds."""
    lines: dict[tuple[int, str], dict[str, str]] = {}
    for sort, found in kinds.items():
        for method in others:
            for need in needs(found, ours, method):
                lines.setdefault((need.budget, sort), {})[method] = str(need)
    rows = [
        [f"{budget:,}, {sort}" if sort else f"{budget:,}", *(of.get(method, "-") for method in others)]
        for (budget, sort), of in sorted(lines.items(), key=lambda item: item[0][0])
    ]
    note = (
        f"Tokens of the other, and those in which {ours} holds as much, with the 95% interval over documents; a dash "
        "where it holds more at its smallest budget."
    )
    return Table(["budget", *others.values()], rows, note=note)


def points_of(found: Curves, method: str) -> Points:
    """Return tokens and what is held in them, by budget."""
    cells = sorted(cell for cell in found if cell[0] == method)
    return [(float(found[cell][0, 1]), float(found[cell][0, 0]), None) for cell in cells]

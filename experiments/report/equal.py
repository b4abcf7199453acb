"""What methods hold against their tokens, and at how many one holds what another does, with intervals by document.

Held is the mean of answer recall and evidence recall, each over the questions that have it; data sets count alike.
Letters: `s` resamples of the documents, the first of them the documents themselves; `n` questions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from corag.cli.page import Table
from corag.types import FloatArray
from experiments.report.drawing import COLORS, MARKERS, Line, against_tokens

SAMPLES = 500
HELD = "answer and evidence held"
FIGURES = ("answer_recall", "evidence_recall", "cost_tokens")

Rows = Sequence[Mapping[str, Any]]
"""Figures of each question under each method and budget; `data`, `budget`, `method`, `query`, `group`, `FIGURES`."""
Curves = Mapping[tuple[str, int], FloatArray]
"""What is held, and in how many tokens, by method and budget, `[s, 2]`."""


class Need(NamedTuple):
    """What another method spends at a budget, and what ours needs for as much, in words, with a 95% interval.

    Ours may not hold as much at any budget; where it holds more at its smallest one, nothing tells how many fewer
    tokens are enough.
    """

    budget: int
    tokens: float
    needed: str
    interval: str

    def __str__(self) -> str:
        """Tokens of the other, and of ours."""
        return f"{self.tokens:.0f}: {self.needed}{self.interval}"


def curves(rows: Rows) -> Curves:
    """Return the means over data sets of what all of them have, of the documents and of resamples of them.

    Cells of which no question has answers or evidence are left out.
    """
    cells: dict[str, dict[tuple[str, int], list[Mapping[str, Any]]]] = {}
    for row in rows:
        cells.setdefault(row["data"], {}).setdefault((row["method"], row["budget"]), []).append(row)
    random, found = np.random.default_rng(0), dict[tuple[str, int], list[FloatArray]]()
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
    held = {cell: np.stack([means(of[:, :2].T), of[:, 2]], axis=1) for cell, of in overall.items()}
    return {cell: of for cell, of in held.items() if np.isfinite(of[0]).all()}


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
            held = np.maximum.accumulate([of[:, 0] for of in own]).T
            tokens = np.log([np.maximum(of[:, 1], 1.0) for of in own]).T  # nothing may fit the smallest budget
            wanted = list(map(_tokens_for, other[:, 0], held, tokens))
            needed, interval, smallest = f"{wanted[0]:.0f}", "", own[0][0, 1]
            if np.isinf(wanted[0]):
                needed = "not held"
            elif wanted[0] <= smallest:
                needed = f"fewer than {needed}"
            else:
                ends = np.quantile(wanted, [0.025, 0.975], method="nearest")
                interval = f" ({' to '.join('more' if np.isinf(end) else f'{end:.0f}' for end in ends)})"
            listed.append(Need(budget, float(other[0, 1]), needed, interval))
    return listed


def _tokens_for(value: float, held: FloatArray, tokens: FloatArray) -> float:
    """Return the fewest tokens, given as logarithms, at which a curve that never falls holds a value; inf if none."""
    end = int(np.searchsorted(held, value))
    between = slice(max(end - 1, 0), end + 1)
    return np.inf if end == len(held) else float(np.exp(np.interp(value, held[between], tokens[between])))


def needs_table(kinds: Mapping[str, Curves], ours: str, others: Mapping[str, str]) -> Table:
    """Return what ours needs for what others hold, by their titles: a line for each budget, of each sort of kinds."""
    lines: dict[tuple[int, str], dict[str, str]] = {}
    for sort, found in kinds.items():
        for method in others:
            for need in needs(found, ours, method):
                lines.setdefault((need.budget, sort), {})[method] = str(need)
    rows = []
    for (budget, sort), of in sorted(lines.items(), key=lambda item: item[0][0]):
        lacking = {method: "-" if (method, budget) in kinds[sort] else "not measured" for method in others}
        rows.append([f"{budget:,}, {sort}" if sort else f"{budget:,}", *(lacking | of).values()])
    note = f"Tokens of the other, and those in which {ours} holds as much, with the 95% interval over documents"
    if any("-" in row for row in rows):
        note += "; a dash where it holds more at its smallest budget"
    return Table(["budget", *others.values()], rows, note=f"{note}.")


def points_of(found: Curves, method: str) -> FloatArray:
    """Return tokens, what is held in them, and the ends of its 95% interval, by budget, `[budgets, 4]`."""
    of_method = [found[cell] for cell in sorted(cell for cell in found if cell[0] == method)]
    return np.array([[of[0, 1], of[0, 0], *np.nanquantile(of[:, 0], [0.025, 0.975])] for of in of_method])


def plot(found: Curves) -> str:
    """Return an SVG of what each method holds against its tokens, a line for each over its budgets."""
    lines: list[Line] = []
    for number, method in enumerate(dict.fromkeys(method for method, _ in found)):
        turn, color = divmod(number, len(COLORS))
        width = 2.0 if method.partition("(")[0] == "corag" else 1.0
        style = {"color": COLORS[color], "marker": MARKERS[turn % len(MARKERS)], "linewidth": width}
        lines.append((method, points_of(found, method), style))
    return against_tokens({HELD: lines})

"""The README's picture, from the label tables that ship: what configurations keep of the evidence, and their tokens.

python -m experiments.report.kept experiments/figures/kept.svg checkpoints/labels/labels-{256,1024,4096}.parquet
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from corag.writing import write_atomically
from experiments.evaluation.metrics import kept
from experiments.labels.table import Labels, read_labels
from experiments.report.drawing import COLORS, MARKERS, Points, against_tokens


def curves(tables: Sequence[Labels]) -> dict[str, Points]:
    """Return tokens and what is kept, means over data sets, of what fills each budget, and of the others by lambda.

    The budgets of the tables ascend. What has a lambda is drawn under the last, which leaves it the most choice.
    """
    found: dict[str, list[tuple[float, float]]] = {}
    for labels in tables:
        measures = labels.measures["cost_tokens"], kept(labels.measures)
        folders = [labels.data == folder for folder in sorted(set(labels.data.tolist()))]
        for column, name in enumerate(labels.configurations):
            if name.unit and labels is not tables[-1]:
                continue
            tokens, held = (float(np.mean([np.nanmean(of[rows, column]) for rows in folders])) for of in measures)
            line = f"{name.unit}s, {name.reranker}, by lambda" if name.unit else "filling with passages, by budget"
            found.setdefault(line, []).append((tokens, held))
    return {name: [(*point, None) for point in sorted(points)] for name, points in found.items()}


def main(out: str, *tables: str) -> None:
    """Draw label tables of ascending budgets."""
    lines = [
        (name, points, {"color": COLORS[number], "marker": MARKERS[number], "linewidth": 1.6})
        for number, (name, points) in enumerate(curves([read_labels(table) for table in tables]).items())
    ]
    write_atomically(Path(out), against_tokens(lines, "evidence kept"))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The README's picture, from the label tables that ship: what configurations keep of the evidence, and their tokens.

python -m experiments.report.kept checkpoints/labels/labels-256.parquet experiments/figures/kept.svg
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from corag.writing import write_atomically
from experiments.evaluation.metrics import kept
from experiments.labels.table import Labels, read_labels
from experiments.report.drawing import COLORS, MARKERS, Points, against_tokens


def curves(labels: Labels) -> dict[str, Points]:
    """Return tokens and what is kept, means over data sets, of the configurations of each unit and reranker."""
    tables = labels.measures["cost_tokens"], kept(labels.measures)
    folders = [labels.data == folder for folder in sorted(set(labels.data.tolist()))]
    found: dict[str, list[tuple[float, float]]] = {}
    for column, name in enumerate(labels.configurations):
        tokens, held = (float(np.mean([np.nanmean(table[rows, column]) for rows in folders])) for table in tables)
        unit = f"{name.unit}s" if name.unit else "filling with passages"
        found.setdefault(f"{unit}, {name.reranker}", []).append((tokens, held))
    return {name: [(*point, None) for point in sorted(points)] for name, points in found.items()}


def main(table: str, out: str) -> None:
    """Draw a label table."""
    lines = [
        (name, points, {"color": COLORS[number], "marker": MARKERS[number], "linewidth": 1.6})
        for number, (name, points) in enumerate(curves(read_labels(table)).items())
    ]
    write_atomically(Path(out), against_tokens(lines, "evidence kept"))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Statistics of data sets: questions of each split and passages, as in table 1 of CORAG."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from corag.text.data import DataFolder
from corag.text.find import find_data
from experiments.data.folder import read_source
from experiments.papers.cells import Cell
from experiments.papers.standins import DEMO, write_demo

SPLITS = ("train", "dev", "test")


def count_sets(cells: Sequence[Cell], root: Path) -> list[dict[str, Any]]:
    """Return a line for each data set: questions of its splits, and passages.

    What was fetched says it by itself, so that a large corpus need not be read.
    """
    lines = []
    for cell in cells:
        name = str(cell.settings["data"])
        place = write_demo(root / "data") if name == DEMO else find_data(name)
        record = read_source(place) or {}
        questions, passages = record.get("questions"), record.get("passages")
        if questions is None or passages is None:
            folder = DataFolder.open(place)
            questions, passages = Counter(query.split for query in folder.queries), len(folder.documents)
        others = {split: number for split, number in questions.items() if split not in SPLITS}
        lines.append(
            {"data": cell.name, "set": name, **{split: questions.get(split) for split in SPLITS}}
            | ({"others": sum(others.values())} if others else {})
            | {"passages": passages}
        )
    return lines

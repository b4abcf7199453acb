"""Finished label tables put together: only such as could have come from one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from corag.errors import DataError
from experiments.labels.table import read_questions, read_table, write_questions, write_table
from experiments.labels.work import total
from experiments.run.journal import fingerprint, output_file

OF_QUESTIONS = ("data", "splits", "sources", "limit", "pool", "retrieval", "num_candidates", "index")
"""Settings in which tables may differ: which questions, and with which candidates."""


def merge_tables(paths: Sequence[str | Path], out: str | Path) -> Path:
    """Write the rows of all tables, and their questions, as one table.

    Raises:
        DataError: A table cannot be read, or they differ in embedder, versions or settings, or share a data folder.
    """
    tables = {Path(path): (read_table(path), read_questions(path)) for path in paths}
    first, *others = tables
    metadata = [of_table[1] for of_table, _ in tables.values()]
    for path in others:
        check_alike(first, metadata[0], path, tables[path][0][1])
    owners: dict[str, Path] = {}
    for path, (_, (questions, _)) in tables.items():
        for data in dict.fromkeys(row["data"] for row in questions):
            if data in owners:
                raise DataError(
                    f"{owners[data]} and {path} both have questions of {data!r}, so which of them share documents is "
                    "not known; label them in one run, as two sources"
                )
            owners[data] = path
    merged = {
        **metadata[0],
        "work": fingerprint([of_table["work"] for of_table in metadata]),
        "settings": {**metadata[0]["settings"], "merged": [of_table["settings"] for of_table in metadata]},
        "tokens": total(of_table["tokens"] for of_table in metadata).to_dict(),
    }
    target = output_file(str(out))
    write_questions(target, [row for _, (questions, _) in tables.values() for row in questions], merged)
    write_table(target, [row for (rows, _), _ in tables.values() for row in rows], merged)
    return target


def check_alike(first: Path, one: Mapping[str, Any], second: Path, other: Mapping[str, Any]) -> None:
    """Raise `DataError` for tables whose figures do not belong together, given by path and metadata."""
    for name in ("embedder", "versions"):
        if one.get(name) != other.get(name):
            raise _unlike(first, second, name, one.get(name), other.get(name))
    for name in (*one["settings"], *other["settings"]):
        mine, its = one["settings"].get(name), other["settings"].get(name)
        if name not in (*OF_QUESTIONS, "merged") and mine != its:
            raise _unlike(first, second, f"setting {name!r}", mine, its)


def _unlike(first: Path, second: Path, name: str, mine: object, its: object) -> DataError:
    return DataError(
        f"{first} and {second} differ in {name}: {mine!r} and {its!r}; figures of one table have to be comparable: "
        "label one of them again"
    )

"""Label tables: one row a question and configuration, and beside it one row a question."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from corag.errors import DataError
from corag.optional import require
from experiments.labels.work import total
from experiments.run.journal import TABLE, fingerprint, output_file, write_atomically

FORMAT_VERSION = 2

FIGURES = (
    "rouge1", "rouge2", "rougeL", "f1", "em", "confidence", "evidence_recall", "evidence_precision", "full_evidence",
    "cost_tokens", "chunks", "orders_scored", "latency_ms", "value",
)  # fmt: skip
"""What is measured; null where a question failed. Confidence is the reader's own, null where it has none."""

TYPES = {
    "data": "string", "query": "string", "split": "string", "group": "string", "question": "string",
    "reranker": "string", "iterations": "int64", "exploration": "double", "cost_weight": "double",
    "budget_tokens": "int64",
    **dict.fromkeys(FIGURES, "double"), "cost_tokens": "int64", "chunks": "int64", "orders_scored": "int64",
    "context": "string", "error": "string",
    "similarities": "list<float>", "query_vector": "list<halffloat>", "candidates_vector": "list<halffloat>",
    "num_candidates": "int64",
}  # fmt: skip
"""Types of the columns of both files."""

OF_ROWS = (
    "data", "query", "reranker", "iterations", "exploration", "cost_weight", "budget_tokens", "cost_tokens",
    "orders_scored",
)  # fmt: skip
"""Columns that no table of configurations lacks; figures may be null where a question failed."""

OF_ALL_QUESTIONS = ("data", "query", "split", "group", "query_vector", "candidates_vector", "similarities")
"""Columns that no table of questions lacks."""

OF_QUESTIONS = ("data", "splits", "sources", "limit", "sample", "pool", "retrieval", "num_candidates", "index")
"""Settings in which tables may differ: which questions, and with which candidates."""


def questions_path(path: str | Path) -> Path:
    """Return where the questions of a label table stand."""
    return Path(path).with_suffix(".questions.parquet")


def write_table(path: Path, rows: Sequence[Mapping[str, Any]], metadata: Mapping[str, Any]) -> None:
    """Write rows of configurations as Parquet, whole or not at all, with `metadata` in the schema."""
    pyarrow, parquet = require("pyarrow", "experiments"), require("pyarrow.parquet", "experiments")
    kinds = {name: pyarrow.type_for_alias(kind) for name, kind in TYPES.items() if not kind.startswith("list")}
    kinds |= {name: pyarrow.list_(pyarrow.type_for_alias(TYPES[name][5:-1])) for name in TYPES.keys() - kinds}
    names = list(rows[0]) if rows else list(TYPES)
    table = pyarrow.table({name: pyarrow.array([row[name] for row in rows], kinds.get(name)) for name in names})
    table = table.replace_schema_metadata({b"corag": json.dumps(metadata, sort_keys=True).encode()})
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(table, sink, compression="zstd")
    write_atomically(path, sink.getvalue().to_pybytes())


def write_questions(path: Path, rows: Sequence[Mapping[str, Any]], metadata: Mapping[str, Any]) -> None:
    """Write the questions of a label table at `path` beside it, whole or not at all."""
    write_table(questions_path(path), rows, metadata)


def read_table(path: str | Path, *, complete: bool = False) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Read rows and metadata of a label table.

    A file that is missing, damaged, of another version, or holds what is no finite number is a `DataError`; so is one
    that lacks what an agent learns from, where it has to be `complete`.
    """
    return _read(Path(path), Path(path), OF_ROWS if complete else ())


def read_questions(path: str | Path, *, complete: bool = False) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Read the questions of the label table at `path`, one row each, and the metadata; see `read_table`."""
    return _read(questions_path(path), Path(path), OF_ALL_QUESTIONS if complete else ())


def _read(file: Path, path: Path, required: Sequence[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    pyarrow, parquet = require("pyarrow", "experiments"), require("pyarrow.parquet", "experiments")
    if not file.is_file():
        raise DataError(f"{file} does not exist; make a label table with: corag label --data DIR --out {path}")
    try:
        table = parquet.read_table(file)
        metadata: dict[str, Any] = json.loads(table.schema.metadata[b"corag"])
    except (OSError, pyarrow.ArrowException, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{file} is not a label table ({error}); make one with: corag label --out {path}") from error
    if not isinstance(metadata, dict):
        raise DataError(f"{file} is not a label table (its metadata is {metadata!r:.80}); label again")
    if metadata.get("format_version") != FORMAT_VERSION:
        raise DataError(
            f"{file} has format_version {metadata.get('format_version')}, this version reads {FORMAT_VERSION}; "
            "label again, or update corag"
        )
    if not table.num_rows:
        raise DataError(f"{file} has no rows; label at least one question")
    for name, kind in (("embedder", str), ("settings", dict)):
        if required and not isinstance(metadata.get(name), kind):
            raise DataError(f"{file} has {name} {metadata.get(name)!r:.80} in its metadata; label again")
    _check_columns(file, table, required)
    rows: list[dict[str, Any]] = table.to_pylist()
    for number, row in enumerate(rows, start=1):
        if row.get("budget_tokens", 1) < 1:
            raise DataError(f"{file}, row {number}: budget_tokens is {row['budget_tokens']}, below 1; label again")
        for name, value in row.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise DataError(
                    f"{file}, row {number}: {name} of question {row.get('query')!r} is {value}; figures have to be "
                    "finite numbers, or null where there is none: label that question again"
                )
    return rows, metadata


def _check_columns(file: Path, table: Any, required: Sequence[str]) -> None:
    """Raise `DataError` for a table without a required column, or with one of another type than `TYPES` says."""
    types = require("pyarrow", "experiments").types
    tests = {
        "string": lambda kind: types.is_string(kind) or types.is_large_string(kind),
        "number": lambda kind: types.is_integer(kind) or types.is_floating(kind),
        "list": lambda kind: (types.is_list(kind) or types.is_large_list(kind)) and types.is_floating(kind.value_type),
    }
    for name in required:
        if name not in table.column_names:
            raise DataError(
                f"{file} has no column {name!r}; its columns are {', '.join(table.column_names)}: label again"
            )
        if table[name].null_count and name not in FIGURES:
            raise DataError(f"{file} has no {name} in {table[name].null_count} rows; label again")
    for name in TYPES.keys() & set(table.column_names):
        kind = TYPES[name].partition("<")[0]
        kind = kind if kind in tests else "number"
        found = table.schema.field(name).type
        # A column in which nothing stands may have no type.
        if not (tests[kind](found) or (types.is_null(found) and name not in required)):
            raise DataError(f"{file} holds {found} in column {name!r}, which is for a {kind}; label again")


def merge_tables(paths: Sequence[str | Path], out: str | Path) -> Path:
    """Write the rows of all tables, and their questions, as one table.

    Tables that differ in embedder, versions or settings, or share a data folder, are a `DataError`.
    """
    tables = {Path(path): (read_table(path), read_questions(path)) for path in paths}
    first, *others = tables
    metadata = [of_table[1] for of_table, _ in tables.values()]
    for path in others:
        _check_alike(first, metadata[0], path, tables[path][0][1])
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
        "tokens": total(of_table["tokens"] for of_table in metadata),
    }
    target = output_file(str(out), TABLE)
    write_questions(target, [row for _, (questions, _) in tables.values() for row in questions], merged)
    write_table(target, [row for (rows, _), _ in tables.values() for row in rows], merged)
    return target


def _check_alike(first: Path, one: Mapping[str, Any], second: Path, other: Mapping[str, Any]) -> None:
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

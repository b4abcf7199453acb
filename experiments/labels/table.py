"""Label tables: one row a question and configuration, and beside it one row a question."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from corag.errors import DataError
from corag.optional import require
from experiments.run.journal import write_atomically

FORMAT_VERSION = 2

FIGURES = (
    "rouge1", "rouge2", "rougeL", "f1", "em", "confidence", "evidence_recall", "evidence_precision", "full_evidence",
    "cost_tokens", "chunks", "orders_scored", "latency_ms", "value",
)  # fmt: skip
"""What is measured; null where a question failed. Confidence is the reader's own, null where it has none."""

ROW_TYPES = {
    "data": "string", "query": "string", "split": "string",
    "reranker": "string", "iterations": "int64", "exploration": "double", "cost_weight": "double",
    "budget_tokens": "int64",
    **dict.fromkeys(FIGURES, "double"), "cost_tokens": "int64", "chunks": "int64", "orders_scored": "int64",
    "context": "string", "error": "string",
}  # fmt: skip

QUESTION_TYPES = {
    "data": "string", "query": "string", "split": "string", "group": "string", "question": "string",
    "similarities": "list<float>", "query_vector": "list<halffloat>", "candidates_vector": "list<halffloat>",
    "num_candidates": "int64",
}  # fmt: skip


def questions_path(path: str | Path) -> Path:
    """Return where the questions of a label table stand."""
    return Path(path).with_suffix(".questions.parquet")


def write_table(path: Path, rows: Sequence[Mapping[str, Any]], metadata: Mapping[str, Any]) -> None:
    """Write rows of configurations as Parquet, whole or not at all, with `metadata` in the schema."""
    _write(path, rows, ROW_TYPES, metadata)


def write_questions(path: Path, rows: Sequence[Mapping[str, Any]], metadata: Mapping[str, Any]) -> None:
    """Write the questions of a label table at `path` beside it, whole or not at all."""
    _write(questions_path(path), rows, QUESTION_TYPES, metadata)


def read_table(path: str | Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Read a label table.

    Returns:
        Its rows and its metadata.

    Raises:
        DataError: The file is missing, damaged, no label table of this version, or holds what is no finite number.
    """
    return _read(Path(path), Path(path))


def read_questions(path: str | Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Read the questions of the label table at `path`.

    Returns:
        One row per question, in the table's order, and the metadata.

    Raises:
        DataError: The file beside the table is missing, damaged, or of another version.
    """
    return _read(questions_path(path), Path(path))


def _write(
    path: Path, rows: Sequence[Mapping[str, Any]], types: Mapping[str, str], metadata: Mapping[str, Any]
) -> None:
    pyarrow, parquet = require("pyarrow", "experiments"), require("pyarrow.parquet", "experiments")
    kinds = {
        "string": pyarrow.string(), "int64": pyarrow.int64(), "double": pyarrow.float64(),
        "list<float>": pyarrow.list_(pyarrow.float32()), "list<halffloat>": pyarrow.list_(pyarrow.float16()),
    }  # fmt: skip
    names = list(rows[0]) if rows else list(types)
    columns = {
        name: pyarrow.array([row[name] for row in rows], kinds[types[name]] if name in types else None)
        for name in names
    }
    table = pyarrow.table(columns)
    table = table.replace_schema_metadata({b"corag": json.dumps(metadata, sort_keys=True).encode()})
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(table, sink, compression="zstd")
    write_atomically(path, sink.getvalue().to_pybytes())


def _read(file: Path, path: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    pyarrow, parquet = require("pyarrow", "experiments"), require("pyarrow.parquet", "experiments")
    if not file.is_file():
        raise DataError(f"{file} does not exist; make a label table with: corag label --data DIR --out {path}")
    try:
        table = parquet.read_table(file)
        metadata: dict[str, Any] = json.loads(table.schema.metadata[b"corag"])
    except (OSError, pyarrow.ArrowException, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{file} is not a label table ({error}); make one with: corag label --out {path}") from error
    if metadata.get("format_version") != FORMAT_VERSION:
        raise DataError(
            f"{file} has format_version {metadata.get('format_version')}, this version reads {FORMAT_VERSION}; "
            "label again, or update corag"
        )
    if not table.num_rows:
        raise DataError(f"{file} has no rows; label at least one question")
    rows: list[dict[str, Any]] = table.to_pylist()
    for number, row in enumerate(rows, start=1):
        for name, value in row.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise DataError(
                    f"{file}, row {number}: {name} of question {row.get('query')!r} is {value}; figures have to be "
                    "finite numbers, or null where there is none: label that question again"
                )
    return rows, metadata

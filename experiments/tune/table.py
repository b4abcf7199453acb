"""The table of labels over kinds: one row a kind, question and configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from corag.errors import DataError
from corag.optional import require
from experiments.run.journal import write_atomically
from experiments.tune.sweep import FIGURES

FORMAT_VERSION = 1
KEYS = ("kind", "query", "part", "group", "configuration")
SHIPPED = Path(__file__).parents[2] / "checkpoints" / "kinds" / "kinds.parquet"
"""The labels that ship with the project."""

LabelRow = Mapping[str, Any]


def write_labels(path: Path, rows: Sequence[LabelRow], metadata: Mapping[str, Any]) -> None:
    """Write rows as Parquet, whole or not at all; figures in single precision, null where a question has none."""
    pyarrow, parquet = require("pyarrow", "experiments"), require("pyarrow.parquet", "experiments")
    columns = {
        **{name: pyarrow.array([row[name] for row in rows], pyarrow.string()) for name in KEYS},
        "budget_tokens": pyarrow.array([row["budget_tokens"] for row in rows], pyarrow.int32()),
        **{name: pyarrow.array([row.get(name) for row in rows], pyarrow.float32()) for name in (*FIGURES, "failed")},
    }
    described = json.dumps({"format_version": FORMAT_VERSION, **metadata}, sort_keys=True, default=str)
    table = pyarrow.table(columns).replace_schema_metadata({b"corag": described.encode()})
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(table, sink, compression="zstd", compression_level=19)
    write_atomically(path, sink.getvalue().to_pybytes())


def read_labels(path: Path | str = SHIPPED) -> list[dict[str, Any]]:
    """Return the rows of a table, figures that a question does not have left out; a file of another form is refused.

    Raises:
        DataError: It is missing, damaged, of another version, or has no rows.
    """
    pyarrow, parquet = require("pyarrow", "experiments"), require("pyarrow.parquet", "experiments")
    remedy = "make one with: python -m experiments.tune.label --out FILE"
    if not Path(path).is_file():
        raise DataError(f"{path} does not exist; {remedy}")
    try:
        table = parquet.read_table(path)
        metadata = json.loads(table.schema.metadata[b"corag"])
        rows = table.select([*KEYS, "budget_tokens", *FIGURES, "failed"]).to_pylist()
    except (OSError, pyarrow.ArrowException, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} is no table of labels over kinds ({error}); {remedy}") from error
    if metadata.get("format_version") != FORMAT_VERSION or not rows:
        found = f"format_version {metadata.get('format_version')} and {len(rows)} rows"
        raise DataError(f"{path} has {found}; this version reads {FORMAT_VERSION}: label again, or update corag")
    return [{name: value for name, value in row.items() if value is not None} for row in rows]

"""The label table: one long Parquet file, a row a question and configuration, and its reader as dense arrays.

What belongs to the question alone (embeddings and similarities) stands in the first of its rows and is null in the
others. Letters: `n` questions, `C` configurations, `d` numbers of an embedding.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

import agent
from agent.training.data import MeasuredGrid
from corag.errors import DataError, InputError
from corag.naming import PartName, parse, without_secrets
from corag.optional import require
from corag.selectors.corag.features import Float32, feature_vectors
from corag.types import FloatArray
from experiments.data.config import comma_separated
from experiments.run.journal import write_atomically

logger = logging.getLogger(__name__)

MEASURES = (
    "rouge1", "rouge2", "rougeL", "f1", "em", "evidence_recall", "evidence_precision", "full_evidence",
    "answer_in_context", "cost_tokens", "chunks", "orders_scored", "value", "seconds",
)  # fmt: skip
"""What is measured; null where a question has no such figure, or failed."""
TYPES = {
    **dict.fromkeys(("data", "query", "split", "group", "question", "configuration"), "string"),
    "budget_tokens": "int64",
    **dict.fromkeys(MEASURES, "double"),
    "error": "string",
    **dict.fromkeys(("query_vector", "candidates_vector"), "list<halffloat>"),
    "similarities": "list<float>",
}
"""Types of the columns."""
REQUIRED = ("data", "query", "split", "group", "configuration", "budget_tokens", "cost_tokens", "query_vector")
PRICED_TOKENS = 256
"""Tokens that the price of tokens is for."""

Row = Mapping[str, Any]


def write_labels(path: Path, rows: Sequence[Row], metadata: Mapping[str, Any]) -> None:
    """Write rows as Parquet, whole or not at all, with `metadata` in the schema; what a row lacks is null."""
    pyarrow, parquet = require("pyarrow", "experiments"), require("pyarrow.parquet", "experiments")
    columns = {}
    for name, kind in TYPES.items():
        item = pyarrow.type_for_alias(kind.removeprefix("list<").removesuffix(">"))
        of_column = pyarrow.list_(item) if kind.startswith("list") else item
        columns[name] = pyarrow.array([row.get(name) for row in rows], of_column)
    described = {b"corag": json.dumps(without_secrets(metadata), sort_keys=True, default=str).encode()}
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(
        pyarrow.table(columns).replace_schema_metadata(described), sink, compression="zstd", compression_level=19
    )
    write_atomically(path, sink.getvalue().to_pybytes())


class Classes(NamedTuple):
    """What an agent chooses among: configurations, the label of each measured one, and its search settings.

    `grid` is None where every configuration is a class of its own.
    """

    names: tuple[str, ...]
    label: NDArray[np.int64]  # [C]
    grid: MeasuredGrid | None


@dataclass(frozen=True, eq=False)
class Labels:
    """What every configuration gave on every question.

    Attributes:
        ids: Name of each question, with its data folder in front, `n`.
        data: Data folder of each question, `[n]`.
        split: Split that the data folder gives it, `[n]`.
        group: Questions of one group share documents and are never on both sides of a division, `[n]`.
        questions: Texts, `n`; empty where the table has none.
        configurations: Spellings, `C`, in the order in which the table first names them.
        measures: float64 `[n, C]` by name; NaN where a question has no such figure. Of several readers or budgets the
            mean.
        query_vectors: Embedding of each question, float32 `[n, d]`.
        candidates_vectors: Mean embedding of each question's best candidates, float32 `[n, d]`.
        similarities: Each question's similarities to its candidates, best first.
        budgets: Token budgets that the figures are means over.
        metadata: Of each table that was read.
    """

    ids: tuple[str, ...]
    data: NDArray[np.str_]
    split: NDArray[np.str_]
    group: NDArray[np.str_]
    questions: NDArray[np.str_]
    configurations: tuple[str, ...]
    measures: Mapping[str, FloatArray]
    query_vectors: Float32
    candidates_vectors: Float32
    similarities: tuple[Float32, ...]
    budgets: tuple[int, ...]
    metadata: tuple[Mapping[str, Any], ...]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def embedder(self) -> str:
        """Name of the embedder of all vectors."""
        return str(self.metadata[0]["embedder"])

    def features(self, recipe: Sequence[str]) -> Float32:
        """Return the feature vectors of a recipe; see `corag.selectors.corag.features`."""
        return feature_vectors(recipe, self.query_vectors, self.candidates_vectors, self.similarities)

    def of(self, rows: ArrayLike) -> Labels:
        """Return the questions of some rows, given as indices or as a mask."""
        chosen = np.arange(len(self))[np.asarray(rows)]
        arrays = ("data", "split", "group", "questions", "query_vectors", "candidates_vectors")
        return replace(
            self,
            ids=tuple(self.ids[row] for row in chosen),
            similarities=tuple(self.similarities[row] for row in chosen),
            measures={name: values[chosen] for name, values in self.measures.items()},
            **{name: getattr(self, name)[chosen] for name in arrays},
        )

    def having(self, names: Sequence[str]) -> Labels:
        """Return the questions that have all these measures; a warning counts the others.

        An unknown measure is an `InputError`; a `DataError` says that no question has them.
        """
        for name in names:
            if name not in self.measures:
                raise InputError(f"metric {name!r} is not in the labels; their measures are {', '.join(self.measures)}")
        known = np.all([np.isfinite(self.measures[name]).all(axis=1) for name in names], axis=0)
        if not known.any():
            raise DataError(f"no question has the measure {' and '.join(names)}; choose another metric")
        if not known.all():
            missing = int((~known).sum())
            logger.warning("%d of %d questions have no %s and are left out", missing, len(self), " and ".join(names))
        return self.of(known)

    def classes(self) -> Classes:
        """Return what an agent chooses among.

        Where all configurations are spelled with iterations, exploration and cost weight of the paper's search, and
        several differ in these alone, what differs else are the classes, and a head of the agent predicts the settings.
        """
        parts = [_search_settings(name) for name in self.configurations]
        names = tuple(dict.fromkeys(name for name, _ in parts))
        settings = [of_part for _, of_part in parts]
        if None in settings or len(names) == len(parts):
            return Classes(self.configurations, np.arange(len(parts)), None)
        label = np.array([names.index(name) for name, _ in parts], dtype=np.int64)
        return Classes(names, label, MeasuredGrid(label, np.array(settings, dtype=np.float32)))


def _search_settings(configuration: str) -> tuple[str, tuple[float, float, float] | None]:
    """Return a configuration without the settings that an agent predicts, and these; None if it has them not."""
    written = parse(configuration)
    settings = dict(written.settings)
    search, cost_weight = settings.pop("search", None), settings.pop("cost_weight", None)
    if not isinstance(search, Mapping) or search.get("policy") != "paper" or cost_weight is None:
        return configuration, None
    if set(search) != {"policy", "iterations", "exploration"}:
        return configuration, None
    return str(PartName(written.name, settings)), (search["iterations"], search["exploration"], cost_weight)


def fallback_of(configuration: str) -> agent.Fallback:
    """Return a configuration as what an agent falls back on where it predicts settings."""
    name, settings = _search_settings(configuration)
    if settings is None:
        return agent.Fallback(configuration)
    return agent.Fallback(name, int(settings[0]), float(settings[1]), float(settings[2]))


def label_paths(paths: str) -> list[Path]:
    """Return the label tables that a setting names, separated by commas; none is an `InputError`."""
    if not (names := comma_separated(paths)):
        raise InputError("labels is empty; give at least one table that `corag label` wrote")
    if len(set(names)) < len(names):
        raise InputError(f"labels are {', '.join(names)}; give each table once")
    return [Path(name) for name in names]


def read_labels(paths: str) -> Labels:
    """Read label tables, separated by commas, as one.

    Tables may hold the same questions, answered by other readers, or other questions; all have one set of
    configurations. Questions that failed under any configuration, or lack one, are left out with a warning. A damaged
    table, tables of two embedders or sets of configurations, or no complete question are a `DataError`.
    """
    tables = [(str(path), *_read(path)) for path in label_paths(paths)]
    first_name, first, first_metadata = tables[0]
    configurations = list(dict.fromkeys(first["configuration"]))
    for name, columns, metadata in tables[1:]:
        if metadata["embedder"] != first_metadata["embedder"]:
            raise DataError(f"{name} and {first_name} hold vectors by two embedders; label both with one")
        if set(columns["configuration"]) != set(configurations):
            raise DataError(f"{name} and {first_name} measure different configurations; label both with one set")
    columns = {name: [value for _, of_table, _ in tables for value in of_table[name]] for name in TYPES}
    keys = [f"{data}/{query}" for data, query in zip(columns["data"], columns["query"], strict=True)]
    ids = list(dict.fromkeys(keys))
    index = {name: row for row, name in enumerate(ids)}
    rows = np.array([index[key] for key in keys])
    column = {name: place for place, name in enumerate(configurations)}
    cells = rows * len(configurations) + np.array([column[name] for name in columns["configuration"]])
    shape = (len(ids), len(configurations))
    counts = np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape)
    failed = np.zeros(len(ids), dtype=bool)
    failed[[row for row, error in zip(rows.tolist(), columns["error"], strict=True) if error]] = True
    firsts = {int(row): position for position, row in reversed(list(enumerate(rows.tolist())))}
    vectors = {row: at for at, row in reversed(list(enumerate(rows.tolist()))) if columns["query_vector"][at]}
    whole = np.all(counts > 0, axis=1) & ~failed & np.array([row in vectors for row in range(len(ids))])
    reason = next((error for error in columns["error"] if error), "configurations or vectors are missing")
    if not whole.any():
        raise DataError(f"{paths}: no question is complete; the first error: {reason}")
    if not whole.all():
        logger.warning("%d of %d questions are left out: %s", int((~whole).sum()), len(whole), reason)
    kept = np.flatnonzero(whole).tolist()
    measures = {
        name: _means(np.array(columns[name], dtype=np.float64), cells, shape)[whole]
        for name in MEASURES
        if any(value is not None for value in columns[name])
    }

    def of_questions(name: str, at: Mapping[int, int]) -> list[Any]:
        return [columns[name][at[row]] for row in kept]

    lengths = {len(columns[name][vectors[row]]) for row in kept for name in ("query_vector", "candidates_vector")}
    if len(lengths) > 1:
        raise DataError(f"{paths}: vectors have {' and '.join(map(str, sorted(lengths)))} numbers; label again")
    return Labels(
        ids=tuple(ids[row] for row in kept),
        data=np.array(of_questions("data", firsts)),
        split=np.array(of_questions("split", firsts)),
        group=np.array(of_questions("group", firsts)),
        questions=np.array([text or "" for text in of_questions("question", firsts)]),
        configurations=tuple(configurations),
        measures=measures,
        query_vectors=np.array(of_questions("query_vector", vectors), dtype=np.float32),
        candidates_vectors=np.array(of_questions("candidates_vector", vectors), dtype=np.float32),
        similarities=tuple(np.array(row, dtype=np.float32) for row in of_questions("similarities", vectors)),
        budgets=tuple(sorted(set(columns["budget_tokens"]))),
        metadata=tuple(metadata for _, _, metadata in tables),
    )


def _means(values: FloatArray, cells: NDArray[np.int64], shape: tuple[int, int]) -> FloatArray:
    """Return the mean of each cell's values, `[n, C]`; NaN for a cell with a missing one."""
    sums, counts = (np.bincount(cells, weights, shape[0] * shape[1]) for weights in (values, np.ones(len(cells))))
    return np.asarray(np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0).reshape(shape))


def read_metadata(path: Path) -> dict[str, Any]:
    """Return what a label table says of itself; a file that is missing, damaged or another is a `DataError`."""
    return _opened(path)[1]


def _opened(path: Path) -> tuple[Any, dict[str, Any]]:
    pyarrow, parquet = require("pyarrow", "experiments"), require("pyarrow.parquet", "experiments")
    remedy = f"make one with: corag label --data DIR --out {path}"
    if not path.is_file():
        raise DataError(f"{path} does not exist; {remedy}")
    try:
        table = parquet.read_table(path)
        metadata: dict[str, Any] = json.loads(table.schema.metadata[b"corag"])
        _ = metadata["embedder"], metadata["settings"].get
    except (OSError, pyarrow.ArrowException, KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{path} is not a label table ({error}); {remedy}") from error
    return table, metadata


def _read(path: Path) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """Return columns and metadata of a table; what is damaged or lacks what an agent learns from is a `DataError`."""
    table, metadata = _opened(path)
    embedder = metadata["embedder"]
    if lacking := [name for name in (*REQUIRED, "similarities") if name not in table.column_names]:
        raise DataError(f"{path} has no column {lacking[0]!r}; its columns are {', '.join(table.column_names)}")
    if not table.num_rows or not isinstance(embedder, str):
        raise DataError(f"{path} has {table.num_rows} rows, and vectors by {embedder!r}; label again")
    columns: dict[str, list[Any]] = {}
    for name, kind in TYPES.items():
        if name not in table.column_names:
            columns[name] = [None] * table.num_rows
            continue
        values = columns[name] = list(table[name].to_pylist())
        if name in REQUIRED and kind == "string" and None in values:
            raise DataError(f"{path} has no {name} in row {values.index(None) + 1}; label again")
        wanted: Any = {"string": str, "list": list}.get(kind.partition("<")[0], int | float)
        for row, value in enumerate(values, start=1):
            is_wanted = isinstance(value, wanted) and (wanted in (str, list) or math.isfinite(value))
            if value is not None and not is_wanted:
                raise DataError(f"{path}, row {row}: {name} is {value!r:.80}, no {kind}; label again")
    if any(budget is None or budget < 1 for budget in columns["budget_tokens"]):
        raise DataError(f"{path} holds a budget_tokens below 1; label again")
    return columns, metadata

"""The label table: one long Parquet file, a row a question and configuration, and its reader as dense arrays.

What belongs to the question alone (embeddings and similarities) is in the first of its rows and null in the others.
Letters: `n` questions, `C` configurations, `d` numbers of an embedding.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import agent
from agent import Configuration
from common.configuration import parse
from common.storage import write_atomically
from corag.errors import DataError, InputError
from corag.optional import require
from corag.selectors.corag.features import Float32, feature_vectors
from corag.types import FloatArray
from experiments.data.config import comma_separated
from experiments.labels.config import OF_AGENT

logger = logging.getLogger(__name__)

FIGURES = (
    "rouge1", "rouge2", "rougeL", "f1", "em", "evidence_recall", "evidence_precision", "full_evidence",
    "sentence_recall", "character_recall", "answer_in_context", "answer_recall",
    "cost_tokens", "chunks", "orders_scored", "value",
)  # fmt: skip
"""What is measured; null where a question has no such figure, or failed."""
COMPLETE = ("data", "kind", "query", "split", "group", "configuration", "budget_tokens")
"""Columns without nulls."""
VECTORS = ("query_vector", "candidates_vector", "similarities")
"""Columns with a value in the first row of each question."""

Row = Mapping[str, Any]


def _schema() -> Any:
    """Return the columns and their types."""
    pyarrow = require("pyarrow", "experiments")
    half = pyarrow.list_(pyarrow.float16())
    return pyarrow.schema(
        {
            **dict.fromkeys(("data", "kind", "query", "split", "group", "question", "configuration"), pyarrow.string()),
            "budget_tokens": pyarrow.int64(),
            **dict.fromkeys(FIGURES, pyarrow.float64()),
            "error": pyarrow.string(),
            **dict.fromkeys(VECTORS[:2], half),
            "similarities": pyarrow.list_(pyarrow.float32()),
        }
    )


def write_labels(path: Path, rows: Sequence[Row], metadata: Mapping[str, Any]) -> Any:
    """Write rows as Parquet, whole or not at all, with `metadata` in the schema; what a row lacks is null.

    Pages and metadata have checksums, so that a table that was damaged later is not read.
    """
    pyarrow, parquet = require("pyarrow", "experiments"), require("pyarrow.parquet", "experiments")
    described = json.dumps(metadata, sort_keys=True, default=str).encode()
    about = {b"corag": described, b"sha256": hashlib.sha256(described).hexdigest().encode()}
    table = pyarrow.Table.from_pylist(rows, _schema().with_metadata(about))
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(table, sink, compression="zstd", compression_level=19, write_page_checksum=True)
    write_atomically(path, sink.getvalue().to_pybytes())
    return table


@dataclass(frozen=True, eq=False)
class Classes:
    """What an agent chooses among.

    Attributes:
        names: Configurations, or classes of those that differ in the settings of the paper's search alone.
        label: The class of each measured configuration, `[C]`.
        settings: Search settings of each measured configuration, in natural units, `[C, 3]`; None where every
            configuration is a class of its own.
    """

    names: tuple[Configuration, ...]
    label: NDArray[np.int64]
    settings: Float32 | None = None

    def nearest(self, label: ArrayLike, settings: ArrayLike, ranges: agent.Ranges) -> NDArray[np.int64]:
        """Return the index of the measured configuration that stands for each prediction, `[n]`.

        It has the same label, `[n]`, and the settings, `[n, 3]`, nearest on the scale [0, 1] of `ranges`; ties go to
        the first.
        """
        assert self.settings is not None
        apart = ranges.to_unit(settings)[:, None] - ranges.to_unit(self.settings)[None]
        same = self.label == np.asarray(label)[:, None]
        distance = np.where(same, np.square(apart).sum(axis=-1), np.inf)
        return np.asarray(distance.argmin(axis=1), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Labels:
    """What every configuration gave on every question.

    Attributes:
        ids: Name of each question, with its data folder in front, `n`.
        data: Data folder of each question, `[n]`.
        kind: Its kind, which may be that of several data folders, `[n]`.
        split: Split that the data folder gives it, `[n]`.
        group: Questions of one group share documents and are never on both sides of a division, `[n]`.
        configurations: What is measured, `C`, in the order in which the table first names them.
        measures: float64 `[n, C]` by name; NaN where a question has no such figure. Of several readers the mean.
        query_vectors: Embedding of each question, float32 `[n, d]`.
        candidates_vectors: Mean embedding of each question's best candidates, float32 `[n, d]`.
        similarities: Each question's similarities to its candidates, best first.
        budget: Token budget of each question, `[n]`: asked under several, it is a question each.
        metadata: Of each table that was read; all have one embedder.
    """

    ids: tuple[str, ...]
    data: NDArray[np.str_]
    kind: NDArray[np.str_]
    split: NDArray[np.str_]
    group: NDArray[np.str_]
    configurations: tuple[Configuration, ...]
    measures: Mapping[str, FloatArray]
    query_vectors: Float32
    candidates_vectors: Float32
    similarities: tuple[Float32, ...]
    budget: NDArray[np.int64]
    metadata: tuple[Mapping[str, Any], ...]

    def __len__(self) -> int:
        return len(self.ids)

    def features(self, recipe: Sequence[str]) -> Float32:
        """Return the feature vectors of a recipe; see `corag.selectors.corag.features`."""
        return feature_vectors(recipe, self.query_vectors, self.candidates_vectors, self.similarities)

    def of(self, rows: ArrayLike) -> Labels:
        """Return the questions of some rows, given as indices or as a mask."""
        chosen = np.arange(len(self))[np.asarray(rows)]
        arrays = [name for name, value in vars(self).items() if isinstance(value, np.ndarray)]
        return replace(
            self,
            ids=tuple(self.ids[row] for row in chosen),
            similarities=tuple(self.similarities[row] for row in chosen),
            measures={name: values[chosen] for name, values in self.measures.items()},
            **{name: getattr(self, name)[chosen] for name in arrays},
        )

    def classes(self) -> Classes:
        """Return what an agent chooses among.

        Where all configurations are spelled with iterations, exploration and cost weight of the paper's search, and
        several differ in these alone, what differs else are the classes; otherwise every configuration is one.
        """
        parts = [search_settings(name) for name in self.configurations]
        names = tuple(dict.fromkeys(name for name, _ in parts))
        settings = [of_part for _, of_part in parts]
        if None in settings or len(names) == len(parts):
            return Classes(self.configurations, np.arange(len(parts)))
        label = np.array([names.index(name) for name, _ in parts], dtype=np.int64)
        return Classes(names, label, np.array(settings, dtype=np.float32))


def search_settings(configuration: Configuration) -> tuple[Configuration, tuple[int, float, float] | None]:
    """Return a configuration without the settings that an agent predicts, and these; None if it has them not."""
    search, cost_weight = (configuration.settings.get(name) for name in ("search", "cost_weight"))
    if not isinstance(search, Mapping) or search.get("policy") != "paper" or cost_weight is None:
        return configuration, None
    if not {"iterations", "exploration"} <= search.keys():
        return configuration, None
    settings = {key: value for key, value in configuration.settings.items() if key not in ("search", "cost_weight")}
    if others := {name: value for name, value in search.items() if name not in OF_AGENT}:
        settings["search"] = others
    found = int(search["iterations"]), float(search["exploration"]), float(cost_weight)
    return Configuration(configuration.name, settings), found


def label_paths(paths: str) -> list[Path]:
    """Return the label tables that a setting names, separated by commas or the one of this name; none: `InputError`."""
    # Pathlib fails where a list is too long for a name.
    if not (names := [paths] if os.path.isfile(paths) else comma_separated(paths)):  # noqa: PTH113
        raise InputError("labels is empty; give at least one table that `corag label` wrote")
    if len(set(names)) < len(names):
        raise InputError(f"labels are {', '.join(names)}; give each table once")
    return [Path(name) for name in names]


def read_labels(paths: str) -> Labels:
    """Read label tables, as `label_paths` names them, as one.

    Tables may hold the same questions, answered by other readers, or other questions; all have one set of
    configurations. Questions that failed under any configuration, or lack one, are left out with a warning. A damaged
    table, tables of two embedders or sets of configurations, or no complete question are a `DataError`.
    """
    given = label_paths(paths)
    metadata, tables = [read_metadata(path) for path in given], [_read(path) for path in given]
    if len({of_table["embedder"] for of_table in metadata}) > 1:
        raise DataError(f"{paths} hold vectors by several embedders; label all with one")
    if len({frozenset(table["configuration"].to_pylist()) for table in tables}) > 1:
        raise DataError(f"{paths} measure different configurations; label all with one set")
    table = require("pyarrow", "experiments").concat_tables(tables)
    compute = require("pyarrow.compute", "experiments")
    names = compute.binary_join_element_wise(table["data"], table["query"], "/")
    if len(compute.unique(table["budget_tokens"])) > 1:
        names = compute.binary_join_element_wise(names, table["budget_tokens"].cast("string"), "@")
    ids, rows = _numbered(names)
    asked = compute.binary_join_element_wise(names, table["question"].fill_null(""), " ")
    if len(compute.unique(asked)) > len(ids):
        raise DataError(f"{paths} have other questions of one data folder and id; give the folders other names")
    configurations, columns = _numbered(table["configuration"])
    shape = (len(ids), len(configurations))
    cells = rows * shape[1] + columns
    counts = np.bincount(cells, minlength=shape[0] * shape[1])
    failed = compute.not_equal(table["error"].fill_null(""), "").to_numpy()
    # Each question's first row with vectors; of several tables it may have several.
    with_vector = np.flatnonzero(np.logical_and.reduce([table[name].is_valid().to_numpy() for name in VECTORS]))
    found, at = np.unique(rows[with_vector], return_index=True)
    whole = (counts.reshape(shape) > 0).all(axis=1) & np.isin(np.arange(len(ids)), found)
    whole[rows[failed]] = False
    reason = table["error"].filter(failed)[0] if failed.any() else "configurations or vectors are missing"
    if not whole.any():
        raise DataError(f"{paths}: no question is complete; the first error: {reason}")
    if not whole.all():
        logger.warning("%d of %d questions are left out: %s", int((~whole).sum()), len(whole), reason)
    measures = {}
    for name in FIGURES:
        if table[name].null_count < len(table):
            sums = np.bincount(cells, table[name].to_numpy(), shape[0] * shape[1]).reshape(shape)
            measures[name] = sums[whole] / counts.reshape(shape)[whole]
    if not np.isfinite(measures.get("cost_tokens", np.nan)).all():
        raise DataError(f"{paths}: cost_tokens is missing in a row without an error; label again")
    questions = table.take(with_vector[at[whole[found]]])
    vectors = {name: [np.array(row, dtype=np.float32) for row in questions[name].to_pylist()] for name in VECTORS}
    if len(lengths := {len(vector) for name in VECTORS[:2] for vector in vectors[name]}) > 1:
        raise DataError(f"{paths}: vectors have {' and '.join(map(str, sorted(lengths)))} numbers; label again")
    if not all(np.isfinite(vector).all() for of_name in vectors.values() for vector in of_name):
        raise DataError(f"{paths}: a vector holds a number that is missing or not finite; label again")
    texts: dict[str, Any] = {
        name: np.array(questions[name].to_pylist(), dtype=np.str_) for name in ("data", "kind", "split", "group")
    }
    return Labels(
        ids=tuple(np.array(ids)[whole].tolist()),
        configurations=tuple(map(parse, configurations)),
        measures=measures,
        query_vectors=np.stack(vectors["query_vector"]),
        candidates_vectors=np.stack(vectors["candidates_vector"]),
        similarities=tuple(vectors["similarities"]),
        budget=questions["budget_tokens"].to_numpy().astype(np.int64),
        metadata=tuple(metadata),
        **texts,
    )


def _numbered(column: Any) -> tuple[list[str], NDArray[np.int64]]:
    """Return the values of a column, each once, in the order in which they first appear, and the number of each row."""
    encoded = column.combine_chunks().dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)


def read_units(path: Path) -> dict[str, dict[str, Any]]:
    """Return the rows of each question of a table, by its name, as a journal of `corag label` has them."""
    units: dict[str, dict[str, Any]] = {}
    models = read_metadata(path)["models"]
    for row in _read(path).to_pylist():
        units.setdefault(f"{row['data']}/{row['query']}", {"rows": [], "models": models})["rows"].append(row)
    return units


def read_metadata(path: Path) -> dict[str, Any]:
    """Return what a label table says of itself; a file that is missing, damaged or another is a `DataError`."""
    pyarrow, parquet = require("pyarrow", "experiments"), require("pyarrow.parquet", "experiments")
    remedy = "make one with: corag label --data DIR --out labels.parquet"
    if not path.is_file():
        raise DataError(f"there is no file {path}; {remedy}")
    try:
        about = parquet.read_schema(path).metadata
        metadata: dict[str, Any] = json.loads(described := about[b"corag"])
        if about[b"sha256"] != hashlib.sha256(described).hexdigest().encode():
            raise ValueError("its metadata has changed since it was written")
        _ = metadata["embedder"].casefold, metadata["settings"].get
    except (OSError, pyarrow.ArrowException, KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{path} is not a label table ({error}); {remedy}") from error
    return metadata


def _read(path: Path) -> Any:
    """Return a table in the columns of `_schema`; a damaged or useless one is a `DataError`."""
    pyarrow, parquet = require("pyarrow", "experiments"), require("pyarrow.parquet", "experiments")
    compute = require("pyarrow.compute", "experiments")
    try:
        table = parquet.read_table(path, page_checksum_verification=True)
        # The footer has no checksum: without this a column of another name would be one that is missing.
        if unknown := set(table.column_names) - set(_schema().names):
            raise KeyError(f"unknown column {min(unknown)}")
        for field in _schema():
            if field.name in FIGURES and field.name not in table.column_names:
                table = table.append_column(field, pyarrow.nulls(len(table), field.type))
        table = table.select(_schema().names).cast(_schema())
    except (OSError, KeyError, pyarrow.ArrowException) as error:
        raise DataError(f"{path} is damaged ({error}); label again") from error
    damaged = [name for name in COMPLETE if not len(table) or table[name].null_count]
    damaged += [name for name in FIGURES if compute.all(compute.is_finite(table[name])).as_py() is False]
    damaged += ["budget_tokens"] if (compute.min(table["budget_tokens"]).as_py() or 0) < 1 else []
    if damaged:
        raise DataError(
            f"{path}: no rows, or values of {damaged[0]} that are missing, not finite or below 1; label again"
        )
    return table

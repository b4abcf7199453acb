"""Label tables as dense arrays: one row per question, one column per configuration.

Figures of several readers or budgets are averaged. Letters: `n` questions, `C` configurations, `d` numbers of an
embedding.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

import agent
from agent.training.data import MeasuredGrid
from corag.errors import DataError, InputError
from corag.selectors.corag.features import Float32, feature_vectors
from experiments.data.config import comma_separated
from experiments.labels.config import Choice
from experiments.labels.table import FIGURES, read_questions, read_table

logger = logging.getLogger(__name__)

SETTINGS = ("iterations", "exploration", "cost_weight")
FloatArray = NDArray[np.float64]


class LabelledCell(NamedTuple):
    """A reranker with settings of the search."""

    reranker: str
    iterations: int
    exploration: float
    cost_weight: float


@dataclass(frozen=True, eq=False)
class LabelArrays:
    """What every configuration gave on every question.

    Attributes:
        ids: Name of each question, with its data folder in front, `n`.
        data: Data folder of each question, `[n]`.
        split: Split that the data folder gives it, `[n]`.
        group: Questions of one group share documents and never stand on both sides of a division, `[n]`.
        configurations: `C`, in the order in which the table first names them.
        figures: Figures of the table, and `budget_share` (tokens over budget), float64 `[n, C]`; NaN where a question
            has no such figure.
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
    configurations: tuple[LabelledCell, ...]
    figures: Mapping[str, FloatArray]
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

    @property
    def choice(self) -> Choice:
        """What the answers of the searches maximise; `value` for labels of earlier versions."""
        return cast(Choice, self.metadata[0]["settings"].get("choice", "value"))

    @cached_property
    def rerankers(self) -> tuple[str, ...]:
        """Names in label order."""
        return tuple(dict.fromkeys(configuration.reranker for configuration in self.configurations))

    @cached_property
    def grid(self) -> MeasuredGrid:
        """The configurations as the agent knows them."""
        labels = [self.rerankers.index(configuration.reranker) for configuration in self.configurations]
        settings = [[getattr(configuration, name) for name in SETTINGS] for configuration in self.configurations]
        return MeasuredGrid(np.array(labels, dtype=np.int64), np.array(settings, dtype=np.float32))

    @property
    def ranges(self) -> agent.Ranges:
        """Lowest and highest measured value of each setting."""
        columns = [[getattr(configuration, name) for configuration in self.configurations] for name in SETTINGS]
        return agent.Ranges(*((min(column), max(column)) for column in columns))

    def features(self, recipe: Sequence[str]) -> Float32:
        """Return the feature vectors of a recipe; see `corag.selectors.corag.features`."""
        return feature_vectors(recipe, self.query_vectors, self.candidates_vectors, self.similarities)

    def of(self, rows: ArrayLike) -> LabelArrays:
        """Return the questions of some rows, given as indices or as a mask."""
        chosen = np.arange(len(self))[np.asarray(rows)]
        return replace(
            self,
            ids=tuple(self.ids[row] for row in chosen),
            similarities=tuple(self.similarities[row] for row in chosen),
            figures={name: values[chosen] for name, values in self.figures.items()},
            **{name: getattr(self, name)[chosen] for name in _ARRAYS},
        )

    def having(self, names: Sequence[str]) -> LabelArrays:
        """Return the questions that have all these figures; a warning counts the others.

        An unknown figure is an `InputError`; a `DataError` says that no question has them.
        """
        for name in names:
            if name not in self.figures:
                raise InputError(
                    f"metric {name!r} is no figure of the labels; their figures are {', '.join(self.figures)}"
                )
        known = np.all([np.isfinite(self.figures[name]).all(axis=1) for name in names], axis=0)
        if not known.any():
            raise DataError(f"no question has the figure {' and '.join(names)}; choose another metric")
        if not known.all():
            missing = int((~known).sum())
            logger.warning("%d of %d questions have no %s and are left out", missing, len(self), " and ".join(names))
        return self.of(known)


_ARRAYS = ("data", "split", "group", "query_vectors", "candidates_vectors")


def label_paths(paths: str) -> list[Path]:
    """Return the label tables that a setting names, separated by commas; none is an `InputError`."""
    if not (found := comma_separated(paths)):
        raise InputError("labels is empty; give at least one table that `corag label` wrote")
    if len(set(found)) < len(found):
        raise InputError(f"labels are {', '.join(found)}; give each table once")
    return [Path(name) for name in found]


def read_labels(paths: str) -> LabelArrays:
    """Read label tables, separated by commas, as one.

    Tables may hold the same questions, answered by other readers, or other questions; all have one grid. Questions that
    failed for any configuration, or lack one, are left out with a warning. A damaged table, another version, tables of
    two embedders or grids, or no complete question are a `DataError`.
    """
    names = [str(path) for path in label_paths(paths)]
    tables = [(name, *read_table(name, complete=True), read_questions(name, complete=True)[0]) for name in names]
    first_name, _, first, _ = tables[0]
    for name, _, metadata, _ in tables[1:]:
        mine, its = (one["settings"].get("choice", "value") for one in (first, metadata))
        if mine != its:
            raise DataError(f"answers were picked by {its!r} in {name}, by {mine!r} in {first_name}; label both alike")
        if metadata["embedder"] != first["embedder"]:
            raise DataError(
                f"{name} holds vectors by the embedder {metadata['embedder']!r}, {first_name} by "
                f"{first['embedder']!r}; label both with one embedder"
            )
    grids = {name: dict.fromkeys(map(_configuration, rows)) for name, rows, _, _ in tables}
    for name, grid in grids.items():
        if set(grid) != set(grids[first_name]):
            raise DataError(
                f"{name} and {first_name} measure different configurations ({len(grid)} and {len(grids[first_name])}); "
                "label both with one grid"
            )
    configurations = tuple(grids[first_name])
    questions = {_question_id(row): row for _, _, _, rows in tables for row in rows}
    rows = [row for _, rows, _, _ in tables for row in rows]
    kept, figures = _dense(rows, configurations, list(questions), ", ".join(names))
    whole = [questions[name] for name in kept]
    return LabelArrays(
        ids=tuple(kept),
        data=np.array([row["data"] for row in whole]),
        split=np.array([row["split"] for row in whole]),
        group=np.array([row["group"] for row in whole]),
        configurations=tuple(LabelledCell(*configuration) for configuration in configurations),
        figures=figures,
        query_vectors=_vectors(whole, "query_vector", first_name),
        candidates_vectors=_vectors(whole, "candidates_vector", first_name),
        similarities=tuple(np.array(row["similarities"], dtype=np.float32) for row in whole),
        budgets=tuple(sorted({row["budget_tokens"] for row in rows})),
        metadata=tuple(metadata for _, _, metadata, _ in tables),
    )


def _question_id(row: Mapping[str, Any]) -> str:
    return f"{row['data']}/{row['query']}"


def _configuration(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return (row["reranker"], *(row[name] for name in SETTINGS))


def _dense(
    rows: Sequence[Mapping[str, Any]], configurations: Sequence[tuple[Any, ...]], questions: Sequence[str], where: str
) -> tuple[list[str], dict[str, FloatArray]]:
    """Return the whole questions and the means of their figures, each `[n, C]`."""
    places = {name: place for place, name in enumerate(questions)}
    columns = {configuration: place for place, configuration in enumerate(configurations)}
    unknown = next((row for row in rows if _question_id(row) not in places), None)
    if unknown is not None:
        raise DataError(
            f"{where}: question {_question_id(unknown)!r} has no line in the table of questions; label again"
        )
    cells = np.array([places[_question_id(row)] * len(columns) + columns[_configuration(row)] for row in rows])
    shape, size = (len(questions), len(columns)), len(questions) * len(columns)
    measured = np.bincount(cells, minlength=size).reshape(shape)
    failed = [row for row in rows if row.get("error")]
    whole: NDArray[np.bool_] = np.all(measured > 0, axis=1)
    whole[[places[_question_id(row)] for row in failed]] = False
    first_error = failed[0]["error"] if failed else "configurations are missing"
    if not whole.any():
        raise DataError(f"{where}: no question has every configuration; the first error: {first_error}")
    if not whole.all():
        lost = int((~whole).sum())
        logger.warning("%d of %d questions failed and are left out: %s", lost, len(whole), first_error)
    figures: dict[str, FloatArray] = {}
    names = [name for name in FIGURES if name in rows[0]]
    for name in (*names, "budget_share"):
        # None becomes NaN.
        values = np.array(
            [row.get("cost_tokens" if name == "budget_share" else name) for row in rows], dtype=np.float64
        )
        values = values / [row["budget_tokens"] for row in rows] if name == "budget_share" else values
        known = ~np.isnan(values)
        sums = np.bincount(cells[known], weights=values[known], minlength=size).reshape(shape)
        counts = np.bincount(cells[known], minlength=size).reshape(shape)
        means = np.divide(sums, counts, out=np.full(shape, np.nan), where=(counts == measured) & (counts > 0))
        figures[name] = means[whole]
    return [name for name, is_whole in zip(questions, whole, strict=True) if is_whole], figures


def _vectors(questions: Sequence[Mapping[str, Any]], name: str, where: str) -> Float32:
    lengths = {len(row[name]) for row in questions}
    if len(lengths) > 1:
        raise DataError(f"{where}: {name} has {' and '.join(map(str, sorted(lengths)))} numbers; label again")
    return np.array([row[name] for row in questions], dtype=np.float32)

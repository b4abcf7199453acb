"""Labels over kinds as dense arrays: one row a question, one column a configuration that all kinds were labelled with.

Letters: `n` questions, `C` configurations, `d` numbers of an embedding.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from corag.errors import DataError
from corag.selectors.corag.features import Float32, feature_vectors
from corag.selectors.corag.routing import Worth
from corag.types import FloatArray
from experiments.labels.table import read_questions
from experiments.protocol.leads import Quality
from experiments.tune.configurations import DEFAULT
from experiments.tune.table import read_labels

logger = logging.getLogger(__name__)

FIGURES = ("f1", "rougeL", "evidence_recall", "full_evidence", "answer_in_context", "cost_tokens")
ARRAYS = ("kinds", "parts", "groups", "queries", "candidates")
LEAST_QUESTIONS = 5
"""With fewer, nothing is known of how much the questions of a kind differ."""


@dataclass(frozen=True, eq=False)
class KindLabels:
    """What every configuration gave on every question.

    Attributes:
        names: The configurations, the default first, `C`.
        quality: Of each configuration on each question, `[n, C]`.
        figures: Single figures, likewise; nan where a question has none.
        kinds: Kind of each question, `[n]`.
        parts: `training` or `choosing`, `[n]`.
        groups: Questions of one group share documents, `[n]`.
        queries: Embedding of each question, `[n, d]`.
        candidates: Mean embedding of its best candidates, `[n, d]`.
        seconds: Of a selection by each configuration, `[C]`; zeros where no time was measured.
        budget: Tokens that a context could have.
        embedder: Name of the embedder.
    """

    names: tuple[str, ...]
    quality: FloatArray
    figures: Mapping[str, FloatArray]
    kinds: NDArray[np.str_]
    parts: NDArray[np.str_]
    groups: NDArray[np.str_]
    queries: Float32
    candidates: Float32
    seconds: FloatArray
    budget: int
    embedder: str

    def __len__(self) -> int:
        return len(self.quality)

    @property
    def kind_names(self) -> tuple[str, ...]:
        """The kinds, sorted."""
        return tuple(sorted(set(self.kinds.tolist())))

    @property
    def measured(self) -> Worth:
        """Quality and costs of each question, `[n, C]`."""
        return Worth(self.quality, self.figures["cost_tokens"] / self.budget, self.seconds)

    def of(self, rows: ArrayLike) -> KindLabels:
        """Return some of the questions, given as places or as a mask."""
        chosen = np.arange(len(self))[np.asarray(rows)]
        return replace(
            self,
            quality=self.quality[chosen],
            figures={name: values[chosen] for name, values in self.figures.items()},
            **{name: getattr(self, name)[chosen] for name in ARRAYS},
        )

    @classmethod
    def joined(cls, parts: Sequence[KindLabels]) -> KindLabels:
        """Return the questions of all parts."""
        arrays: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in ARRAYS}
        return replace(
            parts[0],
            quality=np.concatenate([part.quality for part in parts]),
            figures={name: np.concatenate([part.figures[name] for part in parts]) for name in parts[0].figures},
            **arrays,
        )

    def features(self, recipe: Sequence[str]) -> FloatArray:
        """Return feature vectors, `[n, feature_dim]`; see `corag.selectors.corag.features`."""
        return feature_vectors(recipe, self.queries, self.candidates).astype(np.float64)


def times_path(labels: Path | str) -> Path:
    """Return where the seconds of each configuration stand, by kind."""
    return Path(labels).with_suffix(".seconds.json")


def read_kind_labels(paths: Sequence[str], quality: Quality) -> KindLabels:
    """Read tables of labels over kinds, with what `experiments.routing.prepare` wrote beside each.

    Raises:
        DataError: Tables differ in budget or embedder, a question has no vectors, all questions lack answers and gold,
            or there are fewer than two kinds with enough questions.
    """
    by_question: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
    vectors: dict[tuple[str, str], Mapping[str, Any]] = {}
    embedders: dict[str, str] = {}
    budgets: dict[int, str] = {}
    for path in paths:
        for row in read_labels(path):
            by_question.setdefault((row["kind"], row["query"]), {})[row["configuration"]] = row
            budgets.setdefault(row["budget_tokens"], path)
        questions, metadata = read_questions(path)
        vectors |= {(row["data"], row["query"]): row for row in questions}
        embedders.setdefault(str(metadata.get("embedder")), path)
    for what, found in (("budgets", budgets), ("embedders", embedders)):
        if len(found) > 1:
            said = " and ".join(f"{one} in {path}" for one, path in found.items())
            raise DataError(f"labels mix {what}: {said}; label and embed all alike")
    if lost := [key for key in by_question if key not in vectors]:
        raise DataError(
            f"question {lost[0][1]!r} of kind {lost[0][0]!r} has no vectors; run: "
            f"python -m experiments.routing.prepare --labels {paths[0]}"
        )
    names = _common(by_question)
    kept = _enough(by_question, names, quality)
    rows = [[by_question[key][name] for name in names] for key in kept]
    first = [of_one[0] for of_one in rows]
    return KindLabels(
        names,
        np.array([[quality.of(row) for row in of_one] for of_one in rows], dtype=np.float64),
        {name: np.array([[_figure(row, name) for row in of_one] for of_one in rows]) for name in FIGURES},
        np.array([kind for kind, _ in kept]),
        np.array([row["part"] for row in first]),
        np.array([f"{row['kind']}/{row['group']}" for row in first]),
        np.array([vectors[key]["query_vector"] for key in kept], dtype=np.float32),
        np.array([vectors[key]["candidates_vector"] for key in kept], dtype=np.float32),
        _seconds(paths, names),
        next(iter(budgets)),
        next(iter(embedders)),
    )


def _common(by_question: Mapping[tuple[str, str], Mapping[str, Any]]) -> tuple[str, ...]:
    first = next(iter(by_question.values()))
    names = [name for name in first if all(name in found for found in by_question.values())]
    if DEFAULT not in names or len(names) < 2:
        raise DataError(
            f"the labels have {', '.join(names) or 'no configuration'} on all questions; a router needs {DEFAULT!r} "
            "and another one: label again"
        )
    return (DEFAULT, *(name for name in names if name != DEFAULT))


def _enough(
    by_question: Mapping[tuple[str, str], Mapping[str, Mapping[str, Any]]], names: Sequence[str], quality: Quality
) -> list[tuple[str, str]]:
    """Return the questions that can be learned from, of kinds that have enough of them."""
    useful = [key for key, found in by_question.items() if all(quality.of(found[name]) is not None for name in names)]
    if not useful:
        raise DataError("no question has an answer or gold passages to compare with; label questions that have")
    sizes: dict[str, int] = {}
    for kind, _ in useful:
        sizes[kind] = sizes.get(kind, 0) + 1
    enough = {kind for kind, size in sizes.items() if size >= LEAST_QUESTIONS}
    if small := sorted(set(sizes) - enough):
        logger.warning("kinds with fewer than %d questions are left out: %s", LEAST_QUESTIONS, ", ".join(small))
    if len(enough) < 2:
        raise DataError(
            f"the labels have {len(useful)} questions of {len(enough)} kinds with at least {LEAST_QUESTIONS}; a router "
            "needs two kinds: for one, use corag tune"
        )
    return [key for key in useful if key[0] in enough]


def _figure(row: Mapping[str, Any], name: str) -> float:
    # A selection that failed found nothing, and costs nothing.
    return float(row.get(name, 0.0 if row.get("failed") else np.nan))


def _seconds(paths: Sequence[str], names: Sequence[str]) -> FloatArray:
    """Return the mean over kinds of the seconds of each configuration."""
    found: list[Mapping[str, float]] = []
    for path in paths:
        if times_path(path).is_file():
            found += json.loads(times_path(path).read_text(encoding="utf-8")).values()
    if not found:
        return np.zeros(len(names))
    for name in names:
        if not any(name in of_kind for of_kind in found):
            raise DataError(f"{times_path(paths[0])} has no time of {name}; delete it, and prepare again")
    return np.array([np.mean([of_kind[name] for of_kind in found if name in of_kind]) for name in names])

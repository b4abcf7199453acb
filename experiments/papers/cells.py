"""The cells of a study: every combination of its axes, as settings of one comparison.

Settings of a cell are those of `base`, and over them those of each axis' value. They go three ways: to `corag
evaluate`; to how the data is made ready (`DATA_SETTINGS`); and all others into every method that takes a setting of
that name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from itertools import product
from typing import Any

from corag.errors import InputError
from corag.naming import PartName, nearest, parse
from corag.registry import SELECTORS
from experiments.evaluation.config import EvaluateConfig
from experiments.papers.study import METHOD, Study, as_list
from experiments.run.journal import fingerprint
from search import SearchConfig

DATA_SETTINGS = {
    "references": "whether a reader writes the reference answers of questions that have none",
    "references_reader": "that reader; by default the one that answers",
    "noise": "share of noise among the candidates",
    "redundancy": "share of rewritings among the candidates",
    "size": "candidates of each question, with noise or redundancy",
    "stress": "further settings of `experiments.data.stress_sets.StressConfig`",
}
"""Settings of how the data of a cell is made ready."""
OWN = (
    "methods", "out", "runs", "sets", "budgets", "baselines", "quiet",
)  # fmt: skip
"""Settings of `corag evaluate` that a study has in another form, or that the driver sets."""
EVALUATE_SETTINGS = tuple(one.name for one in fields(EvaluateConfig) if one.name not in OWN)

SEARCH_FIELDS = tuple(one.name for one in fields(SearchConfig) if one.name != "cost_weight")
"""Settings of a search, which `corag` takes together."""


@dataclass(frozen=True)
class Cell:
    """One combination of the axes.

    Attributes:
        values: Name of the value of each axis.
        settings: Settings of `corag evaluate`.
        data: Settings of how its data is made ready.
        methods: Spelling of each method, by its name in the table.
    """

    values: Mapping[str, str]
    settings: Mapping[str, Any]
    data: Mapping[str, Any]
    methods: Mapping[str, str]

    @property
    def name(self) -> str:
        """Values of the axes, as `--only` and files have them."""
        return "-".join(self.values.values()) or "all"


@dataclass
class Run:
    """One comparison: cells that differ in settings of methods alone share it.

    Attributes:
        settings: Settings of `corag evaluate`.
        data: Settings of how its data is made ready.
        cells: The cells.
    """

    settings: Mapping[str, Any]
    data: Mapping[str, Any]
    cells: list[Cell] = field(default_factory=list)

    @property
    def methods(self) -> list[str]:
        """Spellings of all methods, each once."""
        return list(dict.fromkeys(text for cell in self.cells for text in cell.methods.values()))

    @property
    def key(self) -> str:
        """Hash of all that the run depends on, but for what its files and models hold."""
        return fingerprint([self.settings, self.data, sorted(self.methods)])


def cells_of(study: Study) -> list[Cell]:
    """Return the cells of a study, the last axis varying fastest.

    Raises:
        InputError: A setting is one of nothing, or no cell is left.
    """
    values = product(*([(axis, name) for name in study.axes[axis]] for axis in study.axes))
    cells = [cell for one in values if (cell := _cell(study, dict(one))) is not None]
    if not cells:
        raise InputError(f"{study.name}: `skip` leaves no cell")
    return cells


def runs_of(cells: list[Cell]) -> list[Run]:
    """Return the comparisons that measure some cells."""
    runs: dict[str, Run] = {}
    for cell in cells:
        runs.setdefault(fingerprint([cell.settings, cell.data]), Run(cell.settings, cell.data)).cells.append(cell)
    return list(runs.values())


def _cell(study: Study, values: dict[str, str]) -> Cell | None:
    """Return the cell of some values; None where it is left out."""
    methods = dict(study.methods)
    for rule in study.skip:
        if all(values[axis] in as_list(wanted) for axis, wanted in rule.items() if axis != METHOD):
            for label in as_list(rule.get(METHOD, list(methods))):
                methods.pop(label, None)
    if study.methods and not methods:
        return None
    merged = {**study.base}
    for axis, name in values.items():
        merged |= study.axes[axis][name]
    settings = {name: merged.pop(name) for name in list(merged) if name in EVALUATE_SETTINGS}
    data = {name: merged.pop(name) for name in list(merged) if name in DATA_SETTINGS}
    _check(study, merged)
    return Cell(values, settings, data, {label: with_settings(text, merged) for label, text in methods.items()})


def with_settings(method: str, settings: Mapping[str, Any]) -> str:
    """Return the spelling of a method with those of some settings that it takes, in place of its own.

    Fields of `search.SearchConfig` become part of the setting `search` of a method that has it.
    """
    written, own = parse(method), SELECTORS.settings(method)
    taken = {name: value for name, value in settings.items() if name in own}
    if "search" in own and (fields := {name: settings[name] for name in SEARCH_FIELDS if name in settings}):
        taken["search"] = {**(written.settings.get("search") or {}), **fields}
    return PartName(written.name, {**written.settings, **taken})


def _taken(method: str) -> Iterator[str]:
    """Yield the settings that a method takes."""
    own = SELECTORS.settings(method)
    yield from own
    if "search" in own:
        yield from SEARCH_FIELDS


def _check(study: Study, settings: Mapping[str, Any]) -> None:
    """Raise `InputError` for a setting that is none of `corag evaluate`, of the data or of a method."""
    taken = {name for text in study.methods.values() for name in _taken(text)}
    for name in settings:
        if name not in taken:
            known = (*EVALUATE_SETTINGS, *DATA_SETTINGS, *sorted(taken))
            why = "is set by the study itself" if name in OWN else "is no setting of `corag evaluate`, data or a method"
            raise InputError(f"{study.name}: {name!r} {why}{nearest(name, known)}")

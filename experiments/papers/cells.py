"""The cells of a study: every combination of its axes, as settings of one comparison.

Settings of a cell are those of `base`, and over them those of each axis' value. They go to `corag
evaluate`, to how the data is prepared (`DATA_SETTINGS`), to which questions are counted (`KEEP`), and all others into
every method that takes a setting of that name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

DATA_SETTINGS = (
    "references",  # whether a reader writes the reference answers of questions that have none
    "references_reader",  # that reader; by default the one that answers
    "noise",  # share of noise among the candidates
    "redundancy",  # share of rewritings among the candidates
    "size",  # candidates of each question, with noise or redundancy
    "stress",  # with noise or redundancy: `pool`, where candidates come from, and `rewriter`, a reader that rewrites
)
"""Settings of how the data of a cell is prepared."""
KEEP = "keep"
"""Setting of the questions that are kept: `{Top-5: {full_evidence: 1}}` are those with this value of a method."""
OWN = ("methods", "out", "runs", "sets", "budgets", "curves", "quiet")
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
        data: Settings of how its data is prepared.
        methods: Spelling of each method, by its name in the table.
        keep: Values of methods, by name, that a question has to have to be counted.
    """

    values: Mapping[str, str]
    settings: Mapping[str, Any]
    data: Mapping[str, Any]
    methods: Mapping[str, str]
    keep: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Values of the axes, as `--only` and files have them."""
        return "-".join(self.values.values()) or "all"


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


def comparisons_of(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Return cells grouped by comparison: those that differ in settings of methods alone share one."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(fingerprint([cell.settings, cell.data]), []).append(cell)
    return list(groups.values())


def methods_of(cells: Sequence[Cell]) -> list[str]:
    """Return the spellings of all methods of some cells, each once."""
    return list(dict.fromkeys(text for cell in cells for text in cell.methods.values()))


def _cell(study: Study, values: dict[str, str]) -> Cell | None:
    """Return the cell of some values; None if it is left out."""
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
    keep = merged.pop(KEEP, {})
    settings = {name: merged.pop(name) for name in list(merged) if name in EVALUATE_SETTINGS}
    data = {name: merged.pop(name) for name in list(merged) if name in DATA_SETTINGS}
    known = {name for text in study.methods.values() for name in _settings_of(text)}
    for name in merged:
        if name not in known:
            names = (*EVALUATE_SETTINGS, *DATA_SETTINGS, KEEP, *sorted(known))
            why = "is set by the study itself" if name in OWN else "is no setting of `corag evaluate`, data or a method"
            raise InputError(f"{study.name}: {name!r} {why}{nearest(name, names)}")
    return Cell(values, settings, data, {label: with_settings(text, merged) for label, text in methods.items()}, keep)


def with_settings(method: str, settings: Mapping[str, Any]) -> str:
    """Return the spelling of a method with those of some settings that it takes, in place of its own.

    Fields of `search.SearchConfig` become part of the setting `search` of a method that has it.
    """
    written, own = parse(method), SELECTORS.settings(method)
    chosen = {name: value for name, value in settings.items() if name in own}
    if "search" in own and (of_search := {name: settings[name] for name in SEARCH_FIELDS if name in settings}):
        chosen["search"] = {**(written.settings.get("search") or {}), **of_search}
    return PartName(written.name, {**written.settings, **chosen})


def _settings_of(method: str) -> tuple[str, ...]:
    """Return the settings that a method takes."""
    own = SELECTORS.settings(method)
    return (*own, *SEARCH_FIELDS) if "search" in own else own

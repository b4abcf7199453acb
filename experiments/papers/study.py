"""A study: a table or figure of a paper, or an ablation, as one YAML file of settings of `corag evaluate`.

The product of the grid gives the cells, each the settings of one `corag evaluate`: those of `evaluate`, and over them
those of each value. A name that is no setting of the command is one of how the data is prepared (`DATA_SETTINGS`) or of
the methods, and is set in each that takes it. Loads no model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

import experiments
from agent import Configuration
from common.checks import check_choice
from common.configuration import parse
from corag.errors import DataError, InputError
from corag.registry import SELECTORS, nearest
from experiments.data.config import comma_separated
from experiments.evaluation.config import EvaluateConfig
from experiments.report.measures import MEASURES
from search import SearchConfig

CONFIGS = Path(experiments.__file__).parent / "configs"
PAPERS, ABLATIONS = CONFIGS / "papers", CONFIGS / "ablations" / "search.yaml"
"""Where the studies are that can be called by name."""
METHOD = "method"
"""What a published row may name beside axes."""
DATA_SETTINGS = (
    "references",  # whether a reader writes the reference answers of questions that have none
    "references_reader",  # that reader; by default the one that answers
    "noise",  # share of noise among the candidates
    "redundancy",  # share of rewritings among the candidates
    "size",  # candidates of each question, with noise or redundancy
    "rewriter",  # with redundancy: a reader that rewrites; by default sentences change places
)
"""Settings of how the data of a cell is prepared."""
KEEP, METHODS = "keep", "methods"
"""Of a value: `{Top-5: {full_evidence: 1}}` keeps the questions with this value of a method; the methods it is for."""
OWN = (METHODS, "out", "sets", "budgets", "curves", "quiet")
"""Settings of `corag evaluate` that a study has in another form, or that the driver sets."""
CELL_SETTINGS = (*(setting.name for setting in fields(EvaluateConfig) if setting.name not in OWN), *DATA_SETTINGS)
SEARCH_FIELDS = tuple(setting.name for setting in fields(SearchConfig) if setting.name != "cost_weight")
"""Settings of a search, which `corag` takes together."""


@dataclass(frozen=True)
class Study:
    """One table or figure.

    Attributes:
        name: Name, that of its file.
        title: What it measures.
        paper: Where it is from; None for an ablation of our own.
        claim: What the paper says that it shows.
        needs: The machine and the hours of a full run.
        evaluate: Settings that all cells share.
        grid: For each axis the settings of each of its values by name. A list gives values of the setting that the axis
            is called after. Beside settings a value may have `KEEP` and `METHODS`.
        methods: Selectors by the names that the table shows.
        baseline: Method that all others are compared with, question by question; or a value of an axis, such as
            `{cost_weight: 0}`, that its other values are compared with.
        figures: Measures of the table.
        published: The paper's own figures: `rows`, each with the values of axes, a method and measures by name; where
            they are from (`source`), and what a reader should know of them (`note`).
        standin: What is laid over `evaluate`, `grid` and `methods` for a run with what ships: an axis is replaced, or
            reduced to a list of its values; null leaves a setting or a method out.
    """

    name: str
    title: str
    paper: str | None = None
    claim: str = ""
    needs: str = ""
    evaluate: Mapping[str, Any] = field(default_factory=dict)
    grid: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    methods: Mapping[str, str] = field(default_factory=dict)
    baseline: str | Mapping[str, Any] | None = None
    figures: Sequence[str] = ()
    published: Mapping[str, Any] = field(default_factory=dict)
    standin: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("evaluate", "grid", METHODS, "published", "standin"):
            if not isinstance(given := getattr(self, name), Mapping):
                raise InputError(f"{name} is {given!r:.80}; write each of its entries as name: value")
        object.__setattr__(self, "grid", {str(axis): _axis(axis, values) for axis, values in self.grid.items()})
        if not self.methods or not self.figures:
            raise InputError("a study has methods and figures; give both")
        asked = comma_separated(self.evaluate.get("measures", EvaluateConfig.measures))
        for figure in self.figures:
            check_choice("a figure", figure, (*MEASURES, *asked))
        axes: Mapping[str, Any] = {**self.grid, METHOD: self.methods}
        if self.against is not None:
            check_choice(self.against[0], self.against[1], axes.get(self.against[0], ()))
        for row in self.published.get("rows", ()):
            for name in row:
                check_choice("a name in a published row", name, (*axes, *self.figures))

    @property
    def against(self) -> tuple[str, str] | None:
        """Axis, or `method`, and value of the baseline."""
        if self.baseline is None:
            return None
        [(axis, value)] = ({METHOD: self.baseline} if isinstance(self.baseline, str) else self.baseline).items()
        return str(axis), str(value)

    def standing_in(self) -> Study:
        """Return the study with `standin` laid over it."""
        laid: dict[str, Any] = {}
        for name in ("evaluate", METHODS):
            over = {**getattr(self, name), **self.standin.get(name, {})}
            laid[name] = {key: value for key, value in over.items() if value is not None}
        grid: dict[str, Any] = dict(self.grid)
        for axis, values in self.standin.get("grid", {}).items():
            known = grid.get(axis, {})
            some = isinstance(values, list) and all(str(value) in known for value in values)
            grid[axis] = {str(value): known[str(value)] for value in values} if some else values
        return replace(self, grid=grid, **laid)


def _axis(name: str, values: Any) -> dict[str, dict[str, Any]]:
    """Return the settings of each value of an axis, by name."""
    if isinstance(values, list):
        return {str(value): {name: value} for value in values}
    return {str(value): dict(settings) for value, settings in values.items()}


def study_files() -> dict[str, Path]:
    """Return the files of the studies that can be called by name."""
    ablations = dict.fromkeys(_read(ABLATIONS)["studies"], ABLATIONS)
    return {**{file.stem: file for file in sorted(PAPERS.glob("*.yaml"))}, **ablations}


def find_study(name: str) -> Study:
    """Return the study of a name, or of a YAML file.

    Raises:
        InputError: There is none of that name, or its file has a mistake.
        DataError: The file cannot be read.
    """
    files = study_files()
    if name not in files and not name.endswith((".yaml", ".yml")):
        raise InputError(
            f"there is no study {name!r}{nearest(name, files)}; see `corag reproduce list`, or give a file"
        )
    file = files.get(name, Path(name))
    content = _read(file)
    try:
        if "studies" in content:
            own, shared = content.pop("studies")[name], content["standin"]
            over = {key: {**shared[key], **own.get("standin", {}).get(key, {})} for key in shared}
            content |= {**own, **{key: {**content[key], **own.get(key, {})} for key in ("evaluate", "grid")}}
            content["standin"] = over
        given = {key: value for key, value in content.items() if value is not None}
        return Study(**{"name": name if name in files else file.stem, **given})
    except (InputError, TypeError, AttributeError, ValueError) as error:
        raise InputError(f"{file}: {error}") from error


def _read(file: Path) -> dict[str, Any]:
    try:
        return dict(yaml.safe_load(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, yaml.YAMLError) as error:
        raise DataError(f"{file} cannot be read: {' '.join(str(error).split())}; give a YAML file") from error


@dataclass(frozen=True)
class Cell:
    """One combination of the grid.

    Attributes:
        values: Name of the value of each axis.
        settings: Settings of `corag evaluate`, and `DATA_SETTINGS`.
        methods: Spelling of each method, by its name in the table.
        keep: Values of methods, by name, that a question has to have to be counted.
    """

    values: Mapping[str, str]
    settings: Mapping[str, Any]
    methods: Mapping[str, str]
    keep: Mapping[str, Mapping[str, float]]

    @property
    def name(self) -> str:
        """Values of the axes, as files have them."""
        return "-".join(self.values.values()) or "all"


def cells_of(study: Study) -> list[Cell]:
    """Return the cells of a study, the last axis varying fastest; a setting of nothing is an `InputError`."""
    known = {name for text in study.methods.values() for name in SELECTORS.parameters(text)}
    known |= set(SEARCH_FIELDS) if "search" in known else set()
    cells = []
    for names in product(*study.grid.values()):
        values, merged = dict(zip(study.grid, names, strict=True)), dict(study.evaluate)
        for axis, name in values.items():
            merged |= study.grid[axis][name]
        keep, labels = merged.pop(KEEP, {}), merged.pop(METHODS, list(study.methods))
        settings = {name: merged.pop(name) for name in list(merged) if name in CELL_SETTINGS}
        if "data" not in settings:
            raise InputError(f"{study.name}: no data is named; give a data folder in evaluate or in the grid")
        for name in merged.keys() - known:
            every = (*CELL_SETTINGS, KEEP, METHODS, *sorted(known))
            raise InputError(f"{study.name}: no setting {name!r} of evaluate, data or a method{nearest(name, every)}")
        methods = {label: with_settings(text, merged) for label, text in study.methods.items() if label in labels}
        cells.append(Cell(values, settings, methods, keep))
    return cells


def methods_of(cells: Sequence[Cell]) -> list[str]:
    """Return the spellings of all methods of some cells, each once."""
    return list(dict.fromkeys(text for cell in cells for text in cell.methods.values()))


def with_settings(method: str, settings: Mapping[str, Any]) -> str:
    """Return the spelling of a method with those of some settings that it takes, in place of its own.

    Fields of `search.SearchConfig` become part of the setting `search` of a method that has it.
    """
    written, own = parse(method), SELECTORS.parameters(method)
    chosen = {name: value for name, value in settings.items() if name in own}
    if "search" in own and (of_search := {name: settings[name] for name in SEARCH_FIELDS if name in settings}):
        chosen["search"] = {**(written.settings.get("search") or {}), **of_search}
    return Configuration(written.name, {**written.settings, **chosen})

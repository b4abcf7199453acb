"""A study: a table or figure of a paper, or an ablation, as one YAML file like `configs/papers/corag-table3.yaml`.

The product of the grid gives the cells, each the settings of one `corag evaluate`: those of `evaluate`, and over them
those of each value. A name that is no setting of the command is one of how the data is prepared (`DATA_SETTINGS`) or of
the methods, and is set in each that takes it. `small` is laid over all of it for `--standin`. Loads no model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Literal

import experiments
from agent import Configuration
from corag.checks import check_choice, refuse_aliases
from corag.errors import DataError, InputError
from corag.naming import nearest, parse
from corag.registry import SELECTORS
from experiments.evaluation.config import EvaluateConfig
from experiments.run.journal import fingerprint
from search import SearchConfig

CONFIGS = Path(experiments.__file__).parent / "configs"
PAPERS, ABLATIONS = CONFIGS / "papers", CONFIGS / "ablations" / "search.yaml"
"""Where the studies are that can be called by name."""
SMALL = PAPERS / "small.yaml"
"""What replaces what has to be fetched."""
METHOD, VALUES = "method", "values"
"""What tables and plots may be divided by beside the grid; the key of a published row that is no axis."""
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
OWN = (METHODS, "out", "runs", "sets", "budgets", "curves", "quiet")
"""Settings of `corag evaluate` that a study has in another form, or that the driver sets."""
CELL_SETTINGS = (*(setting.name for setting in fields(EvaluateConfig) if setting.name not in OWN), *DATA_SETTINGS)
SEARCH_FIELDS = tuple(setting.name for setting in fields(SearchConfig) if setting.name != "cost_weight")
"""Settings of a search, which `corag` takes together."""

Kind = Literal["lines", "bars"]
Grid = Mapping[str, Mapping[str, Mapping[str, Any]]]


@dataclass(frozen=True)
class TableLayout:
    """How the table is laid out.

    Attributes:
        rows: Axes, or `method`, whose values make the rows.
        columns: The same for the columns, whose cells hold all figures; without any, each figure has a column. Cells
            are averaged, question by question, over axes that are in neither.
        figures: Figures of the table; by default all of the study.
    """

    rows: tuple[str, ...] = (METHOD,)
    columns: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plot:
    """How the figure is drawn.

    Attributes:
        kind: `lines` or `bars`.
        x: Axis, `method`, or a figure, such as `cost_tokens`.
        y: Figures, each with a row of panels.
        along: Axis whose values are the points of a line, if x is a figure.
        series: Axis or `method` whose values are lines or bars of one colour.
        panels: Axis or `method` whose values are panels side by side.
        log: Whether y is logarithmic.
    """

    kind: Kind = "lines"
    x: str = METHOD
    y: tuple[str, ...] = ()
    along: str | None = None
    series: str | None = None
    panels: str | None = None
    log: bool = False


@dataclass(frozen=True)
class Published:
    """The paper's own figures.

    Attributes:
        source: Where they are, such as `table 2`.
        figures: What the values of a row are; by default the figures of the table.
        along: Axis over whose values the `values` of a row go, as in a table of the paper: a value for each, or a list
            of several figures.
        rows: For each method and values of axes, by name, the `values`; a dash for an unknown one.
        note: What a reader should know of them.
    """

    source: str = ""
    figures: tuple[str, ...] = ()
    along: str | None = None
    rows: tuple[Mapping[str, Any], ...] = ()
    note: str = ""

    def spread(self, grid: Grid) -> Published:
        """Return the same figures with a row for each value of the axis, and names as texts."""
        named = [{name: of if name == VALUES else str(of) for name, of in row.items()} for row in self.rows]
        if self.along is None:
            return replace(self, rows=tuple(named))
        check_choice("published.along", self.along, grid)
        rows: list[Mapping[str, Any]] = []
        for row in named:
            if len(row[VALUES]) != len(grid[self.along]):
                raise InputError(f"published row {dict(row)}: expected values for {', '.join(grid[self.along])}")
            for name, values in zip(grid[self.along], row[VALUES], strict=True):
                rows.append({self.along: name, **row, VALUES: values if isinstance(values, list) else [values]})
        return replace(self, along=None, rows=tuple(rows))


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
        figures: Figures of the table and of the comparison with the baseline.
        table: Layout of the table.
        plot: Layout of the figure; None for none.
        published: The paper's own figures.
        limit: Most questions of each set.
        small: What is laid over `evaluate`, `grid`, `methods` and `limit` for a run with what ships: an axis is
            replaced, or reduced to a list of its values; `null` leaves a method out.
    """

    name: str
    title: str
    paper: str | None = None
    claim: str = ""
    needs: str = ""
    evaluate: Mapping[str, Any] = field(default_factory=dict)
    grid: Grid = field(default_factory=dict)
    methods: Mapping[str, str] = field(default_factory=dict)
    baseline: str | Mapping[str, Any] | None = None
    figures: tuple[str, ...] = ()
    table: TableLayout = field(default_factory=TableLayout)
    plot: Plot | None = None
    published: Published = field(default_factory=Published)
    limit: int | None = None
    small: Mapping[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        """Raise `InputError` if methods or figures are missing, or for an axis or a baseline that there is not."""
        if not self.methods or not self.figures:
            raise InputError("a study has methods and figures; give both")
        if isinstance(self.baseline, Mapping) and len(self.baseline) != 1:
            raise InputError(f"baseline is {dict(self.baseline)}; give a method, or one value of one axis")
        axes: Mapping[str, Any] = {**self.grid, METHOD: self.methods}
        names = [*self.table.rows, *self.table.columns]
        if self.plot is not None:
            check_choice("plot.kind", self.plot.kind, Kind)
            names += filter(None, (self.plot.along, self.plot.series, self.plot.panels))
        if self.against is not None:
            check_choice(self.against[0], self.against[1], axes.get(self.against[0], ()))
        for name in names:
            check_choice("axis", name, axes)
        for row in self.published.rows:
            for name in row.keys() - {VALUES}:
                check_choice("axis", name, axes)
            if len(row[VALUES]) != len(self.published_figures):
                listed = ", ".join(self.published_figures)
                raise InputError(f"published row {dict(row)}: expected a value for each of {listed}")

    @property
    def against(self) -> tuple[str, str] | None:
        """Axis, or `method`, and value of the baseline."""
        if self.baseline is None:
            return None
        [(axis, value)] = ({METHOD: self.baseline} if isinstance(self.baseline, str) else self.baseline).items()
        return str(axis), str(value)

    @property
    def table_figures(self) -> tuple[str, ...]:
        """Figures of the table."""
        return self.table.figures or self.figures

    @property
    def published_figures(self) -> tuple[str, ...]:
        """What the values of the paper's rows are."""
        return self.published.figures or self.table_figures

    def reduced(self) -> Study:
        """Return the study with `small` laid over it."""
        for name in self.small:
            check_choice(f"{self.name}: a name in small", name, ("evaluate", "grid", "methods", "limit"))
        grid = dict(self.grid)
        for axis, values in self.small.get("grid", {}).items():
            check_choice(f"{self.name}: an axis of small", axis, grid)
            known = grid[axis]
            of_study = isinstance(values, list) and all(str(value) in known for value in values)
            grid[axis] = {str(value): known[str(value)] for value in values} if of_study else _axis(axis, values)
        methods = {**self.methods, **self.small.get("methods", {})}
        return replace(
            self,
            evaluate={**self.evaluate, **self.small.get("evaluate", {})},
            grid=grid,
            methods={label: parse(text) for label, text in methods.items() if text is not None},
            limit=self.small.get("limit", read_mapping(SMALL)["limit"]),
        )


def study_files() -> dict[str, Path]:
    """Return the files of the studies that can be called by name."""
    papers = [file for file in sorted(PAPERS.glob("*.yaml")) if file != SMALL]
    return {**{file.stem: file for file in papers}, **dict.fromkeys(read_mapping(ABLATIONS)["studies"], ABLATIONS)}


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
    content = dict(read_mapping(file))
    if "studies" in content:
        own = content.pop("studies")[name]
        content |= {**own, **{key: {**content[key], **own.get(key, {})} for key in ("evaluate", "grid")}}
    try:
        return make_study({"name": name if name in files else file.stem, **content})
    except InputError as error:
        raise InputError(f"{file}: {error}") from error


@cache
def read_mapping(file: Path) -> Mapping[str, Any]:
    """Return the mapping in a YAML file; `DataError` if it cannot be read or is none."""
    import yaml  # type: ignore[import-untyped]

    try:
        text = file.read_text(encoding="utf-8")
        refuse_aliases(text)
        content = yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise DataError(f"{file} cannot be read: {' '.join(str(error).split())}; give a YAML file") from error
    if not isinstance(content, dict):
        raise DataError(f"{file} is no mapping; see `experiments.papers.study`")
    return content


def make_study(content: Mapping[str, Any]) -> Study:
    """Return the study that a mapping describes."""
    given = dict(content)
    for name, kind in (("table", TableLayout), ("plot", Plot), ("published", Published)):
        if given.get(name) is not None:
            given[name] = _make(kind, given[name], name)
    given["grid"] = {str(axis): _axis(str(axis), values) for axis, values in given.get("grid", {}).items()}
    given["methods"] = {str(label): parse(text) for label, text in given.get("methods", {}).items()}
    if given.get("published") is not None:
        given["published"] = given["published"].spread(given["grid"])
    study: Study = _make(Study, given, "a study")
    study.check()
    return study


def _make(kind: type[Any], values: Any, what: str) -> Any:
    if not isinstance(values, Mapping):
        raise InputError(f"{what} is {values!r:.100}; give a mapping")
    for name in values:
        check_choice(f"a name in {what}", name, [column.name for column in fields(kind)])
    # YAML knows lists alone.
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    try:
        return kind(**given)
    except TypeError as error:
        raise InputError(f"{what}: {error}") from error


def _axis(name: str, values: Mapping[Any, Any] | Sequence[Any]) -> dict[str, dict[str, Any]]:
    """Return the settings of each value of an axis, by name."""
    if isinstance(values, list):
        return {str(value): {name: value} for value in values}
    if not isinstance(values, Mapping) or not all(isinstance(settings, Mapping | None) for settings in values.values()):
        raise InputError(f"axis {name!r} is {values!r:.100}; give settings by name of a value, or a list of values")
    return {str(value): settings or {} for value, settings in values.items()}


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
    keep: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Values of the axes, as `--only` and files have them."""
        return "-".join(self.values.values()) or "all"


def cells_of(study: Study) -> list[Cell]:
    """Return the cells of a study, the last axis varying fastest; a setting of nothing is an `InputError`."""
    return [_cell(study, dict(zip(study.grid, values, strict=True))) for values in product(*study.grid.values())]


def _cell(study: Study, values: dict[str, str]) -> Cell:
    merged = dict(study.evaluate)
    for axis, name in values.items():
        merged |= study.grid[axis][name]
    keep, labels = merged.pop(KEEP, {}), merged.pop(METHODS, list(study.methods))
    settings = {name: merged.pop(name) for name in list(merged) if name in CELL_SETTINGS}
    known = {name for text in study.methods.values() for name in SELECTORS.settings(text)}
    known |= set(SEARCH_FIELDS) if "search" in known else set()
    for name in merged:
        if name not in known:
            names = (*CELL_SETTINGS, KEEP, METHODS, *sorted(known))
            raise InputError(f"{study.name}: no setting {name!r} of evaluate, data or a method{nearest(name, names)}")
    methods = {label: with_settings(text, merged) for label, text in study.methods.items() if label in labels}
    return Cell(values, settings, methods, keep)


def comparisons_of(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Return cells grouped by comparison: those that differ in settings of methods alone share one."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(fingerprint(cell.settings), []).append(cell)
    return list(groups.values())


def methods_of(cells: Sequence[Cell]) -> list[str]:
    """Return the spellings of all methods of some cells, each once."""
    return list(dict.fromkeys(text for cell in cells for text in cell.methods.values()))


def with_settings(method: str, settings: Mapping[str, Any]) -> str:
    """Return the spelling of a method with those of some settings that it takes, in place of its own.

    Fields of `search.SearchConfig` become part of the setting `search` of a method that has it.
    """
    written, own = parse(method), SELECTORS.settings(method)
    chosen = {name: value for name, value in settings.items() if name in own}
    if "search" in own and (of_search := {name: settings[name] for name in SEARCH_FIELDS if name in settings}):
        chosen["search"] = {**(written.settings.get("search") or {}), **of_search}
    return Configuration(written.name, {**written.settings, **chosen})

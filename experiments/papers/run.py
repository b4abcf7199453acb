"""`corag reproduce`: tables of the papers beside their own figures, each by one command; an interrupted run resumes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from common.checks import check_choice, check_count
from common.configuration import parse
from common.storage import write_atomically
from corag.cli.console import print_table, say, stderr
from corag.cli.page import Page, Section
from corag.errors import CoragError, InputError
from corag.models.runtime import Precision as Precision
from corag.models.runtime import Runtime, in_runtime
from corag.text.visible import one_line, to_json
from experiments.data.catalogue import DATA_SETS
from experiments.data.config import comma_separated
from experiments.data.folder import is_at_hand
from experiments.evaluation.comparison import compare
from experiments.papers.prepare import DEMO, comparison_of
from experiments.papers.study import METHOD, Cell, Study, cells_of, comparisons_of, find_study, methods_of, study_files
from experiments.papers.table import Measured, blocks
from experiments.report.measures import Row, summaries
from experiments.run.journal import PAGE, commit, fingerprint, output_file, versions
from experiments.run.track import Tracking, log_run

ALL, LIST = "all", "list"
STANDIN = "-standin"
"""Ending of the folder of a stand-in."""


@dataclass(frozen=True)
class ReproduceConfig(Runtime, Tracking):
    """Reproduce a table or figure of a paper, or run an ablation; an interrupted run resumes.

    Attributes:
        name: Name of a study or a YAML file with one, several separated by commas; `all`; or `list` to see the studies
            and what each needs.
        standin: Measure with what ships, at reduced size, in place of the paper's models and data.
        out: Folder for the results: a folder for each study with its table, and results with the rows of each question
            (`cells`), and `index.html` over all.
        limit: Maximum number of questions per set.
        agent: Checkpoint of the paper's agent, for studies that have one; see `configs/labels-paper.yaml`.
        only: Run only the cells with these values, separated by commas, one or more for an axis, such as
            `MARCO,256,512`.
        quiet: Show no progress and no table.
    """

    name: str
    standin: bool = False
    out: str = "runs/papers"
    limit: int | None = None
    agent: str | None = None
    only: str = ""
    quiet: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.limit is not None:
            check_count("limit", self.limit, "leave it out for all questions")


@in_runtime
def reproduce(config: ReproduceConfig) -> None:
    """Run studies, and write their tables and page.

    Raises:
        InputError: There is no such study, what it needs is not at hand, or some studies of `all` failed, which does
            not stop the others.
    """
    if config.name == LIST:
        studies = map(find_study, study_files())
        print_table(["name", "what", "takes"], [[study.name, study.title, study.needs] for study in studies])
        say("Run one with: corag reproduce NAME, all with: corag reproduce all; with what ships: --standin")
        return
    sections, failed = list[Section](), list[str]()
    for study in map(find_study, study_files() if config.name == ALL else comma_separated(config.name)):
        try:
            sections.append(run_study(study, config))
        except CoragError as error:
            if config.name != ALL:
                raise
            failed.append(f"{study.name}: {one_line(str(error))}")
            sections.append(Section(f"{study.name}: {study.title}", [f"**Not measured:** {one_line(str(error))}"]))
    page = Page("Tables and figures of the papers", f"{len(sections) - len(failed)} studies measured.", sections)
    write_atomically(out := output_file(str(Path(config.out) / "index.html"), PAGE), page.html())
    write_atomically(out.with_suffix(".md"), page.markdown())
    say(f"{page.lead} All tables are in {out}", stderr())
    if failed:
        raise InputError(f"{len(failed)} of the studies failed: {'; '.join(failed)}")


def run_study(study: Study, config: ReproduceConfig) -> Section:
    """Measure what is missing of one study, write its table and result, and return its section of the page."""
    study = study.standing_in() if config.standin else study
    folder = Path(config.out) / (study.name + STANDIN * config.standin)
    cells = _chosen(study, config.only)
    if config.standin:
        # The demo stands in for data that is not at hand.
        demo = {"data": DEMO, "split": "dev", "pool": "corpus"}
        cells = [c if is_at_hand(c.settings["data"]) else replace(c, settings={**c.settings, **demo}) for c in cells]
        study = replace(study, title=f"{study.title} (stand-in)")
    else:
        _check_at_hand(study, cells)
    say(f"{study.name}: {study.title}", stderr())
    measured: list[Measured] = []
    remarks: list[str] = []
    for group in comparisons_of(cells):
        measured += _measure(group, cells, folder, config, remarks)
    order = {axis: list(values) for axis, values in study.grid.items()}
    measured.sort(key=lambda one: [order[axis].index(one.values[axis]) for axis in order])
    return _write(study, cells, measured, remarks, folder, config)


def _chosen(study: Study, only: str) -> list[Cell]:
    """Return the cells that `--only` names; all without it."""
    cells, chosen = cells_of(study), set(comma_separated(only))
    known = sorted({value for cell in cells for value in cell.values.values()})
    for name in sorted(chosen):
        check_choice("a value in only", name, known)
    by_axis = {axis: chosen & set(values) for axis, values in study.grid.items()}
    return [cell for cell in cells if all(cell.values[axis] in some for axis, some in by_axis.items() if some)]


def _check_at_hand(study: Study, cells: Sequence[Cell]) -> None:
    """Raise `InputError`, one line with the commands that get them, if data sets of some cells are missing."""
    missing = [name for name in dict.fromkeys(str(cell.settings["data"]) for cell in cells) if not is_at_hand(name)]
    if fetched := [name for name in missing if name in DATA_SETS]:
        commands = " && ".join(f"corag data get {name}" for name in fetched)
        raise InputError(
            f"{study.name} needs {', '.join(fetched)}; get them with: {commands}; or run what ships with: "
            f"corag reproduce {study.name} --standin"
        )
    if missing:
        raise InputError(f"{study.name} needs {', '.join(missing)}; CORAG_DATA names the folder above your copy")


def _measure(
    cells: Sequence[Cell], study_cells: Sequence[Cell], folder: Path, run: ReproduceConfig, remarks: list[str]
) -> list[Measured]:
    """Run one comparison, or read its results, and return each method of its cells."""
    key = fingerprint([cells[0].settings, sorted(methods_of(cells)), run.limit])
    slug = re.sub(r"[^A-Za-z0-9.]+", "-", cells[0].name).strip("-")[:60]
    out = folder / "cells" / f"{slug}-{key[:8]}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    config = comparison_of(cells, study_cells, run, out)
    [[found]] = compare(config).values()
    record = found.record
    for row in record["methods"]:
        if row.get("failed"):
            why = f"{row['method']} failed on {row['failed']} of {record['queries']} questions of {cells[0].name}"
            remarks.append(f"{why}: {row.get('error', '')}"[:400])
    if record.get("skip_reason"):
        remarks.append(f"no figures of answers: {record['skip_reason']}")
    # The folder is another one if it was prepared, as noise and references are.
    data_set, prepared = str(cells[0].settings["data"]), Path(config.data).name
    shown = data_set if Path(data_set).name == prepared else f"{data_set} ({prepared})"
    setup = {
        "data": f"{shown}, {record['split']}", "pool": record["pool"],
        "candidates": f"{record['retriever']['candidates']:.4g}", "budget": f"{config.budget:,}",
        "reader": str(config.reader), "embedder": str(config.embedder),
    }  # fmt: skip
    measured = []
    for cell in cells:
        queries = counted_questions(cell, found.rows)
        for label, text in cell.methods.items():
            name = parse(text)
            rows = [row for row in found.rows[name] if row["query"] in queries]
            part, values = str(record["parts"].get(name, name)), {**cell.values, METHOD: label}
            measured.append(Measured(values, rows, part, str(out.relative_to(folder)), setup))
    return measured


def counted_questions(cell: Cell, rows: Mapping[str, Sequence[Row]]) -> set[str]:
    """Return the questions that count in a cell, given the rows of each method."""
    queries = {row["query"] for of_method in rows.values() for row in of_method}
    for label, wanted in cell.keep.items():
        of_method = {row["query"]: row for row in rows[parse(cell.methods[label])]}
        queries = {name for name in queries if all(of_method[name].get(key) == value for key, value in wanted.items())}
    return queries


def _write(
    study: Study,
    cells: Sequence[Cell],
    measured: Sequence[Measured],
    remarks: Sequence[str],
    folder: Path,
    config: ReproduceConfig,
) -> Section:
    section = Section(f"{study.name}: {study.title}", [*blocks(study, measured), *remarks], anchor=study.name)
    page = Page(study.name, "", [section])
    write_atomically(folder / "table.md", page.markdown())
    record = {
        **{name: getattr(study, name) for name in ("name", "paper", "title", "claim", "baseline")},
        "standin": config.standin,
        "command": f"corag reproduce {study.name}{' --standin' if config.standin else ''}",
        "limit": config.limit,
        "commit": commit(),
        "versions": versions(),
        "cells": [one.to_dict(study) for one in measured],
    }
    write_atomically(out := folder / "result.json", to_json(record, indent=2) + "\n")
    settings = {
        **asdict(config),
        "data": sorted({one.setup["data"] for one in measured}),
        "cells": {cell.name: {**cell.settings, "methods": dict(cell.methods)} for cell in cells},
    }
    figures = {"-".join(one.values.values()): summaries(one.rows) for one in measured}
    log_run("reproduce", config, out, study.name, settings, figures, group=config.name, pages={"report": page.html()})
    if not config.quiet:
        page.show()
    return section

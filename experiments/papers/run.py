"""`corag reproduce`: tables and figures of the papers, each with one command; an interrupted run resumes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from corag.checks import check_choice, check_count
from corag.cli.console import print_table, say, stderr
from corag.cli.page import Page, Section
from corag.errors import CoragError, InputError
from corag.models.runtime import Runtime, in_runtime
from corag.naming import parse
from corag.text.visible import one_line, to_json
from corag.writing import write_atomically
from experiments.data.config import comma_separated
from experiments.evaluation.comparison import compare
from experiments.papers.page import read_section, section_record
from experiments.papers.plots import draw
from experiments.papers.prepare import comparison_of
from experiments.papers.results import MethodInCell, StudyResult
from experiments.papers.small import DEMO, check_at_hand, differences, labels_of, substitute_cell, title_of
from experiments.papers.study import METHOD, Cell, Study, cells_of, comparisons_of, find_study, methods_of, study_files
from experiments.report.measures import Row
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
        out: Folder for the results: a folder for each study with its table, figure, and `rows.jsonl`, the figures of
            every question, and `index.html` over all.
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
    """Run studies, and write their tables, figures and page.

    Raises:
        InputError: There is no such study, what it needs is not at hand, or some studies of `all` failed, which does
            not stop the others.
    """
    if config.name == LIST:
        rows = [vars(study) for study in map(find_study, study_files())]
        print_table(rows, {"name": "name", "title": "what", "needs": "takes"}, left=("title", "needs"))
        say("Run one with: corag reproduce NAME, all with: corag reproduce all; with what ships: --standin")
        return
    names = list(study_files()) if config.name == ALL else comma_separated(config.name)
    studies = {study.name: study for study in map(find_study, names)}
    failed: dict[str, str] = {}
    for study in studies.values():
        try:
            run_study(study, config)
        except CoragError as error:
            if config.name != ALL:
                raise
            failed[study.name] = one_line(str(error))
    page = _write_page(config, list(studies), failed)
    say(f"{len(studies) - len(failed)} studies measured; all tables and figures in {page}", stderr())
    if failed:
        listed = "; ".join(f"{name}: {why}" for name, why in failed.items())
        raise InputError(f"{len(failed)} of the studies failed: {listed}")


def run_study(full: Study, config: ReproduceConfig) -> StudyResult:
    """Measure what is missing of one study, and write its table, figure and result."""
    study = full.reduced() if config.standin else full
    folder = Path(config.out) / (study.name + STANDIN * config.standin)
    cells, result = _chosen(study, config.only), StudyResult(study)
    if config.standin:
        assert study.limit is not None
        limit = min(study.limit, config.limit or study.limit)
        config = replace(config, limit=limit)
        cells, labels = [substitute_cell(cell, limit) for cell in cells], labels_of(study)
        study = replace(study, title=f"{study.title} ({title_of(full, study, labels)})")
        result = StudyResult(study, labels, differences(cells_of(full), cells))
        if any(cell.settings["data"] == DEMO for cell in cells):
            say(
                "no data folder of this study is at hand: the demo's texts replace them; CORAG_DATA names yours",
                stderr(),
            )
    else:
        check_at_hand(study, cells)
    say(f"{study.name}: {study.title}", stderr())
    comparisons = comparisons_of(cells)
    for number, group in enumerate(comparisons, start=1):
        if not config.quiet:
            names = ", ".join(cell.name for cell in group)
            say(f"{study.name}, {number} of {len(comparisons)}: {names}", stderr())
        _measure(result, group, cells, folder, config)
    order = {axis: list(values) for axis, values in study.grid.items()}
    result.methods.sort(key=lambda method: [order[axis].index(method.values[axis]) for axis in order])
    _write(result, cells, folder, config)
    return result


def _chosen(study: Study, only: str) -> list[Cell]:
    """Return the cells that `--only` names; all without it."""
    cells, chosen = cells_of(study), set(comma_separated(only))
    known = sorted({value for cell in cells for value in cell.values.values()})
    for name in sorted(chosen):
        check_choice("a value in only", name, known)
    by_axis = {axis: chosen & set(values) for axis, values in study.grid.items()}
    return [cell for cell in cells if all(cell.values[axis] in some for axis, some in by_axis.items() if some)]


def _measure(
    result: StudyResult, cells: Sequence[Cell], study_cells: Sequence[Cell], folder: Path, run: ReproduceConfig
) -> None:
    """Run one comparison, or read its results, and add each method of its cells."""
    key = fingerprint([cells[0].settings, sorted(methods_of(cells)), run.limit])
    slug = re.sub(r"[^A-Za-z0-9.]+", "-", cells[0].name).strip("-")[:60]
    out = folder / "cells" / f"{slug}-{key[:8]}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    config = comparison_of(cells, study_cells, run, out)
    [[measured]] = compare(config).values()
    record = measured.record
    summaries = {row["method"]: row for row in record["methods"]}
    for name, row in summaries.items():
        if row.get("failed"):
            why = f"{name} failed on {row['failed']} of {record['queries']} questions of {cells[0].name}"
            result.remarks.append(f"{why}: {row.get('error', '')}"[:400])
    if record.get("unread"):
        result.remarks.append(f"no figures of answers: {record['unread']}")
    # The folder is another one if it was prepared, as noise and references are.
    data_set, prepared = str(cells[0].settings["data"]), Path(config.data).name
    shown = data_set if Path(data_set).name == prepared else f"{data_set} ({prepared})"
    shared = {
        "data": f"{shown}, {config.split}", "questions": "",
        "pool": record["pool"], "candidates": f"{record['retriever']['candidates']:.4g}",
        "budget": f"{config.budget:,}", "reader": str(config.reader), "embedder": str(config.embedder),
    }  # fmt: skip
    file = str(out.relative_to(folder))
    for cell in cells:
        queries, questions = counted_questions(cell, measured.rows, record)
        setup = {**shared, "questions": questions}
        for label, text in cell.methods.items():
            name, values = parse(text), {**cell.values, METHOD: label}
            rows = [row for row in measured.rows[name] if row["query"] in queries]
            part = str(record["parts"].get(name, name))
            result.methods.append(MethodInCell(values, rows, summaries[name], part, file, setup))


def counted_questions(cell: Cell, rows: Mapping[str, Sequence[Row]], record: Mapping[str, Any]) -> tuple[set[str], str]:
    """Return the questions that count in a cell, given the rows of each method, and how many they are in words."""
    queries = {row["query"] for of_method in rows.values() for row in of_method}
    for label, wanted in cell.keep.items():
        of_method = {row["query"]: row for row in rows[parse(cell.methods[label])]}
        queries = {name for name in queries if all(of_method[name].get(key) == value for key, value in wanted.items())}
    asked, without = record["queries"], record["queries_without_gold"]
    counted = f"{len(queries)} of {asked} ({cell.name})" if cell.keep else str(asked)
    return queries, f"{counted}, {without} without evidence" if without else counted


def _write(result: StudyResult, cells: Sequence[Cell], folder: Path, config: ReproduceConfig) -> None:
    svg, section = draw(result), section_record(result)
    page = Page(result.study.name, "", [read_section(section, svg, "figure.svg")])
    write_atomically(folder / "table.md", page.markdown())
    if svg:
        write_atomically(folder / "figure.svg", svg)
    made = {
        "command": f"corag reproduce {result.study.name}{' --standin' if config.standin else ''}",
        "limit": config.limit,
        "commit": commit(),
        "versions": versions(),
    }
    record = {**result.to_dict(), "standin": config.standin, **made, "section": section}
    write_atomically(out := folder / "result.json", to_json(record, indent=2) + "\n")
    names = ("query", "group", *result.study.figures)
    rows = [
        {**method.values, **{name: row[name] for name in names if name in row}}
        for method in result.methods
        for row in method.rows
    ]
    write_atomically(folder / "rows.jsonl", "".join(to_json(row) + "\n" for row in rows))
    summaries = {"-".join(method.values.values()): method.summary for method in result.methods}
    pages = {"report": page.html(), "figure": svg or ""}
    settings = {
        **asdict(config),
        "data": sorted({method.setup["data"] for method in result.methods}),
        "cells": {cell.name: {**cell.settings, "methods": dict(cell.methods)} for cell in cells},
    }
    log_run("reproduce", config, out, result.study.name, settings, summaries, group=config.name, pages=pages)
    if not config.quiet:
        page.show()


def _write_page(config: ReproduceConfig, names: Sequence[str], failed: dict[str, str]) -> Path:
    """Write the page over all studies with results in `out`, of this run and of earlier ones."""
    root = Path(config.out)
    sections: list[Section] = []
    for name in dict.fromkeys((*study_files(), *names)):
        for standin in (False, True):
            folder = root / (name + STANDIN * standin)
            if name in failed and standin == config.standin:
                sections.append(Section(f"{name}: {find_study(name).title}", [f"**Not measured:** {failed[name]}"]))
            elif (folder / "result.json").exists():
                record = json.loads((folder / "result.json").read_text(encoding="utf-8"))["section"]
                figure = folder / "figure.svg"
                svg = figure.read_text(encoding="utf-8") if figure.exists() else ""
                sections.append(read_section(record, svg, f"{folder.name}/figure.svg"))
    page = Page("Tables and figures of the papers", f"{len(sections)} studies.", sections)
    write_atomically(html := output_file(str(root / "index.html"), PAGE), page.html())
    write_atomically(root / "index.md", page.markdown())
    return html

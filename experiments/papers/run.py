"""`corag reproduce`: tables and figures of the papers, each with one command; an interrupted run resumes."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import corag
from corag.checks import check_choice, check_count
from corag.cli.console import say, stderr
from corag.errors import CoragError, InputError
from corag.models.runtime import Runtime, in_runtime
from corag.naming import parse
from corag.text.data import DataFolder, find_data, passage_at
from corag.text.visible import one_line, to_json
from corag.writing import write_atomically
from experiments.data.config import comma_separated
from experiments.data.folder import read_source
from experiments.data.pools import open_pool
from experiments.evaluation.comparison import compare
from experiments.evaluation.config import EvaluateConfig
from experiments.papers.needs import check_needs, list_studies
from experiments.papers.page import read_section, section_record
from experiments.papers.plots import draw
from experiments.papers.prepare import Preparation, changed_settings, write_demo
from experiments.papers.results import Curve, MethodInCell, StudyResult
from experiments.papers.standins import DEMO, reduced, standin_of, standins, substitute_cell
from experiments.papers.study import METHOD, Cell, Study, cells_of, comparisons_of, find_study, methods_of, study_files
from experiments.report.measures import Row
from experiments.report.page import Page, Section
from experiments.run.journal import PAGE, commit, fingerprint, output_file, versions
from experiments.run.track import Tracking, log_run

ALL, LIST = "all", "list"
STANDIN = "-standin"
"""Ending of the folder of a stand-in."""
NUM_CASES, NUM_CURVES = 3, 3
"""Questions of a case study, as in figure 9 of CORAG, and of a figure of similarities."""


@dataclass(frozen=True)
class ReproduceConfig(Runtime, Tracking):
    """Reproduce a table or figure of a paper, or run an ablation; an interrupted run resumes.

    Attributes:
        name: Name of a study or a YAML file with one, several separated by commas; `all`; or `list` to see the studies
            and what each needs.
        standin: Measure with what ships, at reduced size, in place of the paper's models and data.
        out: Folder for the results: a folder for each study with its table, figure and the rows of every question, and
            `index.html` over all.
        limit: Maximum number of questions per set.
        only: Run only the cells with these values, separated by commas, one or more for an axis, such as
            `MARCO,256,512`.
        quiet: Show no progress and no table.
    """

    name: str
    standin: bool = False
    out: str = "runs/papers"
    limit: int | None = None
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
        list_studies()
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
    started = time.perf_counter()
    root, limit, study = Path(config.out), config.limit, full
    folder = root / (study.name + STANDIN * config.standin)
    if config.standin:
        study = reduced(full)
        most = int(study.standin.get("limit", standins()["limit"]))
        limit = min(most, config.limit or most)
    cells = _chosen(study, config.only)
    result = StudyResult(study)
    if config.standin and limit is not None:
        cells = [substitute_cell(cell, limit) for cell in cells]
        result.standin = standin_of(full, study, cells)
    else:
        check_needs(study, cells)
    say(f"{study.name}: {result.title}", stderr())
    if study.methods:
        preparation = Preparation(root, cells, study.agent, limit, changed_settings(config), config.quiet)
        comparisons = comparisons_of(cells)
        for number, group in enumerate(comparisons, start=1):
            if not config.quiet:
                names = ", ".join(cell.name for cell in group)
                say(f"{study.name}, {number} of {len(comparisons)}: {names}", stderr())
            _measure(result, group, preparation, folder)
        order = {axis: list(values) for axis, values in study.axes.items()}
        result.methods.sort(key=lambda method: [order[axis].index(method.values[axis]) for axis in order])
        if study.plot is not None and study.plot.kind == "cases":
            result.lines = _cases(result)
    else:
        result.lines = [{"data": " ".join(result.labels(cell.values)), **_count(cell, root)} for cell in cells]
    result.seconds = time.perf_counter() - started
    _write(result, folder, limit, config)
    return result


def _chosen(study: Study, only: str) -> list[Cell]:
    """Return the cells that `--only` names; all without it."""
    cells, chosen = cells_of(study), set(comma_separated(only))
    known = sorted({value for cell in cells for value in cell.values.values()})
    for name in sorted(chosen):
        check_choice("a value in only", name, known)
    by_axis = {axis: chosen & set(values) for axis, values in study.axes.items()}
    return [cell for cell in cells if all(cell.values[axis] in some for axis, some in by_axis.items() if some)]


def _measure(result: StudyResult, cells: Sequence[Cell], preparation: Preparation, folder: Path) -> None:
    """Run one comparison, or read its results, and add each method of its cells."""
    key = fingerprint([fingerprint([cells[0].settings, cells[0].data, sorted(methods_of(cells))]), preparation.limit])
    slug = re.sub(r"[^A-Za-z0-9.]+", "-", cells[0].name).strip("-")[:60]
    out = folder / "cells" / f"{slug}-{key[:8]}.json"
    config = preparation.config(cells, out)
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
        queries = kept_questions(cell, measured.rows)
        setup = {**shared, "questions": asked(cell, len(queries), record)}
        for label, text in cell.methods.items():
            name, values = parse(text), {**cell.values, METHOD: label}
            rows = [row for row in measured.rows[name] if row["query"] in queries]
            part = str(record["parts"].get(name, name))
            result.methods.append(MethodInCell(values, rows, summaries[name], part, file, str(config.data), setup))
    plot = result.study.plot
    if plot is not None and plot.kind == "curves":
        result.curves += _curves(config, cells[0], measured.rows[parse(cells[0].methods[plot.x])])


def asked(cell: Cell, kept: int, record: Mapping[str, Any]) -> str:
    """Return how many questions a cell counts, and how many of those asked have no evidence."""
    asked, without = record["queries"], record["queries_without_gold"]
    counted = f"{kept} of {asked} ({cell.name})" if cell.keep else str(asked)
    return f"{counted}, {without} without evidence" if without else counted


def kept_questions(cell: Cell, rows: Mapping[str, Sequence[Row]]) -> set[str]:
    """Return the questions that count in a cell, given the rows of each method."""
    queries = {row["query"] for of_method in rows.values() for row in of_method}
    for label, wanted in cell.keep.items():
        of_method = {row["query"]: row for row in rows[parse(cell.methods[label])]}
        queries = {name for name in queries if all(of_method[name].get(key) == value for key, value in wanted.items())}
    return queries


def _curves(config: EvaluateConfig, cell: Cell, rows: Sequence[Row]) -> list[Curve]:
    """Return the similarities of the first questions' candidates, and where a method, given its rows, cut them."""
    folder = DataFolder.open(config.data)
    queries = [query for query in folder.queries if query.id in {row["query"] for row in rows[:NUM_CURVES]}]
    pool = open_pool(folder, queries, corag.embedder(config.embedder), config, quiet=True)
    kept = {row["query"]: int(row["chunks"]) for row in rows}
    curves = []
    for query in queries:
        ranked = sorted(pool.candidates(query), key=lambda candidate: -(candidate.similarity or 0.0))
        names = [{candidate.chunk.id, candidate.chunk.metadata.get("document")} for candidate in ranked]
        evidence = [rank for rank, ids in enumerate(names) if not ids.isdisjoint(query.gold)]
        curves.append(
            Curve(cell.values, [candidate.similarity or 0.0 for candidate in ranked], kept[query.id], evidence)
        )
    return curves


def _count(cell: Cell, root: Path) -> dict[str, Any]:
    """Return the questions of each split and the passages of a data set; a large corpus is not read for that."""
    name = str(cell.settings["data"])
    path = write_demo(root / "data") if name == DEMO else find_data(name)
    record = read_source(path)
    questions, passages = record.get("questions"), record.get("passages")
    if questions is None or passages is None:
        folder = DataFolder.open(path)
        questions, passages = Counter(query.split for query in folder.queries), len(folder.documents)
    splits = {split: questions.get(split) for split in ("train", "dev", "test")}
    others = sum(number for split, number in questions.items() if split not in splits)
    return {"set": name, **splits, **({"others": others} if others else {}), "passages": passages}


def _cases(result: StudyResult) -> list[dict[str, Any]]:
    """Return what methods put into the prompt of some questions of the first cell, a line a question and method.

    The questions are those whose answers differ most in ROUGE-L, in favour of either method.
    """
    first = result.methods[0]
    methods = [method for method in result.methods if method.beside(METHOD) == first.beside(METHOD)]
    folder = DataFolder.open(first.data)
    queries = {query.id: query for query in folder.queries}
    rows = {method.values[METHOD]: {str(row["query"]): row for row in method.rows} for method in methods}

    def range_of_scores(name: str) -> float:
        scores = [float(of_method[name].get("rougeL", 0.0)) for of_method in rows.values()]
        return max(scores) - min(scores)

    lines = []
    for name in sorted(rows[first.values[METHOD]], key=range_of_scores, reverse=True)[:NUM_CASES]:
        question = {"question": queries[name].question, "reference": next(iter(queries[name].answers), "")}
        for method, of_method in rows.items():
            row = of_method[name]
            chunks = [passage_at(chunk, folder.documents) for chunk in row.get("ids", ())]
            texts = [" ".join(chunk.text.split())[:160] for chunk in chunks if chunk is not None]
            answer = str(row.get("answer", row.get("error", "")))
            shown = {"chunks": len(texts), "context": " ⏎ ".join(texts[:3]), "answer": answer}
            lines.append({**question, METHOD: method, **shown})
    return lines


def _write(result: StudyResult, folder: Path, limit: int | None, config: ReproduceConfig) -> None:
    svg, section = draw(result), section_record(result)
    command = f"corag reproduce {result.study.name}{' --standin' if config.standin else ''}"
    page = Page(result.study.name, "", [read_section(section, svg, "figure.svg")])
    write_atomically(folder / "table.md", page.markdown())
    if svg:
        write_atomically(folder / "figure.svg", svg)
    made = {"command": command, "limit": limit, "commit": commit(), "versions": versions()}
    record = {**result.to_dict(), **made, "section": section}
    write_atomically(out := folder / "result.json", to_json(record, indent=2) + "\n")
    summaries = {"-".join(method.values.values()): method.summary for method in result.methods}
    pages = {"report": page.html(), "figure": svg or ""}
    log_run("reproduce", config, out, result.study.name, asdict(config), summaries, group=config.name, pages=pages)
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

"""`corag reproduce`: tables and figures of the papers, each with one command; an interrupted run resumes."""

from __future__ import annotations

import json
import logging
import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agent.config import Tracker
from corag.checks import check_choice
from corag.cli.console import say, stderr
from corag.errors import CoragError, InputError
from corag.models.runtime import Runtime, in_runtime
from corag.naming import nearest, parse
from corag.text.data import DataFolder, find_data, passage_at
from corag.text.visible import one_line, to_json
from experiments.data.config import comma_separated
from experiments.data.folder import read_source
from experiments.evaluation.comparison import compare
from experiments.papers.cells import Cell, Run, cells_of, runs_of
from experiments.papers.needs import check_needs, list_studies
from experiments.papers.page import read_section, section_of, section_record
from experiments.papers.plots import draw
from experiments.papers.prepare import Workshop, where_of
from experiments.papers.results import Measured, MethodInCell
from experiments.papers.standins import DEMO, described, reduced, standins, stood_in, write_demo
from experiments.papers.study import METHOD, Study, find_study, study_files
from experiments.report.page import Page, Section
from experiments.run.journal import PAGE, fingerprint, output_file, versions, write_atomically
from experiments.run.track import Tracking, log_run, tracked
from experiments.run.track import Wandb as Wandb

logger = logging.getLogger(__name__)

ALL, LIST = "all", "list"
CASES = 3
"""Questions of a case study, as in figure 9 of CORAG."""


@dataclass(frozen=True)
class ReproduceConfig(Runtime, Tracking):
    """Reproduce a table or figure of a paper, or run an ablation; an interrupted run resumes.

    Attributes:
        name: Name of a study or a YAML file with one, several separated by commas; `all`; or `list`, which shows what
            there is and what each needs.
        standin: Measure with what ships, at reduced size, in place of the paper's models and data.
        out: Folder for the results: a folder for each study with its table, figure and the rows of every question, and
            `index.html` over all.
        limit: Most questions of each set.
        only: Values of axes, separated by commas: only cells that have one of each axis named, such as
            `MARCO,256,512`.
        logger: Where figures are logged besides: `wandb` (offline unless WANDB_MODE says otherwise), `csv` or `none`.
        quiet: Show no progress and no table.
    """

    name: str
    standin: bool = False
    out: str = "runs/papers"
    limit: int | None = None
    only: str = ""
    logger: Tracker = "none"
    quiet: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("logger", self.logger, Tracker)
        if self.limit is not None and self.limit < 1:
            raise InputError(f"limit must be at least 1, got {self.limit}; leave it out for all questions")
        if not comma_separated(self.name):
            raise InputError("name is empty; name a study, or see `corag reproduce list`")


@dataclass(frozen=True)
class Reproduced:
    """What a run left.

    Attributes:
        page: The page over all studies; None where nothing was run.
        measured: What was measured.
        failed: Why the others were not, by name.
    """

    page: Path | None = None
    measured: tuple[Measured, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()


@tracked
@in_runtime
def reproduce(config: ReproduceConfig) -> Reproduced:
    """Run studies, and write their tables, figures and page.

    With `all`, a study that fails does not stop the others.

    Raises:
        InputError: There is no such study, or what it needs is not at hand.
    """
    if config.name == LIST:
        list_studies()
        return Reproduced()
    wanted = list(study_files()) if config.name == ALL else comma_separated(config.name)
    studies = [study for name in wanted for study in with_included(find_study(name))]
    studies = list({study.name: study for study in studies}.values())
    done: list[Measured] = []
    failed: dict[str, str] = {}
    for study in studies:
        if study.includes:
            continue
        try:
            done.append(_Driver(study, config).run())
        except CoragError as error:
            if config.name != ALL:
                raise
            failed[study.name] = one_line(str(error))
            say(f"{study.name} failed: {failed[study.name]}", stderr())
    page = _page(config, studies, failed)
    return Reproduced(page, tuple(done), tuple(failed.items()))


def with_included(study: Study) -> list[Study]:
    """Return a study and, before it, those that it consists of."""
    return [*(one for name in study.includes for one in with_included(find_study(name))), study]


class _Driver:
    """Runs one study."""

    def __init__(self, study: Study, config: ReproduceConfig) -> None:
        self._config = config
        self._study = reduced(study) if config.standin else study
        self._root = Path(config.out)
        self._folder = folder_of(self._root, study.name, standin=config.standin)
        self._limit = config.limit

    def run(self) -> Measured:
        """Measure what is missing, and write table, figure and result."""
        started = time.perf_counter()
        study = self._study
        measured = Measured(study, self._config.standin, stood_in(study) if self._config.standin else {})
        work = {"comparison": self._compare, "statistics": self._count}
        say(f"{study.name}: {measured.title}", stderr())
        work[study.work](measured)
        measured.seconds = time.perf_counter() - started
        self._write(measured)
        return measured

    def _compare(self, measured: Measured) -> None:
        study, config = self._study, self._config
        own = self._wanted(cells_of(study))
        if config.standin:
            most = int(study.standin.get("limit", standins().limit))
            self._limit = min(most, config.limit or most)
            cells = [standins().cell(cell, self._limit) for cell in own]
            measured.remarks += described(own, cells)
        else:
            check_needs(study, own)
            cells = own
        runs = runs_of(cells)
        workshop = Workshop(
            self._root, runs, study.agent, limit=self._limit, where=where_of(config), quiet=config.quiet
        )
        for number, run in enumerate(runs, start=1):
            if not config.quiet:
                say(f"{study.name}, {number} of {len(runs)}: {', '.join(cell.name for cell in run.cells)}", stderr())
            measured.found += self._measure(run, workshop, measured.remarks)
        measured.found.sort(key=lambda one: [list(study.axes[axis]).index(one.values[axis]) for axis in study.axes])
        if study.plot is not None and study.plot.kind == "cases":
            measured.lines = cases(measured, study.plot.questions)

    def _wanted(self, cells: Sequence[Cell]) -> list[Cell]:
        """Return the cells that `only` names."""
        wanted = set(comma_separated(self._config.only))
        known = {value for cell in cells for value in cell.values.values()}
        if unknown := sorted(wanted - known):
            raise InputError(
                f"only names {unknown[0]!r}{nearest(unknown[0], known)}, which is no value of an axis of "
                f"{self._study.name}: {', '.join(sorted(known))}"
            )
        by_axis = {axis: wanted & set(values) for axis, values in self._study.axes.items()}
        return [cell for cell in cells if all(cell.values[axis] in some for axis, some in by_axis.items() if some)]

    def _measure(self, run: Run, workshop: Workshop, remarks: list[str]) -> list[MethodInCell]:
        """Run one comparison, or read what it left, and return each method of its cells."""
        key = fingerprint([run.key, self._limit])[:8]
        slug = re.sub(r"[^A-Za-z0-9.]+", "-", run.cells[0].name).strip("-")[:60]
        out = self._folder / "cells" / f"{slug}-{key}.json"
        config = workshop.config(run, out)
        [[measured]] = compare(config).values()
        result, rows = measured.record, measured.rows
        summaries = {row["method"]: row for row in result["methods"]}
        for row in result["methods"]:
            if row.get("failed"):
                why = (
                    f"{row['method']} failed on {row['failed']} of {result['queries']} questions of {run.cells[0].name}"
                )
                remarks.append(f"{why}: {row.get('error', '')}"[:400])
        if result.get("unread"):
            remarks.append(f"no figures of answers: {result['unread']}")
        found = []
        for cell in run.cells:
            for label, text in cell.methods.items():
                name, values = parse(text), {**cell.values, METHOD: label}
                part = str(result["parts"].get(name, name))
                settings = {**result["config"], "data": str(config.data)}
                file = str(out.relative_to(self._folder))
                found.append(MethodInCell(values, rows[name], summaries[name], part, file, settings))
        return found

    def _count(self, measured: Measured) -> None:
        cells = self._wanted(cells_of(self._study))
        counted = [standins().cell(cell, 1) for cell in cells] if self._config.standin else cells
        if not self._config.standin:
            check_needs(self._study, cells)
        else:
            measured.remarks += described(cells, counted)
        measured.lines = count_sets(counted, self._root)

    def _write(self, measured: Measured) -> None:
        svg = draw(measured)
        section = section_of(measured, svg, "figure.svg")
        page = Page(measured.study.name, "", [section])
        write_atomically(self._folder / "table.md", page.markdown())
        if svg:
            write_atomically(self._folder / "figure.svg", svg)
        record = {
            **measured.to_dict(),
            "limit": self._limit,
            "versions": versions(),
            "section": section_record(section),
        }
        write_atomically(self._folder / "result.json", to_json(record, indent=2) + "\n")
        of_cells = {"-".join(one.values.values()): one.summary for one in measured.found}
        config, out = self._config, self._folder / "result.json"
        log_run("reproduce", config.logger, out, measured.study.name, asdict(config), of_cells, group=config.name)
        if not config.quiet:
            page.show()


def count_sets(cells: Sequence[Cell], root: Path) -> list[dict[str, Any]]:
    """Return a line for each data set: questions of its splits, and passages.

    What was fetched says it by itself, so that a large corpus need not be read.
    """
    lines = []
    for cell in cells:
        name = str(cell.settings["data"])
        path = write_demo(root / "data") if name == DEMO else find_data(name)
        record = read_source(path) or {}
        questions, passages = record.get("questions"), record.get("passages")
        if questions is None or passages is None:
            folder = DataFolder.open(path)
            questions, passages = Counter(query.split for query in folder.queries), len(folder.documents)
        splits = {split: questions.get(split) for split in ("train", "dev", "test")}
        others = sum(number for split, number in questions.items() if split not in splits)
        lines.append(
            {"data": cell.name, "set": name, **splits, **({"others": others} if others else {}), "passages": passages}
        )
    return lines


def cases(measured: Measured, wanted: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return what methods put into the prompt of some questions of a study's first cell, a line a question and method.

    Args:
        measured: What was measured.
        wanted: Ids of questions; by default those whose answers differ most in ROUGE-L, in favour of either method.
    """
    if not measured.found:
        return []
    methods = measured.at({name: value for name, value in measured.found[0].values.items() if name != METHOD})
    folder = DataFolder.open(str(methods[0].settings["data"]))
    queries = {query.id: query for query in folder.queries}
    rows = {one.values[METHOD]: {str(row["query"]): row for row in one.rows} for one in methods}
    scores = {
        name: [of_method[name].get("rougeL", 0.0) for of_method in rows.values()] for name in next(iter(rows.values()))
    }
    ids = [name for name in wanted if name in queries]
    ids = ids or sorted(scores, key=lambda name: min(scores[name]) - max(scores[name]))[:CASES]
    lines = []
    for name in ids:
        for method, of_method in rows.items():
            row = of_method.get(name, {})
            chunks = [passage_at(chunk, folder.documents) for chunk in row.get("ids", ())]
            texts = [" ".join(chunk.text.split())[:160] for chunk in chunks if chunk is not None]
            answer = str(row.get("answer", row.get("error", "")))
            asked = {"question": queries[name].question, "reference": next(iter(queries[name].answers), "")}
            lines.append(
                {**asked, METHOD: method, "chunks": len(texts), "context": " ⏎ ".join(texts[:3]), "answer": answer}
            )
    return lines


def folder_of(root: Path, name: str, *, standin: bool) -> Path:
    """Return the folder of a study's results."""
    return root / (f"{name}-standin" if standin else name)


def _page(config: ReproduceConfig, studies: Sequence[Study], failed: dict[str, str]) -> Path:
    """Write the page over all studies whose results lie in `out`, of this run and of earlier ones."""
    root = Path(config.out)
    sections: list[Section] = []
    for name in dict.fromkeys((*study_files(), *(study.name for study in studies))):
        for standin in (False, True):
            folder = folder_of(root, name, standin=standin)
            if name in failed and standin == config.standin:
                sections.append(Section(f"{name}: {find_study(name).title}", [f"**Not measured:** {failed[name]}"]))
            elif (folder / "result.json").exists():
                record = json.loads((folder / "result.json").read_text(encoding="utf-8"))["section"]
                figure = folder / "figure.svg"
                svg = figure.read_text(encoding="utf-8") if figure.exists() else ""
                sections.append(read_section(record, svg, f"{folder.name}/figure.svg"))
    groups = {study.name: study.includes for study in map(find_study, study_files()) if study.includes}
    parts = [f"{name}: {', '.join(includes)}" for name, includes in groups.items()]
    questions = f"Questions of CORAG (section 6): {'; '.join(parts)}." if parts else ""
    page = Page("Tables and figures of the papers", f"{len(sections)} studies. {questions}", sections)
    write_atomically(html := output_file(str(root / "index.html"), PAGE), page.html())
    write_atomically(root / "index.md", page.markdown())
    return html

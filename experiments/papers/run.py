"""`corag reproduce`: tables and figures of the papers, each with one command; an interrupted run resumes."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.config import Tracker
from corag.checks import check_choice
from corag.cli.console import say, stderr
from corag.errors import CoragError, InputError
from corag.models.runtime import Runtime, in_runtime
from corag.naming import nearest, parse
from corag.text.visible import one_line, to_json
from experiments.data.config import comma_separated
from experiments.evaluation.comparison import compare
from experiments.papers.cases import cases_of, lines_of
from experiments.papers.cells import Cell, Run, cells_of, runs_of
from experiments.papers.counts import count_sets
from experiments.papers.needs import check_needs, list_studies
from experiments.papers.page import Section, failed_section, section_of, write_page
from experiments.papers.plots import draw, draw_cases
from experiments.papers.prepare import Workshop, where_of
from experiments.papers.results import Found, Measured
from experiments.papers.standins import described, reduced, standins, stood_in
from experiments.papers.study import METHOD, Study, find_study, study_files
from experiments.papers.tables import markdown
from experiments.papers.track import track
from experiments.run.journal import fingerprint, versions, write_atomically
from experiments.run.track import Tracking, tracked
from experiments.run.track import Wandb as Wandb

logger = logging.getLogger(__name__)

ALL, LIST = "all", "list"


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
            check_needs(study, own, own_code=config.trust_remote_code)
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
            cases = cases_of(measured, study.plot.questions)
            measured.lines = lines_of(cases)
            measured.svg = draw_cases(cases, measured.title)

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

    def _measure(self, run: Run, workshop: Workshop, remarks: list[str]) -> list[Found]:
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
                name, values = str(parse(text)), {**cell.values, METHOD: label}
                part = str(result["parts"].get(name, name))
                settings = {**result["config"], "data": str(config.data)}
                file = str(out.relative_to(self._folder))
                found.append(Found(values, rows[name], summaries[name], part, file, settings))
        return found

    def _count(self, measured: Measured) -> None:
        cells = self._wanted(cells_of(self._study))
        counted = [standins().cell(cell, 1) for cell in cells] if self._config.standin else cells
        if not self._config.standin:
            check_needs(self._study, cells, own_code=True)
        else:
            measured.remarks += described(cells, counted)
        measured.lines = count_sets(counted, self._root)

    def _write(self, measured: Measured) -> None:
        svg, text = draw(measured), markdown(measured)
        write_atomically(self._folder / "table.md", text)
        if svg:
            write_atomically(self._folder / "figure.svg", svg)
        section = section_of(measured, svg, f"{self._folder.name}/figure.svg" if svg else "")
        record = {**measured.to_dict(), "limit": self._limit, "versions": versions(), "section": section.to_dict()}
        write_atomically(self._folder / "result.json", to_json(record, indent=2) + "\n")
        track(measured, self._config.logger, self._folder, text)
        if not self._config.quiet:
            say(text)


def folder_of(root: Path, name: str, *, standin: bool) -> Path:
    """Return the folder of a study's results."""
    return root / (f"{name}-standin" if standin else name)


def _page(config: ReproduceConfig, studies: Sequence[Study], failed: dict[str, str]) -> Path:
    """Write the page over all studies whose results lie in `out`, of this run and of earlier ones."""
    root = Path(config.out)
    sections: list[Section] = []
    for name in dict.fromkeys((*study_files(), *(study.name for study in studies))):
        for standin in (False, True):
            file = folder_of(root, name, standin=standin) / "result.json"
            if name in failed and standin == config.standin:
                sections.append(failed_section(name, find_study(name).title, failed[name]))
            elif file.exists():
                record = json.loads(file.read_text(encoding="utf-8"))
                svg = file.with_name("figure.svg")
                sections.append(Section.of(record["section"], svg.read_text(encoding="utf-8") if svg.exists() else ""))
    groups = {study.name: study.includes for study in map(find_study, study_files()) if study.includes}
    parts = [f"{name}: {', '.join(includes)}" for name, includes in groups.items()]
    summary = f"{len(sections)} studies. " + (f"Questions of CORAG (section 6): {'; '.join(parts)}." if parts else "")
    return write_page(root, sections, summary)

"""`corag reproduce`: tables of the papers beside their own figures, each by one command; an interrupted run resumes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import corag
from common.checks import check_choice, check_count
from common.storage import write_atomically
from corag.cli.console import print_table, say, stderr
from corag.cli.page import Page, Section
from corag.errors import CoragError, InputError
from corag.models.runtime import Precision as Precision
from corag.models.runtime import Runtime, in_runtime
from corag.text.data import DataFolder, find_data, folder_name
from corag.text.visible import one_line, to_json
from experiments.data.catalogue import DATA_SETS
from experiments.data.config import CandidateSettings, comma_separated
from experiments.data.folder import is_at_hand
from experiments.data.pools import open_pool, sample_questions
from experiments.data.references import ReferencesConfig, write_references
from experiments.data.splits import questions_of
from experiments.data.stress_sets import chat_rewriter, rotated, stress_sets
from experiments.demo import write_data_folder
from experiments.evaluation.comparison import compare
from experiments.evaluation.config import EvaluateConfig
from experiments.evaluation.judge import chats_of
from experiments.papers.study import (
    CONFIGS,
    DATA_SETTINGS,
    METHOD,
    Cell,
    Study,
    cells_of,
    find_study,
    methods_of,
    study_files,
)
from experiments.papers.table import Measured, blocks
from experiments.report.measures import Row, summaries
from experiments.run.journal import PAGE, commit, fingerprint, output_file, versions
from experiments.run.track import Tracking, log_run

ALL, LIST = "all", "list"
STANDIN = "-standin"
"""Ending of the folder of a stand-in."""
LABELS = CONFIGS / "labels-paper.yaml"
KINDS = ("noise", "redundancy")
DEMO, TRAINED = "demo", "trained"
"""The data set that is always at hand; the agent of a study that takes `--agent`."""
NUM_RANKED = 100
"""Chunks of a corpus that are ranked for a pool with a given share of noise or of rewritings."""


@dataclass(frozen=True)
class ReproduceConfig(Runtime, Tracking):
    """Reproduce a table or figure of a paper, or run an ablation; an interrupted run resumes.

    Attributes:
        name: Name of a study or a YAML file with one, several separated by commas; `all`; or `list` to see the studies
            and what each needs.
        standin: Measure with what ships, at reduced size, in place of the paper's models and data.
        out: Folder for the results: a folder for each study with its table, and results with the rows of each question
            (`cells`), and `index.html` over all.
        limit: Maximum number of questions per set; a larger one goes on from a smaller one.
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
    missing = [name for name in dict.fromkeys(str(cell.settings["data"]) for cell in cells) if not is_at_hand(name)]
    if config.standin:
        # The demo stands in for data that is not at hand.
        demo = {"data": DEMO, "split": "dev", "pool": "corpus"}
        cells = [replace(c, settings={**c.settings, **demo}) if c.settings["data"] in missing else c for c in cells]
        study = replace(study, title=f"{study.title} (stand-in)")
    elif missing:
        commands = " && ".join(f"corag data get {name}" for name in missing if name in DATA_SETS)
        raise InputError(
            f"{study.name} needs {', '.join(missing)}; CORAG_DATA names the folder above your copy; get those that are "
            f"public with: {commands or 'corag data list'}; or run what ships with: corag reproduce {study.name} "
            "--standin"
        )
    say(f"{study.name}: {study.title}", stderr())
    comparisons: dict[str, list[Cell]] = {}
    for cell in cells:  # those that differ in settings of methods alone share a comparison
        comparisons.setdefault(fingerprint(cell.settings), []).append(cell)
    remarks: list[str] = []
    measured = [one for of in comparisons.values() for one in _measure(of, cells, folder, config, remarks)]
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


def _measure(
    cells: Sequence[Cell], study_cells: Sequence[Cell], folder: Path, run: ReproduceConfig, remarks: list[str]
) -> list[Measured]:
    """Run one comparison, or read its results, and return each method of its cells."""
    config = comparison_of(cells, study_cells, run)
    # The same for every limit: the journal in this folder keeps all that was measured, so that a larger limit goes on.
    key = fingerprint([config.measured_settings("limit"), versions()])
    slug = re.sub(r"[^A-Za-z0-9.]+", "-", cells[0].name).strip("-")[:60]
    out = folder / "cells" / f"{slug}-{key[:8]}"
    out.parent.mkdir(parents=True, exist_ok=True)
    [(name, [found])] = compare(replace(config, out=str(out), budgets=(config.budget,))).items()
    file, record = out / f"{name}-{found.budget}.json", found.record
    for method, row in found.methods.items():
        if row.get("failed"):
            why = f"{method} failed on {row['failed']} of {record['queries']} questions of {cells[0].name}"
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
            rows = [row for row in found.rows[text] if row["query"] in queries]
            part, values = str(record["parts"].get(text, text)), {**cell.values, METHOD: label}
            measured.append(Measured(values, rows, part, str(file.relative_to(folder)), setup))
    return measured


def counted_questions(cell: Cell, rows: Mapping[str, Sequence[Row]]) -> set[str]:
    """Return the questions that count in a cell, given the rows of each method."""
    queries = {row["query"] for of_method in rows.values() for row in of_method}
    for label, wanted in cell.keep.items():
        kept = (row for row in rows[cell.methods[label]] if all(row.get(key) == value for key, value in wanted.items()))
        queries &= {row["query"] for row in kept}
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


# What the comparisons of a study need. It is below the folder of all studies, which share it, and is made once.


def comparison_of(cells: Sequence[Cell], study_cells: Sequence[Cell], config: ReproduceConfig) -> EvaluateConfig:
    """Return the settings of the comparison that measures some of a study's cells, and make what it needs."""
    given = cells[0].settings
    settings: dict[str, Any] = {name: value for name, value in given.items() if name not in DATA_SETTINGS}
    if settings.get("agent") == TRAINED:
        if config.agent is None:
            raise InputError(f"this study needs the paper's agent; make one as {LABELS} says, and give it by --agent")
        settings["agent"] = config.agent
    if config.limit is not None:
        settings["limit"] = min(config.limit, settings.get("limit") or config.limit)
    name, split, limit = str(given["data"]), settings.get("split", "dev"), settings.get("limit")
    folder = find_data(name) if name != DEMO else Path(config.out) / "data" / DEMO
    if name == DEMO and not (folder / "queries.jsonl").exists():
        write_data_folder(folder)
    if given.get("references") and not all(one.answers for one in questions_of(DataFolder.open(folder), split, limit)):
        reader, chosen = str(given.get("references_reader") or given["reader"]), {"splits": split, "limit": limit}
        path, shared = _path(config, folder, "references", [reader, chosen]), config.runtime_settings
        how: dict[str, Any] = {**shared, **chosen, "quiet": config.quiet}
        folder, _ = write_references(ReferencesConfig(str(folder), str(path), reader, **how))
    for kind in KINDS:
        if kind in given:
            rates = sorted({cell.settings[kind] for cell in study_cells if kind in cell.settings})
            folder = _with_stress(folder, kind, rates, {**given, **settings}, config)
            # Its questions have lists of their own.
            settings |= {"pool": "candidates", "limit": None, "sample": None}
    methods = tuple(methods_of(cells))
    settings |= {"data": str(folder), "methods": methods, "quiet": config.quiet, "curves": False}
    return EvaluateConfig(**{**config.runtime_settings, **settings})


def _with_stress(
    data: Path, kind: Any, rates: Sequence[float], settings: Mapping[str, Any], config: ReproduceConfig
) -> Path:
    """Return the folder with the noise or redundancy of a cell; its questions have enough passages at every rate."""
    size, rewriter, embedder = settings.get("size", 20), settings.get("rewriter"), settings.get("embedder", "minilm")
    split, limit, sample = settings.get("split", "dev"), settings.get("limit"), settings.get("sample")
    seed = settings.get("seed", 0)
    out = _path(config, data, kind, [rates, size, rewriter, split, limit, sample, seed, embedder])
    chosen = out / f"{kind}-{settings[kind]:g}"
    if not (chosen / "queries.jsonl.gz").exists():
        folder = DataFolder.open(data)
        queries = sample_questions(questions_of(folder, split, limit), sample, seed)
        folder = replace(folder, queries=tuple(queries))
        candidates = CandidateSettings(num_candidates=NUM_RANKED)
        asked = [query.after(settings.get("history", candidates.history)) for query in queries]
        pool = open_pool(folder, asked, corag.embedder(embedder), candidates, quiet=config.quiet)
        store = Path(config.out) / "rewritings.jsonl"
        rewrite = rotated if rewriter is None else chat_rewriter(chats_of("rewriter", rewriter)[0], store)
        stress_sets(folder, pool, out, kind=kind, rates=rates, size=size, rewrite=rewrite, quiet=config.quiet)
    return chosen


def _path(config: ReproduceConfig, data: Path, what: str, settings: Any) -> Path:
    name = f"{folder_name(data.name)}-{what}-{fingerprint([str(data.resolve()), settings])[:8]}"
    return Path(config.out) / "data" / name

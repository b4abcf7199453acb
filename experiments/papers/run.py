"""`corag reproduce`: tables of the papers beside their own figures, each by one command; an interrupted run resumes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import corag
from common.checks import check_choice, check_count
from common.configuration import parse
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
    comparisons_of,
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


# What the comparisons of a study need. It is below the folder of all studies, which share it, and is made once.


def comparison_of(
    cells: Sequence[Cell], study_cells: Sequence[Cell], config: ReproduceConfig, out: Path
) -> EvaluateConfig:
    """Return the settings of the comparison that measures some of a study's cells, and make what it needs."""
    data = {name: value for name, value in cells[0].settings.items() if name in DATA_SETTINGS}
    settings: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in cells[0].settings.items()
        if name not in data
    }
    if settings.get("agent") == TRAINED:
        if config.agent is None:
            raise InputError(f"this study needs the paper's agent; make one as {LABELS} says, and give it by --agent")
        settings["agent"] = config.agent
    if config.limit is not None:
        settings["limit"] = min(config.limit, settings.get("limit") or config.limit)
    kinds = [kind for kind in KINDS if kind in data]
    if len(kinds) > 1:
        raise InputError("a set has noise and redundancy; give one of the two")
    name, split = str(settings["data"]), settings.get("split", "dev")
    folder = write_demo(Path(config.out) / "data") if name == DEMO else find_data(name)
    if data.get("references"):
        queries = questions_of(DataFolder.open(folder), split, settings.get("limit"))
        if not all(query.answers for query in queries):
            reader = str(data.get("references_reader") or settings["reader"])
            folder = _with_references(folder, reader, split, settings.get("limit"), config)
    if kinds:
        rates = sorted({cell.settings[kinds[0]] for cell in study_cells if kinds[0] in cell.settings})
        folder = _with_stress(folder, kinds[0], rates, settings, data, config)
        # Its questions have lists of their own.
        settings |= {"pool": "candidates", "limit": None, "sample": None}
    methods = tuple(methods_of(cells))
    settings |= {"data": str(folder), "methods": methods, "out": str(out), "quiet": config.quiet, "curves": False}
    return EvaluateConfig(**{**config.runtime_settings, **settings})


def _with_references(data: Path, reader: str, splits: str, limit: int | None, config: ReproduceConfig) -> Path:
    chosen: dict[str, Any] = {"splits": splits, "limit": limit}
    out = _path(config, data, "references", [reader, chosen])
    shared = {**config.runtime_settings, "quiet": config.quiet}
    return write_references(ReferencesConfig(str(data), str(out), reader, **chosen, **shared))[0]


def _with_stress(
    data: Path,
    kind: Any,
    rates: Sequence[float],
    settings: Mapping[str, Any],
    how: Mapping[str, Any],
    config: ReproduceConfig,
) -> Path:
    # The questions are those with enough passages at every rate.
    size, rewriter = how.get("size", 20), how.get("rewriter")
    split, limit = settings.get("split", "dev"), settings.get("limit")
    sample, seed = settings.get("sample"), settings.get("seed", 0)
    embedder = settings.get("embedder", "minilm")
    out = _path(config, data, kind, [rates, size, rewriter, split, limit, sample, seed, embedder])
    chosen = out / f"{kind}-{how[kind]:g}"
    if (chosen / "queries.jsonl.gz").exists():
        return chosen
    folder = DataFolder.open(data)
    queries = sample_questions(folder.split(split, limit), sample, seed)
    candidates = CandidateSettings(num_candidates=NUM_RANKED)
    pool = open_pool(folder, queries, corag.embedder(embedder), candidates, quiet=config.quiet)
    store = Path(config.out) / "rewritings.jsonl"
    rewrite = rotated if rewriter is None else chat_rewriter(chats_of("rewriter", rewriter)[0], store)
    written = stress_sets(folder, pool, out, kind=kind, rates=rates, size=size, rewrite=rewrite, quiet=config.quiet)
    return written[how[kind]]


def _path(config: ReproduceConfig, data: Path, what: str, settings: Any) -> Path:
    name = f"{folder_name(data.name)}-{what}-{fingerprint([str(data.resolve()), settings])[:8]}"
    return Path(config.out) / "data" / name


def write_demo(folder: Path) -> Path:
    """Write the demo's data folder if it is missing, and return it."""
    path = folder / DEMO
    if not (path / "queries.jsonl").exists():
        write_data_folder(path)
    return path

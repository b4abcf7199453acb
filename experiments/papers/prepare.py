"""What the comparisons of a study need: reference answers, noise, redundancy.

All of it is below the folder of all studies, which share it, and is made once; an interrupted step resumes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import corag
from corag.errors import InputError
from corag.text.data import DataFolder, find_data, folder_name
from experiments.data.config import CandidateSettings
from experiments.data.pools import open_pool, sample_questions
from experiments.data.references import ReferencesConfig, write_references
from experiments.data.splits import questions_of
from experiments.data.stress_sets import chat_rewriter, rotated, stress_sets
from experiments.demo import write_data_folder
from experiments.evaluation.config import EvaluateConfig
from experiments.evaluation.judge import chats_of
from experiments.papers.study import CONFIGS, DATA_SETTINGS, Cell, methods_of
from experiments.run.journal import fingerprint

if TYPE_CHECKING:
    from experiments.papers.run import ReproduceConfig

LABELS = CONFIGS / "labels-paper.yaml"
KINDS = ("noise", "redundancy")
DEMO, TRAINED = "demo", "trained"
"""The data set that is always at hand; the agent of a study that takes `--agent`."""
NUM_RANKED = 100
"""Chunks of a corpus that are ranked for a pool with a given share of noise or of rewritings."""


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

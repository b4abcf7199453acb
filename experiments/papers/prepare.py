"""What the comparisons of a study need: reference answers, noise, redundancy.

All of it is below the folder of all studies, which share it, and is made once; an interrupted step resumes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import corag
from corag.checks import check_choice
from corag.errors import InputError
from corag.models.runtime import Runtime
from corag.text.data import DataFolder, find_data, folder_name
from experiments.data.config import CandidateSettings
from experiments.data.folder import write_data
from experiments.data.pools import drawn, open_pool
from experiments.data.references import ReferencesConfig, write_references
from experiments.data.splits import questions_of
from experiments.data.stress_sets import chat_rewriter, rotated, stress_sets
from experiments.demo import load
from experiments.evaluation.config import EvaluateConfig
from experiments.evaluation.judge import chat_of
from experiments.papers.small import DEMO, TRAINED
from experiments.papers.study import CONFIGS, DATA_SETTINGS, Cell, methods_of
from experiments.run.journal import fingerprint

LABELS = CONFIGS / "labels-paper.yaml"
KINDS = ("noise", "redundancy")
NUM_RANKED = 100
"""Chunks of a corpus that are ranked for a pool with a given share of noise or of rewritings."""


@dataclass(frozen=True)
class Preparation:
    """Makes what the comparisons of a study need.

    Attributes:
        folder: The folder of all studies.
        cells: All cells that are measured.
        agent: What `agent: trained` stands for; None without.
        limit: Most questions of each set; None for all.
        runtime: Device and the like of models.
        quiet: Show no progress.
    """

    folder: Path
    cells: Sequence[Cell]
    agent: str | None
    limit: int | None
    runtime: Mapping[str, Any]
    quiet: bool

    def config(self, cells: Sequence[Cell], out: Path) -> EvaluateConfig:
        """Return the settings of the comparison that measures some cells, and make what it needs."""
        data = {name: value for name, value in cells[0].settings.items() if name in DATA_SETTINGS}
        settings: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in cells[0].settings.items()
            if name not in data
        }
        if settings.get("agent") == TRAINED:
            if self.agent is None:
                raise InputError(
                    f"this study needs the paper's agent; make one as {LABELS} says, and give it by --agent"
                )
            settings["agent"] = self.agent
        if self.limit is not None:
            settings["limit"] = min(self.limit, settings.get("limit") or self.limit)
        kinds = [kind for kind in KINDS if kind in data]
        if len(kinds) > 1:
            raise InputError("a set has noise and redundancy; give one of the two")
        name, split = str(settings["data"]), settings.get("split", "dev")
        folder = write_demo(self.folder / "data") if name == DEMO else find_data(name)
        if data.get("references"):
            queries = questions_of(DataFolder.open(folder), split, settings.get("limit"))
            if not all(query.answers for query in queries):
                reader = str(data.get("references_reader") or settings["reader"])
                folder = self._with_references(folder, reader, split, settings.get("limit"))
        if kinds:
            folder = self._with_stress(folder, kinds[0], settings, data)
            # Its questions have lists of their own.
            settings |= {"pool": "candidates", "limit": None, "sample": None}
        methods = tuple(methods_of(cells))
        settings |= {"data": str(folder), "methods": methods, "out": str(out), "quiet": self.quiet, "curves": False}
        return EvaluateConfig(**{**self.runtime, **settings})

    def _with_references(self, data: Path, reader: str, splits: str, limit: int | None) -> Path:
        chosen: dict[str, Any] = {"splits": splits, "limit": limit}
        out = self._path("data", data, "references", [reader, chosen])
        config = ReferencesConfig(str(data), str(out), reader, **chosen, **self.runtime, quiet=self.quiet)
        return write_references(config)[0]

    def _with_stress(self, data: Path, kind: Any, settings: Mapping[str, Any], how: Mapping[str, Any]) -> Path:
        # The questions are those with enough passages at every rate.
        rates = sorted({cell.settings[kind] for cell in self.cells if kind in cell.settings})
        size, stress = how.get("size", 20), how.get("stress", {})
        for name in stress:
            check_choice("a setting of stress", name, ("pool", "rewriter"))
        split, limit = settings.get("split", "dev"), settings.get("limit")
        sample, seed = settings.get("sample"), settings.get("seed", 0)
        embedder, rewriter = settings.get("embedder", "minilm"), stress.get("rewriter")
        out = self._path("data", data, kind, [rates, size, stress, split, limit, sample, seed, embedder])
        chosen = out / f"{kind}-{how[kind]:g}"
        if (chosen / "queries.jsonl.gz").exists():
            return chosen
        folder = DataFolder.open(data)
        queries = drawn(folder.split(split, limit), sample, seed)
        candidates = CandidateSettings(pool=stress.get("pool", "corpus"), num_candidates=NUM_RANKED)
        pool = open_pool(folder, queries, corag.embedder(embedder), candidates, quiet=self.quiet)
        store = self.folder / "rewritings.jsonl"
        rewrite = rotated if rewriter is None else chat_rewriter(chat_of("rewriter", rewriter), store)
        written = stress_sets(folder, pool, out, kind=kind, rates=rates, size=size, rewrite=rewrite, quiet=self.quiet)
        return written[how[kind]]

    def _path(self, parent: str, data: Path, what: str, settings: Any) -> Path:
        name = folder_name(data.name)
        return self.folder / parent / f"{name}-{what}-{fingerprint([str(data.resolve()), settings])[:8]}"


def changed_settings(runtime: Runtime) -> dict[str, Any]:
    """Return the settings of a `Runtime` that are not the defaults."""
    defaults = Runtime().runtime_settings
    return {name: value for name, value in runtime.runtime_settings.items() if value != defaults[name]}


def write_demo(folder: Path) -> Path:
    """Write the demo's data folder if it is missing, and return it; each question also has a wrong answer."""
    path = folder / DEMO
    if not (path / "queries.jsonl").exists():
        demo = load()
        # The answer to the question before, so that there is something to verify.
        wrong = [row["answers"][0] for row in (demo.queries[-1], *demo.queries[:-1])]
        queries = [{**row, "hallucinated_answer": other} for row, other in zip(demo.queries, wrong, strict=True)]
        write_data(path, demo.documents, queries)
    return path

"""What the comparisons of a study need: reference answers, noise, redundancy, a trained agent.

All of it is below the folder of all studies, which share it, and is made once; an interrupted step resumes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import corag
from corag.checks import check_choice
from corag.cli.console import say, stderr
from corag.errors import InputError
from corag.models.runtime import Runtime
from corag.registry import tokens
from corag.text.chunking import ChunkConfig, chunk_document
from corag.text.data import DataFolder, find_data, folder_name
from corag.text.documents import Document, body
from experiments.data.config import CandidateSettings
from experiments.data.folder import write_data
from experiments.data.pools import drawn, open_pool
from experiments.data.references import ReferencesConfig, write_references
from experiments.data.splits import questions_of
from experiments.data.stress_sets import chat_rewriter, rotated, stress_sets
from experiments.demo import load
from experiments.evaluation.config import EvaluateConfig
from experiments.evaluation.judge import chat_of
from experiments.papers.standins import DEMO, TRAINED
from experiments.papers.study import Cell, methods_of
from experiments.run.journal import fingerprint
from experiments.run.settings import read_settings

KINDS = ("noise", "redundancy")
LEAST_TO_LEARN = 12
"""Questions that an agent learns from, at least: its classes have to occur."""
PASSAGE_TOKENS = 96
"""Of the demo's passages, if candidates hold given shares of noise or of rewritings."""
NUM_RANKED = 100
"""Chunks of a corpus that are ranked for a pool with a given share of noise or of rewritings."""


@dataclass(frozen=True)
class Preparation:
    """Makes what the comparisons of a study need.

    Attributes:
        folder: The folder of all studies.
        cells: All cells that are measured.
        agent: Settings of the study's agent: `label` and `train`.
        limit: Most questions of each set; None for all.
        runtime: Device and the like of models.
        quiet: Show no progress.
    """

    folder: Path
    cells: Sequence[Cell]
    agent: Mapping[str, Any]
    limit: int | None
    runtime: Mapping[str, Any]
    quiet: bool

    def config(self, cells: Sequence[Cell], out: Path) -> EvaluateConfig:
        """Return the settings of the comparison that measures some cells, and make what it needs."""
        given, data = cells[0].settings, cells[0].data
        settings: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in given.items()
        }
        if settings.get("agent") == TRAINED:
            settings["agent"] = str(self._trained_agent())
        if self.limit is not None:
            settings["limit"] = min(self.limit, settings.get("limit") or self.limit)
        kinds = [kind for kind in KINDS if kind in data]
        if len(kinds) > 1:
            raise InputError("a set has noise and redundancy; give one of both")
        name, split = str(settings["data"]), settings.get("split", "dev")
        folder = write_demo(self.folder / "data", passages=bool(kinds)) if name == DEMO else find_data(name)
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
        rates = sorted({cell.data[kind] for cell in self.cells if kind in cell.data})
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
        store = self.folder / "rewritings.sqlite"
        rewrite = rotated if rewriter is None else chat_rewriter(chat_of("rewriter", rewriter), store)
        written = stress_sets(folder, pool, out, kind=kind, rates=rates, size=size, rewrite=rewrite, quiet=self.quiet)
        return written[how[kind]]

    def _trained_agent(self) -> Path:
        """Return the checkpoint of the study's agent: labelled and trained if it is not yet."""
        if not self.agent:
            raise InputError(f"agent is {TRAINED!r}: give the study agent: {{label: ..., train: ...}}")
        from experiments.agents.train import TrainAgentConfig, train
        from experiments.labels.config import LabelConfig
        from experiments.labels.label import label

        labelling, training = dict(self.agent["label"]), dict(self.agent["train"])
        if self.limit is not None:
            labelling["limit"] = max(self.limit, LEAST_TO_LEARN)
        path = self.folder / "agents" / fingerprint([labelling, training])
        checkpoint = path / "training" / "checkpoint"
        if checkpoint.exists():
            return checkpoint
        say(f"labelling and training the agent of this study in {path}; studies with the same settings share it",
            stderr())  # fmt: skip
        if labelling.pop("references", False):
            data, splits = find_data(str(labelling["data"])), str(labelling.get("splits", "train"))
            reader, limit = str(labelling["reader"]), labelling.get("limit")
            labelling["data"] = str(self._with_references(data, reader, splits, limit))
        own = {"quiet": self.quiet, "out": str(path / "labels.parquet")}
        table = label(read_settings(LabelConfig, {**self.runtime, **labelling, **own}))
        own = {"quiet": self.quiet, "out": str(path / "training"), "labels": str(table)}
        train(read_settings(TrainAgentConfig, {**training, **own}))
        return checkpoint

    def _path(self, parent: str, data: Path, what: str, settings: Any) -> Path:
        name = folder_name(data.name)
        return self.folder / parent / f"{name}-{what}-{fingerprint([str(data.resolve()), settings])[:8]}"


def changed_settings(runtime: Runtime) -> dict[str, Any]:
    """Return the settings of a `Runtime` that are not the defaults."""
    defaults = Runtime().runtime_settings
    return {name: value for name, value in runtime.runtime_settings.items() if value != defaults[name]}


def write_demo(folder: Path, *, passages: bool = False) -> Path:
    """Write the demo's data folder if it is missing, and return it; each question also has a wrong answer.

    With `passages` its topics are cut into passages, of which all of the topics that hold the evidence are of help.
    """
    path = folder / (f"{DEMO}-passages" if passages else DEMO)
    if (path / "queries.jsonl").exists():
        return path
    demo = load()
    documents = demo.documents
    # The answer to the question before, so that there is something to verify.
    wrong = [row["answers"][0] for row in (demo.queries[-1], *demo.queries[:-1])]
    queries = [{**row, "hallucinated_answer": other} for row, other in zip(demo.queries, wrong, strict=True)]
    if passages:
        counter, config = tokens(), ChunkConfig(PASSAGE_TOKENS)
        by_topic = {
            row["id"]: [
                {"id": f"{row['id']}-{number}", "title": row["title"], "text": body(chunk)}
                for number, chunk in enumerate(chunk_document(Document(**row), counter, config))
            ]
            for row in documents
        }
        documents = [row for of_topic in by_topic.values() for row in of_topic]
        for row in queries:
            row["gold"] = [chunk["id"] for name in row["topics"] for chunk in by_topic.get(name, ())]
    write_data(path, documents, queries)
    return path

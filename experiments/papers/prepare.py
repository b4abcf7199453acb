"""What the comparisons of a study need: reference answers, noise, redundancy, a trained agent.

All of it is below the folder of all studies, which share it, and is made once; an interrupted step resumes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import corag
from corag.cli.console import say, stderr
from corag.errors import InputError
from corag.models.runtime import Runtime
from corag.text.data import DataFolder, find_data, folder_name
from experiments.data.config import CandidateSettings
from experiments.data.pools import drawn, open_pool
from experiments.data.references import ReferencesConfig, write_references
from experiments.data.splits import questions_of
from experiments.data.stress_sets import chat_rewriter, rotated, stress_sets
from experiments.evaluation.config import EvaluateConfig
from experiments.evaluation.judge import chat_of
from experiments.papers.cells import Cell, methods_of
from experiments.papers.standins import DEMO, TRAINED, write_demo
from experiments.run.journal import fingerprint

KINDS = ("noise", "redundancy")
LEAST_TO_LEARN = 12
"""Questions that an agent learns from, at least: its classes have to occur."""
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
        settings = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
        if settings.get("agent") == TRAINED:
            settings["agent"] = str(self._trained_agent())
        if self.limit is not None:
            settings["limit"] = min(self.limit, settings.get("limit") or self.limit)
        folder = self._data(settings, data)
        if any(kind in data for kind in KINDS):
            # Its questions have lists of their own.
            settings |= {"pool": "candidates", "limit": None, "sample": None}
        methods = tuple(methods_of(cells))
        settings |= {"data": str(folder), "methods": methods, "out": str(out), "quiet": self.quiet, "curves": False}
        return EvaluateConfig(**{**self.runtime, **settings})

    def _data(self, settings: Mapping[str, Any], how: Mapping[str, Any]) -> Path:
        kinds = [kind for kind in KINDS if kind in how]
        if len(kinds) > 1:
            raise InputError("a set has noise and redundancy; give one of both")
        name = str(settings["data"])
        data = write_demo(self.folder / "data", passages=bool(kinds)) if name == DEMO else find_data(name)
        if how.get("references"):
            queries = questions_of(DataFolder.open(data), settings.get("split", "dev"), settings.get("limit"))
            if not all(query.answers for query in queries):
                reader = str(how.get("references_reader") or settings["reader"])
                data = self._with_references(data, reader, settings, settings.get("split", "dev"))
        return self._with_stress(data, kinds[0], settings, how) if kinds else data

    def _with_references(self, data: Path, reader: str, settings: Mapping[str, Any], splits: str) -> Path:
        chosen: dict[str, Any] = {"splits": splits, "limit": settings.get("limit")}
        out = self._path("data", data, "references", [reader, chosen])
        config = ReferencesConfig(str(data), str(out), reader, **chosen, **self.runtime, quiet=self.quiet)
        return write_references(config)[0]

    def _with_stress(self, data: Path, kind: Any, settings: Mapping[str, Any], how: Mapping[str, Any]) -> Path:
        # The questions are those with enough passages at every rate.
        rates = sorted({cell.data[kind] for cell in self.cells if kind in cell.data})
        size, stress = how.get("size", 20), how.get("stress", {})
        if unknown := set(stress) - {"pool", "rewriter"}:
            raise InputError(f"expected pool or rewriter as settings of stress, got {', '.join(sorted(unknown))}")
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
            raise InputError(
                f"agent is {TRAINED!r}, but the study does not say how: give agent: {{label: ..., train: ...}}"
            )
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
            labelling["data"] = str(self._with_references(data, str(labelling["reader"]), labelling, splits))
        table = label(_parsed(LabelConfig, {**self.runtime, **labelling, "out": str(path / "labels.parquet")}, self))
        train(_parsed(TrainAgentConfig, {**training, "labels": str(table), "out": str(path / "training")}, self))
        return checkpoint

    def _path(self, parent: str, data: Path, what: str, settings: Any) -> Path:
        name = folder_name(data.name)
        return self.folder / parent / f"{name}-{what}-{fingerprint([str(data.resolve()), settings])[:8]}"


def _parsed(kind: type[Any], settings: Mapping[str, Any], preparation: Preparation) -> Any:
    """Return the settings of a command, read as from its YAML file."""
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(kind)
    parsed = parser.parse_object({**settings, "quiet": preparation.quiet})
    return kind(**vars(parser.instantiate(parsed)))


def changed_settings(runtime: Runtime) -> dict[str, Any]:
    """Return the settings of a `Runtime` that are not the defaults."""
    defaults = Runtime().runtime_settings
    return {name: value for name, value in runtime.runtime_settings.items() if value != defaults[name]}

"""Makes ready what the comparisons of a study need: reference answers, noise, redundancy, a trained agent.

All of it lies below the folder of all studies, which share it, and is made once; an interrupted step resumes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from corag.cli.console import say, stderr
from corag.errors import InputError
from corag.models.runtime import Runtime
from corag.text.data import DataFolder, find_data, folder_name
from experiments.data.references import ReferencesConfig, write_references
from experiments.data.splits import questions_of
from experiments.data.stress_sets import StressConfig, stress_sets
from experiments.evaluation.config import EvaluateConfig
from experiments.papers.cells import Run
from experiments.papers.standins import DEMO, TRAINED, write_demo
from experiments.run.journal import fingerprint

KINDS = ("noise", "redundancy")


class Workshop:
    """Makes what runs need, in a folder.

    Args:
        folder: The folder of all studies.
        runs: The comparisons of the study.
        agent: Settings of its agent: `label` and `train`.
        limit: Most questions of each set; None for all.
        where: Device and the like of models that are asked.
        quiet: Show no progress.
    """

    def __init__(
        self,
        folder: Path,
        runs: Sequence[Run],
        agent: Mapping[str, Any],
        *,
        limit: int | None,
        where: Mapping[str, Any],
        quiet: bool,
    ) -> None:
        self._folder, self._agent, self._limit, self._quiet = folder, agent, limit, quiet
        self._where = dict(where)
        self._rates = {kind: sorted({run.data[kind] for run in runs if kind in run.data}) for kind in KINDS}

    def config(self, run: Run, out: Path) -> EvaluateConfig:
        """Return the settings of a comparison, and make ready what it needs."""
        settings = {name: tuple(value) if isinstance(value, list) else value for name, value in run.settings.items()}
        if settings.get("agent") == TRAINED:
            settings["agent"] = str(self.agent())
        if self._limit is not None:
            settings["limit"] = min(self._limit, settings.get("limit") or self._limit)
        data = self._data(settings, run.data)
        if any(kind in run.data for kind in KINDS):
            # Its questions have lists of their own.
            settings |= {"pool": "candidates", "limit": None, "sample": None}
        return EvaluateConfig(
            **{**self._where, **settings, "data": str(data)},
            methods=tuple(run.methods),
            out=str(out),
            quiet=self._quiet,
        )

    def _data(self, settings: Mapping[str, Any], how: Mapping[str, Any]) -> Path:
        kinds = [kind for kind in KINDS if kind in how]
        if len(kinds) > 1:
            raise InputError("a set has noise and redundancy; give one of both")
        name = str(settings["data"])
        data = write_demo(self._folder / "data", passages=bool(kinds)) if name == DEMO else find_data(name)
        if how.get("references") and not _answered(data, settings):
            reader = how.get("references_reader") or settings["reader"]
            data = self._with_references(data, str(reader), settings)
        return self._with_stress(data, kinds[0], settings, how) if kinds else data

    def _with_references(self, data: Path, reader: str, settings: Mapping[str, Any], split: str | None = None) -> Path:
        asked: dict[str, Any] = {"splits": split or settings.get("split", "dev"), "limit": settings.get("limit")}
        out = self._place("data", data, "references", [reader, asked])
        asked |= {**self._where, "quiet": self._quiet}
        written, _ = write_references(ReferencesConfig(str(data), str(out), reader, **asked))
        return written

    def _with_stress(self, data: Path, kind: Any, settings: Mapping[str, Any], how: Mapping[str, Any]) -> Path:
        asked = {
            "split": settings.get("split", "dev"),
            "kind": kind,
            # The questions are those with enough passages at every rate.
            "rates": tuple(self._rates[kind]),
            "size": how.get("size", 20),
            "limit": settings.get("limit"),
            "sample": settings.get("sample"),
            "seed": settings.get("seed", 0),
            "embedder": settings.get("embedder", "minilm"),
            **how.get("stress", {}),
        }
        out = self._place("data", data, kind, asked)
        chosen = out / f"{kind}-{how[kind]:g}"
        if not (chosen / "queries.jsonl.gz").exists():
            store = {"store": str(self._folder / "rewritings.sqlite")}
            stress_sets(StressConfig(str(data), str(out), **{**store, **asked}, quiet=self._quiet))
        return chosen

    def agent(self) -> Path:
        """Return the checkpoint of the study's agent: labelled and trained where it is not yet."""
        if not self._agent:
            raise InputError(
                f"agent is {TRAINED!r}, but the study does not say how: give agent: {{label: ..., train: ...}}"
            )
        from experiments.agents.train import TrainAgentConfig, train
        from experiments.labels.config import LabelConfig
        from experiments.labels.label import label

        labelling, training = dict(self._agent["label"]), dict(self._agent["train"])
        if self._limit is not None:
            labelling["limit"] = max(self._limit, LEAST_TO_LEARN)
        place = self._folder / "agents" / fingerprint([labelling, training])
        checkpoint = place / "training" / "checkpoint"
        if checkpoint.exists():
            return checkpoint
        say(f"labelling and training the agent of this study in {place}; it serves all that have the same", stderr())
        if labelling.pop("references", False):
            data = find_data(str(labelling["data"]))
            labelling["data"] = str(
                self._with_references(data, str(labelling["reader"]), labelling, str(labelling.get("splits", "train")))
            )
        table = label(_typed(LabelConfig, {**self._where, **labelling, "out": str(place / "labels.parquet")}, self))
        train(_typed(TrainAgentConfig, {**training, "labels": str(table), "out": str(place / "training")}, self))
        return checkpoint

    @property
    def quiet(self) -> bool:
        """Whether no progress is shown."""
        return self._quiet

    def _place(self, shelf: str, data: Path, what: str, settings: Any) -> Path:
        name = folder_name(data.name)
        return self._folder / shelf / f"{name}-{what}-{fingerprint([str(data.resolve()), settings])[:8]}"


def _answered(data: Path, settings: Mapping[str, Any]) -> bool:
    """Return whether every question that is asked has reference answers already."""
    queries = questions_of(DataFolder.open(data), settings.get("split", "dev"), settings.get("limit"))
    return all(query.answers for query in queries)


LEAST_TO_LEARN = 12
"""Questions that an agent learns from, at least: its classes have to occur."""


def _typed(kind: type[Any], settings: Mapping[str, Any], workshop: Workshop) -> Any:
    """Return the settings of a command, read as from its YAML file."""
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(kind)
    parsed = parser.parse_object({**settings, "quiet": workshop.quiet})
    return kind(**vars(parser.instantiate(parsed)))


def where_of(runtime: Runtime) -> dict[str, Any]:
    """Return the settings of a `Runtime` that are not the defaults."""
    defaults = Runtime().runtime_settings
    return {name: value for name, value in runtime.runtime_settings.items() if value != defaults[name]}

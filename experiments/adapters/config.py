"""Settings of `corag train value` and `fused`; loads nothing heavy, so that help stays quick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from common.checks import check_count, check_seed
from corag.errors import InputError
from corag.models.runtime import Runtime
from corag.rerankers.evidence.reranker import MAX_SIZE
from corag.rerankers.fused import COSINE, LATE, LENGTH, WORDS
from corag.text.units import unit_size
from experiments.labels.config import LabelSource
from experiments.run.track import Tracker, Tracking


@dataclass(frozen=True, kw_only=True)
class AdapterTraining(Runtime, Tracking):
    """Settings that all trainings of shipped parts share.

    Attributes:
        out: Folder for the adapter (`adapter/`), logs, and the state of an unfinished training.
        sources: Questions to learn from, as of a labelling.
        data: Folder of the data folders; empty to look up each by its own name.
        quiet: Show no progress.
    """

    command: ClassVar[str]

    out: str
    sources: tuple[LabelSource, ...]
    data: str = ""
    logger: Tracker = "wandb"
    quiet: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sources:
            raise InputError("sources is empty; give at least one data folder to learn from")


@dataclass(frozen=True, kw_only=True)
class FusedTraining(AdapterTraining):
    """Train the value that fuses what several rerankers say of each passage.

    Attributes:
        signals: What the value reads: names of rerankers, `cosine` and `length`; `minilm-late` has to be among them.
    """

    command: ClassVar[str] = "fused"

    signals: tuple[str, ...] = (LATE, COSINE, WORDS, LENGTH, "minilm-evidence")

    def __post_init__(self) -> None:
        super().__post_init__()
        if LATE not in self.signals or len(set(self.signals)) < len(self.signals):
            raise InputError(f"signals are {', '.join(self.signals)}; name each once, and {LATE} among them")


@dataclass(frozen=True, kw_only=True)
class ValueTraining(AdapterTraining):
    """Train a reranker that values combinations by the probability that they hold the evidence.

    It learns from four fifths of the questions, divided by documents, and is calibrated on the others.

    Attributes:
        name: Name of the adapter.
        units: What is chosen: the passages (`passage`), their `sentence`s or `window(n)`s; each question is learned
            from once with each unit.
        max_size: Maximum number of passages, or sentences, that the evidence is spread over.
        hidden: Hidden units of each network that scores sets of candidates.
        epochs: Passes over the questions.
        seed: Seed of every random choice.
    """

    command: ClassVar[str] = "value"

    name: str = "minilm-evidence"
    units: tuple[str, ...] = ("passage", "sentence")
    max_size: int = MAX_SIZE
    hidden: int = 48
    epochs: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("max_size", self.max_size, "typical: 5", most=MAX_SIZE)
        for name in ("hidden", "epochs"):
            check_count(name, getattr(self, name))
        check_seed("seed", self.seed)
        for unit in self.units:
            unit_size(unit)

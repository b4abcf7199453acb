"""Settings of `corag train value` and `fused`; loads nothing heavy, so that help stays quick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from common.checks import check_count, check_seed
from corag.errors import InputError
from corag.models.runtime import Runtime
from corag.registry import RERANKERS
from corag.rerankers.fused import COSINE, LATE, LENGTH, OF_TEXT, WORDS
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
        for name in set(self.signals).difference(OF_TEXT):
            RERANKERS.check(name)


@dataclass(frozen=True, kw_only=True)
class ValueTraining(AdapterTraining):
    """Train a reranker that values combinations by the probability that they hold the evidence.

    It learns from four fifths of the questions, divided by documents, and is calibrated on the others.

    Attributes:
        epochs: Passes over the questions.
        seed: Seed of every random choice.
    """

    command: ClassVar[str] = "value"

    epochs: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("epochs", self.epochs)
        check_seed("seed", self.seed)

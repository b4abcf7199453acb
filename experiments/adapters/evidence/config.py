"""The settings of a training of an evidence reranker; loads nothing heavy, so that the command line stays quick."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from agent.config import Tracker
from corag.errors import InputError
from corag.models.engine.backends import Precision
from corag.rerankers.evidence.hypotheses import MAX_SIZE
from corag.rerankers.evidence.values import Weights

Within = Literal["candidates", "article", "corpus"]
Part = Literal["training", "held-out", "all"]


@dataclass(frozen=True)
class EvidenceSource:
    """Questions of a data folder, and where the candidates of each come from.

    Attributes:
        data: Name of the data folder.
        split: Which questions.
        held_out: Share of them that is never learnt from, cut between documents.
        part: `training`: without that share; `held-out`: that share; `all`.
        within: The question's own `candidates`; or the gold passages and those nearest to the question `within` the
            same `article` (field `article` of the question) or the whole `corpus`: half of them by the cosine of
            embeddings, half by BM25.
        num_candidates: Candidates of a question, unless it brings its own; 0 for all there are.
        limit: The most questions, drawn by a hash of their ids; 0 for all.
        unanswerable: Share of the questions that are shown a second time without their evidence.
        weight: Of a question in the loss.
    """

    data: str
    split: str = "train"
    held_out: float = 0.2
    part: Part = "training"
    within: Within = "candidates"
    num_candidates: int = 10
    limit: int = 0
    unanswerable: float = 0.2
    weight: float = 1.0

    def __post_init__(self) -> None:
        for name in ("held_out", "unanswerable"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"{name} of source {self.data!r} is a share from 0 to 1, got {getattr(self, name)}")
        for name in ("num_candidates", "limit"):
            if getattr(self, name) < 0:
                raise InputError(f"{name} of source {self.data!r} must not be negative, got {getattr(self, name)}")
        if not self.weight > 0:
            raise InputError(f"weight of source {self.data!r} must be above 0, got {self.weight}")


@dataclass(frozen=True)
class FitSettings:
    """How the network that weighs hypotheses is fitted.

    Attributes:
        members: Networks of the ensemble, alike but for their random numbers.
        hidden: Hidden units of each; 0 for the linear floor alone.
        epochs: Passes over the questions.
        batch_size: Questions of a batch.
        learning_rate: The highest of the one-cycle schedule.
        weight_decay: Of AdamW.
        dropout: Of the hidden units.
        max_drawn: The most sets of one size of three or more that are looked at for a question.
        max_rows: The most sets of a question in one batch.
    """

    members: int = 5
    hidden: int = 32
    epochs: int = 16
    batch_size: int = 16
    learning_rate: float = 5e-3
    weight_decay: float = 1e-2
    dropout: float = 0.4
    max_drawn: int = 400
    max_rows: int = 500


@dataclass(frozen=True)
class EvidenceTest:
    """What an adapter is measured on.

    Attributes:
        source: Questions and candidates.
        kind: `selection`: share of the questions whose whole evidence is selected under each budget; `ranking`: ranks
            of single passages.
        budgets: Tokens.
    """

    source: EvidenceSource
    kind: Literal["selection", "ranking"] = "selection"
    budgets: tuple[int, ...] = (256, 384)


@dataclass(frozen=True)
class EvidenceTraining:
    """Train a reranker that values combinations by how likely they hold the evidence.

    Attributes:
        name: Of the adapter, such as `minilm-multihop`.
        data: Folder that holds the data folders.
        out: Folder for the adapter (`adapter/`), the log, and what an unfinished training has done.
        sources: What to learn from.
        tests: What to measure on; nothing of it is learnt from.
        max_size: The most passages that the evidence is spread over.
        order_sources: Data folders that name the evidence in the order in which it is to be read.
        fit: How the network is fitted.
        weights: How a value is put together; temperature, slope and offset are fitted.
        folds: Parts of the training questions that are foretold by networks that have not seen them, to calibrate.
        states: SQLite file for token states, which several trainings may share; `states.sqlite` in `out` if empty.
        precision: Of the encoder.
        seed: Of every random choice.
        logger: Where the figures go.
        quiet: No progress.
    """

    name: str
    data: str
    out: str
    sources: tuple[EvidenceSource, ...]
    tests: tuple[EvidenceTest, ...] = ()
    max_size: int = MAX_SIZE
    order_sources: tuple[str, ...] = ()
    fit: FitSettings = field(default_factory=FitSettings)
    weights: Weights = field(default_factory=Weights)
    folds: int = 4
    states: str = ""
    precision: Precision = "fp32"
    seed: int = 0
    logger: Tracker = "wandb"
    quiet: bool = False

    def __post_init__(self) -> None:
        if not self.sources:
            raise InputError("sources is empty; give at least one data folder to learn from")
        if not 1 <= self.max_size <= MAX_SIZE:
            raise InputError(f"max_size must be from 1 to {MAX_SIZE}, got {self.max_size}")
        if self.folds < 2:
            raise InputError(f"folds must be at least 2, got {self.folds}")

"""The settings of a training of an evidence reranker; loads nothing heavy, so that the command line stays quick."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from agent.config import Tracker
from corag.errors import InputError
from corag.rerankers.evidence.hypotheses import MAX_SIZE
from corag.rerankers.evidence.values import Weights
from corag.text.units import Unit

Within = Literal["candidates", "article", "corpus"]
Part = Literal["training", "held-out", "all"]


@dataclass(frozen=True)
class EvidenceSource:
    """Questions of a data folder, and where the candidates of each come from.

    Attributes:
        data: Data folder: below that of the training, or by name.
        split: Split of the questions.
        held_out: Share of them that is never trained on, split by documents.
        part: `training`, without that share; `held-out`, only that share; or `all`.
        within: The question's own `candidates`; or the gold passages and the nearest ones from the same `article`
            (field `article` of the question) or the whole `corpus`, half of them by cosine, half by BM25.
        num_candidates: Candidates of a question that has none of its own; 0 for all there are.
        unit: What is chosen: the passages (`passage`), or their `sentence`s or `window(n)`s.
        limit: Maximum number of questions, sampled by a hash of their ids; 0 for all.
        unanswerable: Share of the questions that are repeated without their evidence.
        weight: Weight of a question in the loss.
    """

    data: str
    split: str = "train"
    held_out: float = 0.2
    part: Part = "training"
    within: Within = "candidates"
    num_candidates: int = 10
    unit: str = "passage"
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
        Unit.parse(self.unit)
        if not self.weight > 0:
            raise InputError(f"weight of source {self.data!r} must be above 0, got {self.weight}")


@dataclass(frozen=True)
class FitSettings:
    """Training of the network that scores hypotheses.

    Attributes:
        members: Networks in the ensemble, which differ in their seed.
        hidden: Hidden units of each; 0 for a linear model.
        epochs: Passes over the questions.
        batch_size: Questions in a batch.
        learning_rate: Peak of the one-cycle schedule.
        weight_decay: Weight decay of AdamW.
        dropout: Dropout of the hidden units.
        max_drawn: Maximum number of sets of each size from three up that are sampled for a question.
        max_rows: Maximum number of sets of a question in one batch.
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
    """A test of an adapter.

    Attributes:
        source: Questions and candidates.
        kind: `selection`, the share of questions whose whole evidence is selected within each budget; or `ranking`, the
            ranks of single passages.
        budgets: Token budgets.
    """

    source: EvidenceSource
    kind: Literal["selection", "ranking"] = "selection"
    budgets: tuple[int, ...] = (256, 384)


@dataclass(frozen=True)
class EvidenceTraining:
    """Train a reranker that scores combinations by the probability that they hold the evidence.

    Attributes:
        name: Name of the adapter, such as `minilm-multihop`.
        data: Folder of the data folders; empty to look up each by its own name.
        out: Folder for the adapter (`adapter/`), the log, and the state of an unfinished training.
        sources: Training data.
        tests: Test data; none of it is trained on.
        max_size: Maximum number of passages, or sentences, that the evidence is spread over.
        order_sources: Data folders that list the evidence in reading order.
        fit: Training of the network.
        weights: Weights of the parts of a value; temperature, slope and offset are fitted.
        folds: Folds of the training questions for calibration; each is predicted by networks trained on the others.
        states: SQLite file for token states, which several trainings may share; `states.sqlite` in `out` if empty.
        seed: Seed of every random choice.
        logger: Where the figures are logged.
        quiet: Show no progress.
    """

    name: str
    out: str
    sources: tuple[EvidenceSource, ...]
    data: str = ""
    tests: tuple[EvidenceTest, ...] = ()
    max_size: int = MAX_SIZE
    order_sources: tuple[str, ...] = ()
    fit: FitSettings = field(default_factory=FitSettings)
    weights: Weights = field(default_factory=Weights)
    folds: int = 4
    states: str = ""
    seed: int = 0
    logger: Tracker = "wandb"
    quiet: bool = False

    @property
    def units(self) -> bool:
        """Whether it learns from units of passages."""
        return any(source.unit != "passage" for source in self.sources)

    def __post_init__(self) -> None:
        if not self.sources:
            raise InputError("sources is empty; give at least one data folder to learn from")
        if not 1 <= self.max_size <= MAX_SIZE:
            raise InputError(f"max_size must be from 1 to {MAX_SIZE}, got {self.max_size}")
        if self.folds < 2:
            raise InputError(f"folds must be at least 2, got {self.folds}")

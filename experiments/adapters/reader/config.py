"""The settings of a training of the reader; loads nothing heavy, so that the command line stays quick."""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.config import Tracker
from corag.errors import InputError
from corag.models.runtime import Backend


@dataclass(frozen=True)
class RowSettings:
    """Training rows: a question with a window of context.

    Attributes:
        min_tokens: Windows are drawn between this length and `max_tokens`.
        max_tokens: Maximum tokens of a row.
        unanswerable: Rows without an answer for each row with one; they hold another passage on the same topic.
        distractor: Share of rows that hold such a passage beside the gold one.
        hard: Number of most similar passages that a distractor is drawn from; of twice as many for sentences.
        sentences: Share of rows that hold chosen sentences of gold passages and distractors in place of the passages,
            as a selector with `unit=sentence` leaves them. Questions of yes and no keep their passages.
    """

    min_tokens: int = 96
    max_tokens: int = 256
    unanswerable: float = 0.25
    distractor: float = 0.15
    hard: int = 4
    sentences: float = 0.0

    def __post_init__(self) -> None:
        for name in ("unanswerable", "distractor", "sentences"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} is a share, from 0 to 1, got {getattr(self, name)}")


@dataclass(frozen=True)
class ReaderSource:
    """A data folder to learn from.

    Attributes:
        data: Data folder: below that of the training, or by name.
        split: Its split with the training questions.
        held_out: Share of these questions that is never trained on, split by documents.
        repeat: Rows per question and epoch, each with other distractors.
    """

    data: str
    split: str = "train"
    held_out: float = 0.2
    repeat: int = 1


@dataclass(frozen=True)
class ReaderTest:
    """Questions, read with their gold passages, whose figures the model card shows beside the held-out ones.

    Attributes:
        data: Data folder: below that of the training, or by name.
        split: Split of the questions.
        limit: Maximum number of questions, sampled with the training's seed; 0 for all.
    """

    data: str
    split: str = "dev"
    limit: int = 0


@dataclass(frozen=True)
class ReaderTraining:
    """Train the extractive reader.

    Attributes:
        data: Folder of the data folders; empty to look up each by its own name.
        out: Folder for the adapter (`adapter/`), logs, and the state of an unfinished training.
        sources: Training data.
        tests: Test data besides the held-out questions.
        rows: Settings of the training rows.
        rank: Rank of the weight updates.
        epochs: Passes over the questions; may be fractional.
        learning_rate: Peak learning rate, kept between warm-up and decay.
        warmup_steps: Batches in which the learning rate rises.
        decay: Share of the training, at its end, in which the learning rate falls to zero.
        weight_decay: Weight decay of AdamW, for matrices.
        clip: Maximum norm of the gradient.
        average: Decay of the running average of the weights, which is what is shipped; 0 for the last weights.
        dropout: Dropout after every layer.
        kind_weight: Weight of the kind of answer (span, none, yes, no) in the loss.
        batch_tokens: Maximum tokens of a batch, over all processes.
        bf16: Compute in bfloat16 where it is safe; the weights stay fp32.
        backend: Backend that evaluates the trained reader; see `corag.models.runtime`.
        processes: Processes that share each batch.
        threads: CPU threads of each process; 0 for PyTorch's default.
        seed: Seed of every random choice.
        save_every_s: Seconds between two states on disk.
        validate_every: Batches between two validations; 0 for one at the end.
        validation: Maximum number of held-out questions of each source in a validation.
        window_tokens: Maximum tokens that the trained reader sees at once.
        init_from: Adapter folder to start from; empty for the plain encoder.
        logger: Where figures are logged: wandb, csv or none.
        quiet: Show no progress.
    """

    out: str
    sources: tuple[ReaderSource, ...]
    data: str = ""
    tests: tuple[ReaderTest, ...] = ()
    rows: RowSettings = field(default_factory=RowSettings)
    rank: int = 88
    epochs: float = 3.0
    learning_rate: float = 8e-4
    warmup_steps: int = 100
    decay: float = 0.3
    weight_decay: float = 0.01
    clip: float = 1.0
    average: float = 0.995
    dropout: float = 0.0
    kind_weight: float = 0.3
    batch_tokens: int = 4096
    bf16: bool = True
    backend: Backend = "auto"
    processes: int = 1
    threads: int = 0
    seed: int = 0
    save_every_s: float = 150.0
    validate_every: int = 200
    validation: int = 120
    window_tokens: int = 288
    init_from: str = ""
    logger: Tracker = "wandb"
    quiet: bool = False

    def __post_init__(self) -> None:
        for name in ("rank", "batch_tokens", "processes", "validation"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("epochs", "learning_rate", "clip"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} must be above 0, got {getattr(self, name)}")
        for name in ("decay", "dropout", "average"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} is a share, from 0 to 1, got {getattr(self, name)}")

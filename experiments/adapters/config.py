"""Settings of `corag train value`; loads nothing heavy, so that help stays quick."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

from corag.checks import check_count, check_range
from corag.errors import InputError
from corag.models.runtime import Runtime
from corag.rerankers.evidence.hypotheses import MAX_SIZE
from corag.rerankers.fused import COSINE, LATE, LENGTH, WORDS
from corag.text.units import unit_size
from experiments.labels.config import LabelSource
from experiments.run.track import UNMEASURED, Tracker, Tracking


def _check(settings: object, *, shares: str = "", counts: str = "", positive: str = "") -> None:
    for name in shares.split():
        check_range(name, getattr(settings, name), 0, 1, "it is a share")
    for name in counts.split():
        check_count(name, getattr(settings, name), "0 is the least", least=0)
    for name in positive.split():
        if not getattr(settings, name) > 0:
            raise InputError(f"{name} must be above 0, got {getattr(settings, name)}")


@dataclass(frozen=True, kw_only=True)
class AdapterTraining(Runtime, Tracking):
    """Settings that all trainings of shipped parts share.

    Attributes:
        out: Folder for the adapter (`adapter/`), logs, and the state of an unfinished training.
        data: Folder of the data folders; empty to look up each by its own name.
        seed: Seed of every random choice.
        quiet: Show no progress.
    """

    command: ClassVar[str]

    out: str
    data: str = ""
    seed: int = 0
    logger: Tracker = "wandb"
    quiet: bool = False

    @property
    def work(self) -> dict[str, Any]:
        """The settings that the adapter depends on, nested."""
        own = ("out", "quiet", *UNMEASURED, *self.runtime_settings)
        return {name: value for name, value in asdict(self).items() if name not in own}


@dataclass(frozen=True, kw_only=True)
class FusedTraining(AdapterTraining):
    """Train the value that fuses what several rerankers say of each passage.

    Attributes:
        sources: Questions to learn from, as of a labelling.
        signals: What the value reads: names of rerankers, `cosine` and `length`; `minilm-late` has to be among them.
    """

    command: ClassVar[str] = "fused"

    sources: tuple[LabelSource, ...]
    signals: tuple[str, ...] = (LATE, COSINE, WORDS, LENGTH, "minilm-evidence")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sources:
            raise InputError("sources is empty; give at least one data folder to learn from")
        if LATE not in self.signals or len(set(self.signals)) < len(self.signals):
            raise InputError(f"signals are {', '.join(self.signals)}; name each once, and {LATE} among them")


@dataclass(frozen=True)
class TrainingSource:
    """A data folder to learn from.

    Attributes:
        data: Data folder: below that of the training, or by name.
        split: Split of the questions.
        held_out: Share of them that is never trained on, split by documents.
    """

    data: str
    split: str = "train"
    held_out: float = 0.2

    def __post_init__(self) -> None:
        _check(self, shares="held_out")


@dataclass(frozen=True)
class EvidenceSource(TrainingSource):
    """A data folder to learn from, and where the candidates of its questions come from.

    Documents longer than `passage_tokens` are cut into passages; evidence that is a span of one is then each passage
    that shares a quarter of it.

    Attributes:
        kind: Sources of one kind are left out together; by default the data folder's name.
        part: The questions to learn from (`training`), or the share that is never trained on (`held-out`).
        within: The question's own `candidates`; or the gold passages and the nearest ones from the same `article`
            (field `article` of the question) or the whole `corpus`, half of them by cosine, half by BM25.
        num_candidates: Candidates of a question that has none of its own; 0 for all there are.
        limit: Maximum number of questions, sampled by a hash of their ids; 0 for all.
        unanswerable: Share of the questions that are repeated without their evidence.
        weight: Weight of a question in the loss.
        passage_tokens: Maximum tokens of a passage; 0 leaves documents whole.
    """

    kind: str = ""
    part: Literal["training", "held-out"] = "training"
    within: Literal["candidates", "article", "corpus"] = "candidates"
    num_candidates: int = 10
    limit: int = 0
    unanswerable: float = 0.2
    weight: float = 1.0
    passage_tokens: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.kind:
            object.__setattr__(self, "kind", self.data)
        _check(self, shares="unanswerable", counts="num_candidates limit passage_tokens", positive="weight")


@dataclass(frozen=True, kw_only=True)
class EvidenceTraining(AdapterTraining):
    """Settings of trainings that learn which combinations of candidates hold the evidence.

    Attributes:
        sources: Training data.
        calibration: Data to calibrate the values on; other questions than those of `sources`.
        units: What is chosen: the passages (`passage`), their `sentence`s or `window(n)`s; each question is learned
            from once with each unit.
    """

    sources: tuple[EvidenceSource, ...]
    calibration: tuple[EvidenceSource, ...] = ()
    units: tuple[str, ...] = ("passage",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sources:
            raise InputError("sources is empty; give at least one data folder to learn from")
        for unit in self.units:
            unit_size(unit)


@dataclass(frozen=True, kw_only=True)
class ValueTraining(EvidenceTraining):
    """Train a reranker that values combinations by the probability that they hold the evidence.

    Without `calibration`, each training question is calibrated by a network that has not learned from its kind.

    Attributes:
        name: Name of the adapter, such as `minilm-evidence`.
        max_size: Maximum number of passages, or sentences, that the evidence is spread over.
        order_sources: Data folders that list the evidence in reading order.
        hidden: Hidden units of each network that scores hypotheses; 0 for a linear model.
        epochs: Passes over the questions that fit what the linear floor leaves.
    """

    command = "value"

    name: str
    max_size: int = MAX_SIZE
    order_sources: tuple[str, ...] = ()
    hidden: int = 32
    epochs: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("max_size", self.max_size, "typical: 5", most=MAX_SIZE)
        _check(self, counts="hidden", positive="epochs")

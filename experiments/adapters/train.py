"""One command for all adapters: `corag train value --config experiments/configs/adapters/NAME.yaml`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from corag.errors import InputError
from corag.models.runtime import Runtime, in_runtime
from experiments.adapters.evidence.config import EvidenceTraining
from experiments.adapters.reader.config import ReaderTraining
from experiments.run.track import Tracking, tracked
from experiments.run.track import Wandb as Wandb


@dataclass(frozen=True)
class TrainAdapterConfig(Runtime, Tracking):
    """Train an adapter; an interrupted training resumes.

    Attributes:
        evidence: Train a reranker that values combinations: minilm-multihop, minilm-factoid, minilm-longform,
            minilm-sentence.
        reader: Train a reader: minilm-reader.
    """

    evidence: EvidenceTraining | None = None
    reader: ReaderTraining | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.evidence is None) == (self.reader is None):
            raise InputError(
                "give one thing to train, evidence or reader, with --config, such as "
                "experiments/configs/adapters/multihop.yaml"
            )


@tracked
@in_runtime
def train_adapter(config: TrainAdapterConfig) -> Path:
    """Train what the configuration describes, and return the adapter's folder."""
    if config.reader is not None:
        from experiments.adapters.reader.train import train_reader

        return train_reader(config.reader).adapter
    from experiments.adapters.evidence.train import train_evidence

    assert config.evidence is not None
    return train_evidence(config.evidence).adapter

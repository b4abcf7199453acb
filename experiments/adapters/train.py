"""One command for all adapters: `corag train-adapter --config experiments/configs/adapters/NAME.yaml`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from corag.errors import InputError
from experiments.adapters.evidence_config import EvidenceTraining


@dataclass(frozen=True)
class TrainAdapterConfig:
    """Train an adapter; one that was stopped goes on where it stopped.

    Attributes:
        evidence: Train a reranker that values combinations: minilm-multihop, minilm-factoid, minilm-longform.
    """

    evidence: EvidenceTraining | None = None

    def __post_init__(self) -> None:
        if self.evidence is None:
            raise InputError(
                "nothing to train; give one with --config, such as experiments/configs/adapters/multihop.yaml"
            )


def train_adapter(config: TrainAdapterConfig) -> Path:
    """Train what the configuration describes, and return the adapter's folder."""
    from experiments.adapters.evidence import train_evidence

    assert config.evidence is not None
    return train_evidence(config.evidence).adapter

"""One command for all adapters: `corag train-adapter --config experiments/configs/adapters/NAME.yaml`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corag.errors import InputError
from experiments.adapters.evidence.config import EvidenceTraining
from experiments.adapters.reader.config import ReaderTraining
from experiments.run.journal import finished_record

ADAPTER_DIR = "adapter"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainAdapterConfig:
    """Train an adapter; an interrupted training resumes.

    Attributes:
        evidence: Train a reranker that values combinations: minilm-multihop, minilm-factoid, minilm-longform.
        reader: Train a reader: minilm-reader.
    """

    evidence: EvidenceTraining | None = None
    reader: ReaderTraining | None = None

    def __post_init__(self) -> None:
        if (self.evidence is None) == (self.reader is None):
            raise InputError(
                "give one thing to train, evidence or reader, with --config, such as "
                "experiments/configs/adapters/multihop.yaml"
            )


@dataclass(frozen=True, slots=True)
class AdapterReport:
    """The adapter's folder, and its figures: of each test by method, or of each set of questions."""

    adapter: Path
    figures: Mapping[str, Any]


def finished_report(out: Path, record: str, work: str) -> AdapterReport | None:
    """Return the report of a training of the same work that is finished, by its record in `out`, if there is one."""
    adapter = out / ADAPTER_DIR
    if (done := finished_record(out / record, work)) is None or not adapter.is_dir():
        return None
    logger.info("%s is trained already; delete it to train again", adapter)
    return AdapterReport(adapter, done["figures"])


def train_adapter(config: TrainAdapterConfig) -> Path:
    """Train what the configuration describes, and return the adapter's folder."""
    if config.reader is not None:
        from experiments.adapters.reader.train import train_reader

        return train_reader(config.reader).adapter
    from experiments.adapters.evidence.train import train_evidence

    assert config.evidence is not None
    return train_evidence(config.evidence).adapter

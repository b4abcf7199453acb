"""What a training of an adapter reports, and how a finished one is recognised."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.run.journal import finished_record

ADAPTER_DIR = "adapter"

logger = logging.getLogger(__name__)


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

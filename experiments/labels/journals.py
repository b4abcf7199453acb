"""The journals of a table: one of a whole run, one of each share; together they hold what is done."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from experiments.labels.config import Share
from experiments.run.journal import read_journal


def journal_path(out: Path, share: Share | None) -> Path:
    """Return where the journal of a run, or of a share of it, stands."""
    return out.with_suffix(f".{'' if share is None else f'{share.number}-of-{share.parts}.'}journal.jsonl")


def journal_paths(out: Path) -> list[Path]:
    """Return the journals of a table that are there."""
    if not out.parent.is_dir():
        return []
    name = re.compile(re.escape(out.stem) + r"(\.\d+-of-\d+)?\.journal\.jsonl")
    return sorted(path for path in out.parent.iterdir() if name.fullmatch(path.name))


def units_beside(out: Path, own: Path, work: str) -> dict[str, Any]:
    """Return the units that the journals of other processes hold.

    Raises:
        DataError: One of them holds other work, or is no journal.
    """
    units: dict[str, Any] = {}
    for path in journal_paths(out):
        if path != own:
            # It may be gone: whoever ended first wrote the table.
            with suppress(FileNotFoundError):
                units.update(read_journal(path, work)[0])
    return units

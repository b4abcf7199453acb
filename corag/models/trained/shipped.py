"""Trained parts that ship with the project, in the folder `checkpoints` of its source tree."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).resolve().parents[3] / "checkpoints"
CONFIG_FILE = "config.json"


def shipped_checkpoint(name: str) -> Path | None:
    """Return the folder of a part; None where it is not, as where packages were installed without the source tree."""
    path = FOLDER / name
    return path if (path / CONFIG_FILE).is_file() else None

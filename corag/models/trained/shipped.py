"""Trained parts that ship with the project, in the folder `checkpoints` beside the package."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).resolve().parents[3] / "checkpoints"
"""In the source tree, and in an installed wheel, which has the folder beside the packages."""
CONFIG_FILE = "config.json"


def shipped_checkpoint(name: str) -> Path | None:
    """Return the folder of a part; None if it is not there."""
    path = FOLDER / name
    return path if (path / CONFIG_FILE).is_file() else None

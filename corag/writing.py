"""Where files go: the cache folder, and the one writer of files that must be whole or not there."""

from __future__ import annotations

import os
from pathlib import Path

from common.storage import replace_file
from corag.errors import DataError


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file in one step, text as UTF-8; its folder is made if it is missing.

    If the process is killed, the old file or the new one is there.

    Raises:
        DataError: It cannot be written; the old file is unchanged.
    """
    try:
        replace_file(path, content)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error}; free some space, or choose another output") from error


def cache_folder() -> Path:
    """Return the folder for files that can be made again: `$CORAG_CACHE`, else the user's cache folder."""
    if chosen := os.environ.get("CORAG_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "corag"

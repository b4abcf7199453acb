"""The one writer of files that must be whole or not there."""

from __future__ import annotations

from pathlib import Path

from agent.files import replace_file
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

"""Writing files so that whoever reads them sees the old content or the new, never a part."""

from __future__ import annotations

import os
from pathlib import Path


def write_durably(path: Path, data: bytes) -> None:
    """Write `data` and wait until the disk has it."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace_atomically(path: Path, data: bytes) -> None:
    """Put `data` at `path` in one step; a kill at any moment leaves the old file or the new one."""
    temporary = path.with_name(f".{path.name}.tmp")
    write_durably(temporary, data)
    temporary.replace(path)

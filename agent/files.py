"""Writing files and folders so that a reader sees the old content or the new, never a part."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path


def replace_file(path: Path, content: str | bytes) -> None:
    """Write a file in one step, text as UTF-8; its folder is made if it is missing.

    A kill or a full disk leaves the old file or the new one. After an `OSError` the old file is unchanged.
    """
    # Two processes may write the same file: each has a draft of its own.
    draft = path.with_name(f".{path.name}.{platform.node()}-{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(draft, content)
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise


def replace_folder(
    path: str | Path, files: Mapping[str, str | bytes], what: str, optional: Collection[str] = ()
) -> None:
    """Write a folder of files in one step.

    The folder is built as `.<name>.tmp` beside `path` and renamed, so an existing one is replaced only by a complete
    one; between two renames the existing one is `.<name>.old`. `what` names the folder in errors, such as
    `a checkpoint`; `optional` are names that an earlier one of its kind may have.

    Raises:
        FileExistsError: `path` holds other files, which would be lost.
        OSError: It cannot be written; the old folder is unchanged.
    """
    path = Path(path).absolute()
    if path.exists():
        names = {file.name for file in path.iterdir()} if path.is_dir() else {path.name}
        if others := sorted(names - set(files) - set(optional)):
            raise FileExistsError(
                f"{path} holds {others[0]!r}, which is no part of {what} and would be deleted; choose another path"
            )
    draft, old = path.with_name(f".{path.name}.tmp"), path.with_name(f".{path.name}.old")
    for leftover in (draft, old):
        shutil.rmtree(leftover, ignore_errors=True)
    draft.mkdir(parents=True)
    for name, content in files.items():
        _write(draft / name, content)
    if path.exists():
        path.rename(old)
    draft.rename(path)
    shutil.rmtree(old, ignore_errors=True)


def _write(path: Path, content: str | bytes) -> None:
    """Write a file and wait until the disk has it."""
    with path.open("wb") as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())

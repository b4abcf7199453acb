"""Writing files and folders so that a reader sees the old content or the new, never a part."""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

logger = logging.getLogger(__name__)


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
    one; between two renames the existing one is `.<name>.old`, and the next call finishes what a kill there left.
    `what` names the folder in errors, such as `a checkpoint`; `optional` are names that an earlier one may have.

    Raises:
        FileExistsError: `path` holds other files, which would be lost.
        OSError: It cannot be written; the old folder is unchanged.
    """
    path = Path(path).absolute()
    draft, old = path.with_name(f".{path.name}.tmp"), path.with_name(f".{path.name}.old")
    if old.exists() and not path.exists():
        # Killed between the renames: the draft is complete.
        (draft if draft.exists() else old).rename(path)
    if path.exists():
        names = {file.name for file in path.iterdir()} if path.is_dir() else {path.name}
        if others := sorted(names - set(files) - set(optional)):
            raise FileExistsError(
                f"{path} holds {others[0]!r}, which is not part of {what} and would be deleted; choose another path"
            )
    for leftover in (draft, old):
        shutil.rmtree(leftover, ignore_errors=True)
    draft.mkdir(parents=True)
    for name, content in files.items():
        _write(draft / name, content)
    if path.exists():
        path.rename(old)
    draft.rename(path)
    shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def folder_lock(folder: Path, name: str = ".lock") -> Iterator[None]:
    """Keep other processes from writing to a folder, which is made if it is missing; wait while one does.

    Raises:
        OSError: The lock's file cannot be written.
    """
    import filelock

    folder.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(folder / name)
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout:
        logger.warning("another process is writing to %s; waiting until it is done", folder)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _write(path: Path, content: str | bytes) -> None:
    """Write a file and wait until the disk has it."""
    with path.open("wb") as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())

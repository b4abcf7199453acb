"""Writing files and folders so that a reader sees the old content or the new, never a part, and notices any change."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import platform
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from common.errors import DataError, ModelError

logger = logging.getLogger(__name__)

CONFIG_FILE, SEAL = "config.json", "sha256"


def sealed(config: Mapping[str, Any], files: Mapping[str, str | bytes]) -> str:
    """Return the text of a folder's `config.json`: settings, and the SHA-256 of each other file and of the settings.

    `config` holds JSON values; `files` are the other files by name.
    """
    hashes = {name: _sha256(content) for name, content in sorted(files.items())}
    return json.dumps({**config, SEAL: {CONFIG_FILE: _of_config(config, hashes), **hashes}}, indent=2) + "\n"


def read_sealed(folder: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the settings that `sealed` wrote, and the hashes, of which those of files that are there are checked.

    It finds damage; somebody who changes files on purpose can seal them again (`python -m common.storage FOLDER`).

    Raises:
        OSError: A file cannot be read.
        ValueError: `config.json` is no sealed configuration, or a file is not as it was when it was sealed.
    """
    values = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
    if not isinstance(values, dict) or not isinstance(hashes := values.pop(SEAL, None), dict):
        remedy = f"if you trust the folder: python -m common.storage {folder}"
        raise ValueError(f"{CONFIG_FILE} has no seal ({SEAL}); {remedy}")
    others = {name: expected for name, expected in hashes.items() if name != CONFIG_FILE}
    found = {name: folder / Path(name).name for name in others}
    actual_hashes = {name: _sha256(file.read_bytes()) for name, file in found.items() if file.is_file()}
    for name, actual in {CONFIG_FILE: _of_config(values, others), **actual_hashes}.items():
        if actual != (expected := hashes.get(name)):
            raise ValueError(f"{name} has sha256 {actual}, expected {expected}: it has changed since it was written")
    return values, hashes


def seal_again(folder: Path) -> None:
    """Seal a folder as it is, such as after its card was edited."""
    values = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
    names = {file.name for file in folder.iterdir() if file.is_file() and not file.name.startswith(".")}
    files = {name: (folder / name).read_bytes() for name in names - {CONFIG_FILE}}
    write_atomically(folder / CONFIG_FILE, sealed({name: values[name] for name in values if name != SEAL}, files))


def _of_config(config: Mapping[str, Any], others: Mapping[str, str]) -> str:
    """Return the hash of settings and of the hashes of the other files, however their JSON is laid out."""
    return _sha256(json.dumps(json.loads(json.dumps([config, others])), sort_keys=True))


def _sha256(content: str | bytes) -> str:
    return hashlib.sha256(content.encode("utf-8") if isinstance(content, str) else content).hexdigest()


def expanded(path: str | Path) -> Path:
    """Return a path with the home folder for `~`; another user's that is not known stays as it is, as in a shell."""
    return Path(os.path.expanduser(path))  # noqa: PTH111  # that of pathlib raises RuntimeError


def modified(path: Path) -> tuple[tuple[str, int, int], ...]:
    """Return name, time of change in ns and bytes of a file, or of all files of a folder, two levels deep.

    What is kept of a path is good while these are the same. Empty if there is nothing of that name.
    """
    with contextlib.suppress(OSError, ValueError):  # no file has such a name
        files = [path] if path.is_file() else [*path.glob("*"), *path.glob("*/*")]
        states = ((str(file), file.stat()) for file in sorted(files) if file.is_file())
        return tuple((name, state.st_mtime_ns, state.st_size) for name, state in states)
    return ()


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file in one step, text as UTF-8; its folder is made if it is missing.

    A kill or a full disk leaves the old file or the new one.

    Raises:
        DataError: It cannot be written; the old file is unchanged.
    """
    # Two processes may write the same file: each has a draft of its own.
    draft = path.with_name(f".{path.name}.{platform.node()}-{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(draft, content)
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise DataError(f"{path} cannot be written: {error}; free some space, or choose another output") from error


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a folder to write into, which takes the place of `path` when the block ends without an error.

    It is `.<name>.part` beside `path` and is renamed, so an existing one is replaced only by a complete one; between
    two renames the existing one is `.<name>.old`, and the next call finishes what a kill there left.

    Raises:
        DataError: It cannot be written, as on a full disk; the old folder is unchanged.
    """
    path = path.absolute()
    draft, old = path.with_name(f".{path.name}.part"), path.with_name(f".{path.name}.old")
    try:
        if old.exists() and not path.exists():
            # Killed between the renames: the draft is complete.
            (draft if draft.exists() else old).rename(path)
        for leftover in (draft, old):
            shutil.rmtree(leftover, ignore_errors=True)
        draft.mkdir(parents=True)
        try:
            yield draft
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        if path.exists():
            path.rename(old)
        draft.rename(path)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error}; free some space, or choose another output") from error


def replace_folder(path: str | Path, files: Mapping[str, str | bytes], optional: Collection[str] = ()) -> None:
    """Write a folder of files in one step; see `new_folder`. `optional` are names that an earlier one may have.

    Raises:
        ModelError: `path` holds other files, which would be lost.
    """
    path = Path(path)
    with new_folder(path) as draft:
        if path.exists():
            names = {file.name for file in path.iterdir()} if path.is_dir() else {path.name}
            if others := sorted(names - set(files) - set(optional)):
                raise ModelError(f"{path.absolute()} holds {others[0]!r}, which would be deleted; choose another path")
        for name, content in files.items():
            _write(draft / name, content)


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


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        seal_again(Path(argument))

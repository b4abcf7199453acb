"""One writer at a time at a local index."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from corag.errors import CoragError
from corag.index.store import local_folder
from corag.optional import require

logger = logging.getLogger(__name__)

_LOCK_FILE = ".corag.lock"


@contextmanager
def index_lock(uri: str | Path) -> Iterator[None]:
    """Keep other processes from writing at a place; wait while one does. Object storage has no lock."""
    folder = local_folder(uri)
    if folder is None:
        yield
        return
    filelock = require("filelock", "index")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(folder / _LOCK_FILE)
        try:
            lock.acquire(blocking=False)
        except filelock.Timeout:
            logger.warning("another process is writing the index at %s; waiting until it is done", uri)
            lock.acquire()
    except OSError as error:
        raise CoragError(f"cannot write the index at {uri}: {error}; check the path and its permissions") from error
    try:
        yield
    finally:
        lock.release()

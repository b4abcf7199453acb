"""Reads documents in a process that can be ended: a file may keep its reader busy for hours, or crash it."""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, cast

from corag.files.markdown import Block, FileSection, FileText
from corag.files.read import UnreadableFileError, kind_of, parse_file

MAX_SECONDS = 120.0
"""Time to read one document, where the operating system has such a timer (not Windows)."""

MAX_MEMORY = 4 * 2**30
"""Bytes that the process may take besides its code, where the operating system has such a limit (Linux)."""


def read_file(data: bytes, path: str) -> FileText:
    """Return the text of a file and its structure, in at most `MAX_SECONDS`; `path` gives type and name.

    Raises:
        UnreadableFileError: It is damaged, encrypted, holds no text, or takes too long or too much memory.
    """
    return parse_file(data, path) if kind_of(path, data) == "text" else _reader(os.getpid()).read(data, path)


class _Reader:
    """A process that reads one file at a time; it is started when it is needed and after each end."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def read(self, data: bytes, path: str) -> FileText:
        with self._lock:
            process = self._running()
            stdin, stdout = cast(BinaryIO, process.stdin), cast(BinaryIO, process.stdout)
            begun_s = time.monotonic()
            try:
                _send(stdin, {"seconds": MAX_SECONDS, "path": path, "bytes": len(data)}, data)
                reply = json.loads(stdout.readline())
            except BaseException as error:
                self.end()
                if not isinstance(error, OSError | ValueError):
                    raise
                if time.monotonic() - begun_s >= MAX_SECONDS:
                    raise UnreadableFileError(f"reading takes more than {MAX_SECONDS:g} seconds; split it") from None
                raise UnreadableFileError("its reader crashed; save it anew, or in another format") from None
        if "error" in reply:
            raise UnreadableFileError(reply["error"])
        return _file_of(reply)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            command = [sys.executable, "-c", "from corag.files.process import serve; serve()"]
            # BLAS reserves memory for each of its threads, which is not used here.
            environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OPENBLAS_NUM_THREADS": "1"}
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | environment
            )
        return self._process

    def end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


@cache
def _reader(pid: int) -> _Reader:
    """Return the reader of this process; a fork has its own."""
    reader = _Reader()
    atexit.register(reader.end)
    return reader


def serve() -> None:
    """Read files from standard input until it ends; write what each holds, or why it is unreadable."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    requests, replies = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    _limit_memory()
    while line := requests.readline():
        request = json.loads(line)
        data = requests.read(request["bytes"])
        _set_timer(request["seconds"])
        try:
            reply = asdict(parse_file(data, request["path"]))
        except UnreadableFileError as error:
            reply = {"error": str(error)}
        except MemoryError:
            reply = {"error": f"reading takes more than {MAX_MEMORY // 2**30} GiB of memory; split it"}
        except Exception as error:  # noqa: BLE001  (readers of damaged files raise errors of many kinds)
            reply = {"error": f"its reader failed ({type(error).__name__}: {str(error)[:200]})"}
        _set_timer(0)
        _send(replies, reply)


def _send(stream: BinaryIO, header: Mapping[str, Any], data: bytes = b"") -> None:
    stream.write(json.dumps(header).encode() + b"\n" + data)
    stream.flush()


def _file_of(reply: Mapping[str, Any]) -> FileText:
    """Return the file that a reply holds; JSON has lists for tuples."""
    sections = []
    for section in reply["sections"]:
        headings, blocks = tuple(section["headings"]), tuple(Block(*block) for block in section["blocks"])
        sections.append(FileSection(**section | {"headings": headings, "blocks": blocks}))
    lines = tuple(map(tuple, reply["line_numbers"]))
    tuples: dict[str, Any] = {"sections": tuple(sections), "pages": tuple(reply["pages"]), "line_numbers": lines}
    return FileText(**{**reply, **tuples})


def _set_timer(seconds: float) -> None:
    """End this process after some seconds; 0 for never."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _limit_memory() -> None:
    with suppress(ImportError, OSError, ValueError):
        import resource

        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MAX_MEMORY,) * 2)

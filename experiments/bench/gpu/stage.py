"""Stages with a time limit each, whose rows are written as they come."""

from __future__ import annotations

import json
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from corag.errors import CoragError
from experiments.run.journal import write_atomically


class OutOfTimeError(CoragError):
    """A stage took longer than it may."""


class Run:
    """A benchmark whose result stands in `gpu.json` at any time.

    Attributes:
        result: What was found so far.
        device: The device, such as `cuda:0`.
    """

    def __init__(self, folder: Path, device: str, seconds: float, header: dict[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "gpu.json"
        self._ends = time.monotonic() + seconds
        self.device = device
        self.result: dict[str, Any] = {**header, "stages": {}}
        self.write()

    def write(self) -> None:
        """Write the result."""
        write_atomically(self._file, json.dumps(self.result, indent=2, ensure_ascii=False) + "\n")

    def stage(self, name: str, seconds: float, work: Callable[[Stage], None]) -> None:
        """Run a stage for at most so many seconds, and note what came of it; its errors end it alone."""
        limit = min(seconds, self._ends - time.monotonic())
        noted: dict[str, Any] = {"rows": [], "seconds": 0.0, "limit_s": round(max(0.0, limit), 1)}
        self.result["stages"][name] = noted
        started = time.monotonic()
        if limit <= 0:
            noted["error"] = "no time was left"
        else:
            print(f"{name} ...", file=sys.stderr, flush=True)  # noqa: T201
            with _memory(self.device, noted):
                try:
                    with _alarm(limit):
                        work(Stage(self, noted, started + limit))
                except Exception as error:  # noqa: BLE001 - a stage that fails leaves the others their time
                    noted["error"] = f"{type(error).__name__}: {error}"
        noted["seconds"] = round(time.monotonic() - started, 2)
        self.write()


class Stage:
    """What a stage knows, and where it puts its rows."""

    def __init__(self, run: Run, noted: dict[str, Any], ends: float) -> None:
        self._run, self._noted, self._ends = run, noted, ends
        self.device = run.device

    def row(self, **row: Any) -> None:
        """Note a row of the table."""
        self._noted["rows"].append(row)
        self._run.write()

    @property
    def left_s(self) -> float:
        """Seconds that the stage may still take."""
        return self._ends - time.monotonic()

    def check(self) -> None:
        """Raise `OutOfTimeError` where the stage's time is over."""
        if self.left_s <= 0:
            raise OutOfTimeError("the stage's time is over; what stands here was measured before")


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Interrupt work that does not look at the clock itself."""

    def ring(_: int, __: FrameType | None) -> None:
        raise OutOfTimeError("the stage was interrupted; what stands here was measured before")

    before = signal.signal(signal.SIGALRM, ring)
    delay, interval = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, delay, interval)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _memory(device: str, noted: dict[str, Any]) -> Iterator[None]:
    """Note the most memory that was held in a block: of the GPU, and of the process so far."""
    import torch

    on_gpu = device.startswith("cuda")
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    try:
        yield
    finally:
        if on_gpu:
            noted["gpu_peak_gb"] = round(torch.cuda.max_memory_allocated(device) / 1e9, 3)
            noted["gpu_reserved_gb"] = round(torch.cuda.max_memory_reserved(device) / 1e9, 3)
        # Kilobytes on Linux.
        noted["process_peak_gb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 3)

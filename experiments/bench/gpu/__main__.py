"""The command line of the benchmark; needs neither jsonargparse nor a network."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import corag
from corag.errors import CoragError
from corag.models.devices import hardware_of
from corag.models.minilm import from_folder, weights_sha256
from corag.models.runtime import place
from experiments.agents.train import commit
from experiments.bench.gpu import models, searches, training
from experiments.bench.gpu.made import FULL, SMALL, World, made_world
from experiments.bench.gpu.stage import Run, Stage
from experiments.bench.gpu.tables import tables
from experiments.run.journal import versions, write_atomically

STAGES: dict[str, tuple[Callable[[World, Stage], None], float]] = {
    "parity": (models.parity, 90),
    "speed": (models.speed, 130),
    "orders": (searches.orders, 90),
    "label": (searches.label, 120),
    "train_agent": (training.train_agent, 50),
    "train_head": (training.train_head, 45),
}
"""Each stage with the most seconds that it may take; together less than nine minutes."""
SECONDS = 540.0
GRACE_S = 5.0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the settings."""
    parser = argparse.ArgumentParser(prog="python -m experiments.bench.gpu", description=models.__doc__)
    parser.add_argument("--out", required=True, help="Folder for gpu.json and gpu.md.")
    parser.add_argument("--weights", help="Folder with MiniLM's files, in any precision; by default its package.")
    parser.add_argument("--data", help="Data folder whose questions have candidates; by default made ones.")
    parser.add_argument("--device", default="auto", help="Device: auto, cpu, cuda or cuda:N.")
    parser.add_argument("--size", choices=("full", "small"), default="full", help="How much is measured.")
    parser.add_argument("--only", help="Stages, separated by commas: " + ", ".join(STAGES) + ".")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="The most seconds in all.")
    settings = parser.parse_args(arguments)
    if unknown := set((settings.only or "").split(",")) - {"", *STAGES}:
        parser.error(f"stage {sorted(unknown)[0]!r} is unknown; the stages are {', '.join(STAGES)}")
    return settings


def bench(settings: argparse.Namespace) -> dict[str, Any]:
    """Run the stages, writing as they go, and return the result."""
    folder, size = Path(settings.out), {"full": FULL, "small": SMALL}[settings.size]
    with (
        corag.runtime(device=settings.device),
        from_folder(settings.weights) if settings.weights else contextlib.nullcontext(),
        tempfile.TemporaryDirectory() as scratch,
    ):
        (device, *_) = place("reranker").devices
        header = {
            "device": device,
            "hardware": hardware_of((device,)),
            "processor": hardware_of(("cpu",)),
            "cores": os.cpu_count(),
            "versions": versions(),
            "commit": commit(),
            "begun": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "weights_sha256": weights_sha256(),
            "size": settings.size,
            "data": settings.data or "made",
        }
        run = Run(folder, device, settings.seconds, header)
        # What does not look at the clock, and cannot be interrupted, ends with the process.
        guard = threading.Timer(settings.seconds + GRACE_S, os._exit, [3])
        guard.daemon = True
        guard.start()
        try:
            with made_world(size, settings.data, Path(scratch)) as world:
                for name, (work, seconds) in STAGES.items():
                    if settings.only is None or name in settings.only.split(","):
                        run.stage(name, seconds, lambda stage, work=work: work(world, stage))  # type: ignore[misc]
                        write_atomically(folder / "gpu.md", tables(run.result))
        finally:
            guard.cancel()
    return run.result


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark and print its tables; return the exit status, 1 where a stage failed."""
    settings = parse(arguments)
    try:
        result = bench(settings)
    except (CoragError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write(tables(result))
    return int(any("error" in stage for stage in result["stages"].values()))


if __name__ == "__main__":
    sys.exit(main())

"""Compiled models in the cache folder: OpenVINO takes twice as long to compile MiniLM as to read what it compiled.

OpenVINO writes and reads the files, and compiles anew what is damaged or of other settings. They hold the graph alone
(0.4 MB for MiniLM), the weights stay with the converted model. This module says where they lie, and how many stay: one
folder for each model and processor, those longest unused are removed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

FOLDER = "compiled"
MAX_BYTES = 10**8
"""Of all compiled models together."""


def compile_file(core: Any, file: Path, settings: Mapping[str, Any]) -> Any:
    """Compile a converted model for the CPU, or take what an earlier process compiled.

    Raises:
        RuntimeError: OpenVINO cannot read the model.
    """
    # Compiled models are for processors of one kind, and a cache folder may be shared by several machines.
    kind = [core.get_property("CPU", name) for name in ("FULL_DEVICE_NAME", "OPTIMIZATION_CAPABILITIES")]
    folder = file.parent / FOLDER / f"{file.stem}-{hashlib.sha256(str(kind).encode()).hexdigest()[:8]}"
    cached = {**settings, "CACHE_DIR": str(folder), "CACHE_MODE": "OPTIMIZE_SIZE"}
    try:
        compiled = core.compile_model(file, "CPU", cached)
    except RuntimeError:
        # With the cache or without it: only the second failure is that of the model.
        return core.compile_model(file, "CPU", settings)
    with suppress(OSError):
        os.utime(folder)
        trim(folder.parent)
    return compiled


def trim(folder: Path) -> None:
    """Remove compiled models, those longest unused first, until the others take at most `MAX_BYTES`."""
    room = MAX_BYTES
    for model in sorted(folder.iterdir(), key=lambda model: model.stat().st_mtime, reverse=True):
        room -= sum(file.stat().st_size for file in model.iterdir())
        if room < 0:
            shutil.rmtree(model, ignore_errors=True)

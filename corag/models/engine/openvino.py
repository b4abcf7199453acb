"""Models through OpenVINO on the CPU: converted and compiled once, and kept in the user's cache folder.

Later runs load neither torch nor transformers for the model. A converted model takes as much disk as its fp32 weights,
a compiled one next to none (see `compiled`); deleting the cache folder only costs doing both again.
"""

from __future__ import annotations

import logging
import os
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from corag.errors import InputError
from corag.models.devices import import_openvino, openvino_has
from corag.models.engine.compiled import compile_file
from corag.models.engine.engine import Float32, Forward, Reduction, Source, quiet, reduced
from corag.optional import require

logger = logging.getLogger(__name__)

_KEPT = 256
"""What OpenVINO keeps of the shapes of batches: by default 0.16 MB of each, and texts have thousands of shapes."""
_ONEDNN = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
_HINTS = {"fp32": "f32", "bf16": "bf16", "fp16": "f16"}


def cache_folder() -> Path:
    """Return the folder for files that can be made again: `$CORAG_CACHE`, else the user's cache folder."""
    if chosen := os.environ.get("CORAG_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "corag"


def openvino_forward(source: Source, precision: str) -> Forward:
    """Compile a model.

    One request runs at a time, on all cores or, as torch does, on `OMP_NUM_THREADS` threads. Two streams of one core
    each gave between 14% fewer and 8% more tokens per second on batches packed by length and two idle cores; they won
    only where other programs held the cores.

    Raises:
        InputError: The CPU lacks the precision, so that OpenVINO would quietly compute in another.
        MissingExtraError: OpenVINO, or what converting needs, is not installed.
    """
    openvino = import_openvino()
    if not openvino_has(precision):
        raise InputError(
            f"OpenVINO computes in {precision} only on a CPU with instructions for it, which this one lacks; use "
            "precision='fp32', or backend='torch', which is slower"
        )
    # Without the hint OpenVINO would choose by the CPU: values must not depend on the machine.
    settings = {"INFERENCE_PRECISION_HINT": _HINTS[precision], "PERFORMANCE_HINT": "LATENCY", **thread_limit()}
    with _few_kept():
        compiled = _compiled(source, openvino, settings | {"CPU_RUNTIME_CACHE_CAPACITY": _KEPT})
    # The compiled model holds one request and refuses a second one while it runs.
    one_at_a_time = threading.Lock()

    def forward(inputs: Mapping[str, NDArray[np.int64]], reduction: Reduction | None = None) -> Float32:
        with one_at_a_time:
            found = cast(Float32, compiled(dict(inputs))[0])
        return found if reduction is None else reduced(found, inputs["attention_mask"], reduction)

    return forward


@contextmanager
def _few_kept() -> Iterator[None]:
    """Let oneDNN keep few primitives of its own: those that OpenVINO dropped would stay there.

    It reads the variable when OpenVINO first compiles something in a process. PyTorch, which has a oneDNN of its own,
    is not to see it.
    """
    given = os.environ.get(_ONEDNN)
    os.environ.setdefault(_ONEDNN, "8")
    try:
        yield
    finally:
        if given is None:
            os.environ.pop(_ONEDNN, None)


def thread_limit() -> dict[str, int]:
    """Return OpenVINO's setting for `OMP_NUM_THREADS`, which it does not read itself."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return {"INFERENCE_NUM_THREADS": int(given)} if given.isdecimal() and int(given) else {}


def _compiled(source: Source, openvino: Any, settings: Mapping[str, Any]) -> Any:
    """Compile the converted model of the cache folder, or convert and keep it."""
    core = openvino.Core()
    release = openvino.__version__.split("-")[0]
    folder = cache_folder()
    file = folder / f"{source.name}-{source.sha256[:12]}-openvino-{release}.xml"
    if file.is_file():
        try:
            return compile_file(core, file, settings)
        except (OSError, RuntimeError) as error:
            logger.warning("%s cannot be read (%s); converting the model again", file, error)
    model = _convert(source, openvino)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Weights first, description last: a file whose name says it is there is whole.
        draft = folder / f"{file.stem}.{os.getpid()}.xml"
        openvino.save_model(model, draft, compress_to_fp16=False)
        draft.with_suffix(".bin").replace(file.with_suffix(".bin"))
        draft.replace(file)
    except (OSError, RuntimeError) as error:
        logger.warning("the converted model was not cached in %s: %s", folder, error)
        return core.compile_model(model, "CPU", settings)
    return compile_file(core, file, settings)


def _convert(source: Source, openvino: Any) -> Any:
    torch = require("torch", "models")
    module = source.load()
    with quiet(), warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")  # tracing warns about branches that are constant for these models
        return openvino.convert_model(
            module,
            example_input=dict.fromkeys(source.inputs, torch.ones((2, 8), dtype=torch.int64)),
            input=[(name, [-1, -1], openvino.Type.i64) for name in source.inputs],
        )

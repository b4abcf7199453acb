"""MiniLM and its adapters through OpenVINO on the CPU: converted once, and kept in the user's cache folder.

It needs neither torch nor transformers, whose import takes longer than a question, and makes about a tenth more tokens
a second in fp32, several times as many in bf16 on processors that have it. Values agree with PyTorch to about 1e-5.
Deleting the cache folder only costs converting again.
"""

from __future__ import annotations

import logging
import os
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from corag.errors import InputError
from corag.models.engine import EncoderSource, Float32, Forward, Int64, Reduction, quiet
from corag.models.runtime import has_precision, import_openvino
from corag.optional import require
from corag.writing import cache_folder

logger = logging.getLogger(__name__)

_HINTS = {"fp32": "f32", "bf16": "bf16", "fp16": "f16"}
_SHAPES = 256
"""Shapes of batches that OpenVINO remembers: by default 0.16 MB of each, and texts have thousands of shapes."""


def openvino_forward(source: EncoderSource, precision: str) -> Forward:
    """Compile a model, on all cores or, as torch does, for `OMP_NUM_THREADS` threads.

    Raises:
        InputError: The CPU lacks the precision, so that OpenVINO would quietly compute in another.
        MissingExtraError: OpenVINO, or what converting needs, is not installed.
    """
    openvino = import_openvino()
    if not has_precision(precision):
        raise InputError(
            f"OpenVINO computes in {precision} only on a CPU with instructions for it, which this one lacks; use "
            "precision='fp32', or backend='torch', which is slower"
        )
    # Without the hint OpenVINO would choose by the CPU: values must not depend on the machine.
    settings: dict[str, Any] = {"INFERENCE_PRECISION_HINT": _HINTS[precision], "PERFORMANCE_HINT": "LATENCY"}
    settings["CPU_RUNTIME_CACHE_CAPACITY"] = _SHAPES
    if (threads := os.environ.get("OMP_NUM_THREADS", "")).isdecimal() and int(threads):
        settings["INFERENCE_NUM_THREADS"] = int(threads)
    core, model = openvino.Core(), _converted(source, openvino)
    if isinstance(model, Path):
        # The graph alone; reading it takes half as long as compiling.
        settings |= {"CACHE_DIR": str(model.parent / "compiled"), "CACHE_MODE": "OPTIMIZE_SIZE"}
    try:
        compiled = core.compile_model(model, "CPU", settings)
    except RuntimeError as error:
        logger.warning("the converted model cannot be read (%s); converting it again", error)
        compiled = core.compile_model(_converted(source, openvino, anew=True), "CPU", settings)
    # The compiled model holds one request and refuses a second one while it runs.
    one_at_a_time = threading.Lock()

    def forward(inputs: Mapping[str, Int64], reduction: Reduction | None = None) -> Float32:
        with one_at_a_time:
            states = cast(Float32, compiled(dict(inputs))[0])
        if reduction is None:
            return states
        weights = inputs["attention_mask"][:, None].astype("float32")
        return cast(Float32, (weights @ states)[:, 0] / weights.sum(axis=2))

    return forward


def _converted(source: EncoderSource, openvino: Any, *, anew: bool = False) -> Any:
    """Return the file of the converted model in the cache folder, or where that cannot be written the model."""
    release = openvino.__version__.split("-")[0]
    file = cache_folder() / f"{source.name}-{source.sha256[:12]}-openvino-{release}.xml"
    if file.is_file() and not anew:
        return file
    model = _convert(source, openvino)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # Weights first, description last: a file whose name says it is there is whole.
        draft = file.with_name(f"{file.stem}.{os.getpid()}.xml")
        openvino.save_model(model, draft, compress_to_fp16=False)
        draft.with_suffix(".bin").replace(file.with_suffix(".bin"))
        draft.replace(file)
    except (OSError, RuntimeError) as error:
        logger.warning("the converted model was not cached in %s: %s", file.parent, error)
        return model
    return file


def _convert(source: EncoderSource, openvino: Any) -> Any:
    torch = require("torch", "models")
    module = source.load()
    with quiet(), warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")  # tracing warns about branches that are constant for these models
        return openvino.convert_model(
            module,
            example_input=dict.fromkeys(source.inputs, torch.ones((2, 8), dtype=torch.int64)),
            input=[(name, [-1, -1], openvino.Type.i64) for name in source.inputs],
        )

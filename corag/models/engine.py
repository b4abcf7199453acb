"""Rows of token ids through an encoder of our own, with PyTorch or OpenVINO, in batches packed by length.

MiniLM and its adapters run here; models that users name run in sentence-transformers, in batches of `run_packed`.

OpenVINO needs neither torch nor transformers, whose import takes seven times as long as all else of a first selection,
and makes 1.4 times as many tokens a second in fp32, several times as many in bf16 on processors that have it. Values
agree with PyTorch to about 1e-5. A model is converted once and kept in the user's cache folder; deleting that only
costs converting again.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from corag.ambient import check_cancelled
from corag.errors import InputError, ModelError
from corag.forks import work
from corag.memory import cache_folder
from corag.models.runtime import Placement, has_precision, import_openvino, record_use, without_telemetry
from corag.optional import require

logger = logging.getLogger(__name__)

Int64 = NDArray[np.int64]
Float32 = NDArray[np.float32]
Rows = NDArray[np.intp]
"""Indices of a batch's rows."""
Forward = Callable[..., Float32]
"""A loaded model: `forward(inputs, mean=False)` maps named inputs, `[B, L, ...]`, to the model's first output,
`[B, ...]`; with `mean`, to the means of the states `[B, L, D]` over the tokens that are not padding, `[B, D]`."""
Result = TypeVar("Result")

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
MAX_PADDING = 0.05
"""The largest share of a batch's tokens that may be padding."""

_FULL = ("out of memory", "can't allocate memory", "bad_alloc")
_SHAPES = 256
"""Shapes of batches that OpenVINO remembers: by default 0.16 MB of each, and texts have thousands of shapes."""


class EncoderSource(NamedTuple):
    """A transformers model of our own: name and hash tell its cached files; `load` returns the module in fp32.

    With `word_vectors`, which maps token ids `[B, L]` to `[B, L, D]`, the module's input is `inputs_embeds` and no ids.
    """

    name: str
    sha256: str
    load: Callable[[], Any]
    word_vectors: Callable[[Int64], Float32] | None = None


@dataclass(frozen=True, slots=True)
class Engine:
    """A loaded model that runs rows, padded with id 0, in batches, of which a record is kept."""

    name: str
    placement: Placement
    forward: Forward
    word_vectors: Callable[[Int64], Float32] | None = None

    def run(self, ids: Sequence[Int64], *, mean: bool = False) -> Iterator[tuple[Rows, Float32]]:
        """Run all rows, longest first; yields the indices of each batch, `[B]`, with the model's output, `[B, ...]`.

        Rows are token ids, special tokens included; with `mean`, the output is the mean of the states of each row.
        Raises as `run_packed`.
        """
        record_use(self.name, self.placement)

        def run(rows: Rows) -> Float32:
            tokens, mask = pad([ids[row] for row in rows])
            inputs: dict[str, NDArray[Any]] = {"attention_mask": mask}
            if self.word_vectors is None:
                inputs["input_ids"] = tokens
            else:
                inputs["inputs_embeds"] = self.word_vectors(tokens)
            with work():
                return self.forward(inputs, mean)

        return run_packed(run, [len(row) for row in ids], self.placement.batch_tokens)


def load_engine(source: EncoderSource, placement: Placement) -> Engine:
    """Load a model onto its device; `ModelError` where that has too little memory, else as `openvino_forward`."""
    with work():
        if placement.backend == "openvino":
            forward = openvino_forward(source, placement.precision)
        else:
            module = on_device(source.load(), placement.device, source.name)
            if placement.precision != "fp32":
                lower_precision(module, placement)
            forward = torch_forward(module, placement.device)
    return Engine(source.name, placement, forward, source.word_vectors)


# --- Batches ---


def run_packed(
    run: Callable[[Rows], Result], lengths: Sequence[int] | Int64, max_batch_tokens: int
) -> Iterator[tuple[Rows, Result]]:
    """Run batches of rows packed by length, and yield the row indices of each with its result.

    A batch that does not fit the memory of its device is halved. Each is a `corag.ambient.check_cancelled`.

    Raises:
        ModelError: A single row does not fit the memory.
    """
    tokens = np.asarray(lengths, dtype=np.int64)
    waiting = pack(tokens, max_batch_tokens)[::-1]
    while waiting:
        check_cancelled()
        rows = waiting.pop()
        try:
            result = run(rows)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        else:
            yield rows, result
            continue
        # Only here, where the error no longer holds what it was raised with, is there something to free.
        free_memory()
        size = len(rows) * int(tokens[rows].max())
        if len(rows) == 1:
            raise ModelError(
                f"the model ran out of memory with a single text of {size} tokens; free the memory that other programs "
                "hold, give fewer tokens at once (max_tokens), --precision bf16, or another --device"
            )
        logger.warning(
            "a batch of %d tokens did not fit the memory and is halved; see corag.runtime(batch_tokens=)", size
        )
        waiting += [rows[len(rows) // 2 :], rows[: len(rows) // 2]]


def pack(lengths: Sequence[int] | Int64, max_batch_tokens: int) -> list[Rows]:
    """Return the rows of each batch, longest first, given the tokens of each row, `[n]`.

    A batch is closed when another row would bring it, padding included, above `max_batch_tokens`, or its padding
    above `MAX_PADDING` of its tokens. A row longer than `max_batch_tokens` is a batch by itself. Lengths are not
    rounded to get fewer shapes: what OpenVINO prepares for a new shape costs it less than the padding would.
    """
    tokens = np.asarray(lengths, dtype=np.int64)
    by_length = np.argsort(-tokens, kind="stable")
    starts: list[int] = []
    width = num_tokens = 0
    for position, length in enumerate(tokens[by_length].tolist()):
        area = (position - starts[-1] + 1) * width if starts else 0
        padding = area - num_tokens - length
        if not starts or area > max_batch_tokens or padding > MAX_PADDING * area:
            starts.append(position)
            width, num_tokens = length, 0
        num_tokens += length
    return np.split(by_length, starts[1:]) if starts else []


def pad(rows: Sequence[Int64]) -> tuple[Int64, Int64]:
    """Return the rows as one array padded with 0, and its mask (1 where a row is), both `[B, longest]`."""
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    mask = np.arange(lengths.max()) < lengths[:, None]
    padded = np.zeros(mask.shape, dtype=np.int64)
    padded[mask] = np.concatenate(rows)
    return padded, mask.astype(np.int64)


# --- PyTorch ---


def torch_forward(model: Any, device: str = "cpu") -> Forward:
    """Return a PyTorch module, which is on the device, as the engine runs it."""
    torch = require("torch", "models")

    def forward(inputs: Mapping[str, NDArray[Any]], mean: bool = False) -> Float32:
        tensors = {name: torch.from_numpy(values).to(device) for name, values in inputs.items()}
        with torch.inference_mode():
            output = model(**tensors)[0].float()
            if mean:
                # On the device: the states of a batch are hundreds of times as large as their means.
                weights = tensors["attention_mask"][:, None].float()
                output = (weights @ output)[:, 0] / weights.sum(dim=2)
            return cast(Float32, output.cpu().numpy())

    return forward


def lower_precision(model: Any, placement: Placement) -> None:
    """Let the layers compute in bf16 or fp16, in place; all else stays in fp32.

    The linear maps and the attention of the layers are nearly all of the work. The residual stream, normalisation and
    the head, where rounding hides small differences between orders, cost little.
    """
    torch = require("torch", "models")
    dtype = getattr(torch, DTYPES[placement.precision])
    lower = torch.autocast(placement.kind, dtype=dtype)
    layers = {layer for part in model.modules() if isinstance(part, torch.nn.ModuleList) for layer in part}
    for layer in layers:
        for linear in layer.modules():
            if isinstance(linear, torch.nn.Linear):
                linear.to(dtype)
        layer.forward = lower(layer.forward)


def on_device(module: Any, device: str, name: str) -> Any:
    """Move a module to a device; `ModelError` where that has too little memory."""
    try:
        return module.to(device)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    free_memory()
    raise ModelError(
        f"the model {name!r} does not fit the memory of {device}; free the memory that other programs hold, or give a "
        "smaller model or another --device"
    )


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that a device has too little memory."""
    message = str(error).lower()
    return isinstance(error, MemoryError) or any(sign in message for sign in _FULL)


def free_memory() -> None:
    """Give back what PyTorch holds of the devices' memory without using it."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
    elif torch is not None and torch.backends.mps.is_available():
        torch.mps.empty_cache()


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the notices and progress bars of transformers."""
    notices = require("transformers", "models").utils.logging
    before, bars = notices.get_verbosity(), notices.is_progress_bar_enabled()
    notices.set_verbosity_error()
    notices.disable_progress_bar()
    try:
        yield
    finally:
        notices.set_verbosity(before)
        if bars:
            notices.enable_progress_bar()


# --- OpenVINO ---


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
    settings: dict[str, Any] = {"INFERENCE_PRECISION_HINT": precision.replace("fp", "f"), "PERFORMANCE_HINT": "LATENCY"}
    settings["CPU_RUNTIME_CACHE_CAPACITY"] = _SHAPES
    # Pinned, the only thread of each process would run on the first core, whatever the others do.
    settings["ENABLE_CPU_PINNING"] = False
    if (threads := os.environ.get("OMP_NUM_THREADS", "")).isdecimal() and int(threads):
        settings["INFERENCE_NUM_THREADS"] = int(threads)
    core = openvino.Core()
    file = cache_folder() / f"{source.name}-{source.sha256[:12]}-openvino-{openvino.__version__.split('-')[0]}.xml"
    # The graph alone; reading it takes half as long as compiling.
    cached = {"CACHE_DIR": str(file.parent / "compiled"), "CACHE_MODE": "OPTIMIZE_SIZE"}
    try:
        compiled = core.compile_model(file, "CPU", settings | cached)
    except (OSError, RuntimeError):  # it is not there, or damaged
        compiled = core.compile_model(_converted(source, openvino, file), "CPU", settings)
    # The compiled model holds one request and refuses a second one while it runs.
    one_at_a_time = threading.Lock()

    def forward(inputs: Mapping[str, NDArray[Any]], mean: bool = False) -> Float32:
        with one_at_a_time:
            states = cast(Float32, compiled(dict(inputs))[0])
        if not mean:
            return states
        weights = inputs["attention_mask"][:, None].astype("float32")
        return cast(Float32, (weights @ states)[:, 0] / weights.sum(axis=2))

    return forward


def _converted(source: EncoderSource, openvino: Any, file: Path) -> Any:
    """Return a model as OpenVINO runs it, and write it to a file, if that can be written."""
    torch = require("torch", "models")
    types = {torch.int64: openvino.Type.i64, torch.float32: openvino.Type.f32}
    module = source.load()
    with quiet(), warnings.catch_warnings(), without_telemetry(), torch.inference_mode():
        warnings.simplefilter("ignore")  # tracing warns about branches that are constant for these models
        ones = torch.ones((2, 8), dtype=torch.int64)
        if source.word_vectors is None:
            example = {"input_ids": ones, "attention_mask": ones}
        else:
            example = {"attention_mask": ones, "inputs_embeds": torch.from_numpy(source.word_vectors(ones.numpy()))}
        model = openvino.convert_model(
            module,
            example_input=example,
            input=[(name, [-1, -1, *tensor.shape[2:]], types[tensor.dtype]) for name, tensor in example.items()],
        )
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # Weights first: a file whose name says it is there is whole.
        draft = file.with_name(f"{file.stem}.{os.getpid()}.xml")
        openvino.save_model(model, draft, compress_to_fp16=False)
        draft.with_suffix(".bin").replace(file.with_suffix(".bin"))
        draft.replace(file)
    except (OSError, RuntimeError) as error:
        logger.warning("the converted model was not cached in %s: %s", file.parent, error)
    return model

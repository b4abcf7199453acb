"""Rows of token ids through an encoder of our own, in batches that waste little: packed by length, padded.

MiniLM and its adapters run here; models that users name run in sentence-transformers, in batches of `run_packed`.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from corag.errors import ModelError
from corag.models.ran import Ran, note, ran
from corag.models.runtime import Place
from corag.optional import require

logger = logging.getLogger(__name__)

Int64 = NDArray[np.int64]
Float32 = NDArray[np.float32]
Rows = NDArray[np.intp]
"""Positions of a batch's rows in what is run."""
Reduction = Literal["mean"]
"""What is made of the states of a row: the mean of those that are no padding."""
Result = TypeVar("Result")

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
MAX_PADDING = 0.05
"""The largest share of a batch's tokens that may be padding."""

_FULL = re.compile(r"out of memory|can't allocate memory|bad_alloc", re.IGNORECASE)


class Forward(Protocol):
    """A loaded model."""

    def __call__(self, inputs: Mapping[str, Int64], reduction: Reduction | None = None) -> Float32:
        """Map named inputs, `[B, L]` each, to the model's first output, `[B, ...]`, or what a reduction makes of it."""


class EncoderSource(NamedTuple):
    """A transformers model of our own.

    Attributes:
        name: What its files in the cache folder begin with.
        sha256: Of everything that its values depend on; tells its cached files from another's.
        inputs: Names of its inputs.
        load: Returns the PyTorch module in fp32, in evaluation mode.
    """

    name: str
    sha256: str
    inputs: tuple[str, ...]
    load: Callable[[], Any]


class Batch(NamedTuple):
    """Some rows and what the model made of them.

    Attributes:
        rows: Their positions in what was given, `[B]`.
        output: The model's output, `[B, ...]`.
    """

    rows: Rows
    output: Float32


@dataclass(frozen=True, slots=True)
class Engine:
    """A model together with how its batches are made.

    Attributes:
        forward: The model.
        pad_token: The id that fills shorter rows up.
        max_batch_tokens: The most tokens of a batch.
        record: What is noted when it runs; see `corag.models.ran`.
    """

    forward: Forward
    pad_token: int
    max_batch_tokens: int
    record: Ran | None = None

    def run(
        self,
        ids: Sequence[Int64],
        token_types: Sequence[Int64] | None = None,
        reduction: Reduction | None = None,
    ) -> Iterator[Batch]:
        """Run all rows, longest first.

        Args:
            ids: Token ids of each row, special tokens included.
            token_types: Which segment each token belongs to, for models that ask for it.
            reduction: What to make of the states of each row.

        Raises:
            ModelError: A single row does not fit the memory of its device.
        """
        if self.record is not None:
            note(self.record)

        def run(rows: Rows) -> Float32:
            tokens, mask = pad([ids[row] for row in rows], self.pad_token)
            inputs = {"input_ids": tokens, "attention_mask": mask}
            if token_types is not None:
                inputs["token_type_ids"], _ = pad([token_types[row] for row in rows], 0)
            return self.forward(inputs) if reduction is None else self.forward(inputs, reduction)

        for rows, output in run_packed(run, [len(row) for row in ids], self.max_batch_tokens):
            yield Batch(rows, output)


def load_engine(source: EncoderSource, where: Place, pad_token: int) -> Engine:
    """Load a model onto its device.

    Raises:
        InputError: OpenVINO does not have the precision on this CPU.
        MissingExtraError: The backend is not installed.
        ModelError: The device has too little memory for it.
    """
    if where.backend == "openvino":
        from corag.models.openvino import openvino_forward

        forward = openvino_forward(source, where.precision)
    else:
        module = on_device(source.load(), where.device, source.name)
        if where.precision != "fp32":
            lower_precision(module, getattr(require("torch", "models"), DTYPES[where.precision]), where.kind)
        forward = torch_forward(module, where.device)
    return Engine(forward, pad_token, where.batch_tokens, ran(source.name, where))


def run_packed(
    run: Callable[[Rows], Result], lengths: Sequence[int] | Int64, max_batch_tokens: int
) -> Iterator[tuple[Rows, Result]]:
    """Run batches of rows packed by length, and yield the rows of each with what came of it.

    A batch that does not fit the memory of its device is halved.

    Raises:
        ModelError: A single row does not fit the memory.
    """
    tokens = np.asarray(lengths, dtype=np.int64)
    waiting = pack(tokens, max_batch_tokens)[::-1]
    while waiting:
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
        logger.warning("a batch of %d tokens did not fit the memory; --batch_tokens %d asks for less", size, size // 2)
        waiting += [rows[len(rows) // 2 :], rows[: len(rows) // 2]]


def pack(lengths: Sequence[int] | Int64, max_batch_tokens: int) -> list[Rows]:
    """Return the rows of each batch, longest first; every row is in exactly one batch.

    A batch is closed when another row would bring it, padding included, above `max_batch_tokens`, or its padding
    above `MAX_PADDING` of its tokens. A row longer than `max_batch_tokens` is a batch by itself. Lengths are not
    rounded to get fewer shapes: what OpenVINO prepares for a new shape costs it less than the padding would.

    Args:
        lengths: Tokens of each row, `[n]`.
        max_batch_tokens: The most tokens of a batch: rows times the longest of them.
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


def pad(rows: Sequence[Int64], value: int) -> tuple[Int64, Int64]:
    """Return the rows as one array padded with `value`, and its mask (1 where a row is), both `[B, longest]`."""
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max()) < lengths[:, None]
    padded = np.full(mask.shape, value, dtype=np.int64)
    padded[mask] = np.concatenate(rows)
    return padded, mask.astype(np.int64)


def torch_forward(model: Any, device: str = "cpu") -> Forward:
    """Return a PyTorch module, which is on the device, as the engine runs it."""
    torch = require("torch", "models")

    def forward(inputs: Mapping[str, Int64], reduction: Reduction | None = None) -> Float32:
        tensors = {name: torch.from_numpy(values).to(device) for name, values in inputs.items()}
        with torch.inference_mode():
            output = model(**tensors)[0].float()
            if reduction is not None:
                # On the device: the states of a batch are hundreds of times as large as what is made of them.
                weights = tensors["attention_mask"][:, None].float()
                output = (weights @ output)[:, 0] / weights.sum(dim=2)
            return cast(Float32, output.cpu().numpy())

    return forward


def lower_precision(model: Any, dtype: Any, kind: str) -> None:
    """Let the layers compute in bf16 or fp16, in place; all else stays in fp32.

    The linear maps of the layers are nearly all of the work. The residual stream, normalisation and the head, where
    rounding hides small differences between orders, cost little. On a GPU attention is lowered, too: its fast kernels
    are for these precisions alone.
    """
    torch = require("torch", "models")
    layers = [part for part in model.modules() if isinstance(part, torch.nn.ModuleList)]
    for linear in {part for layer in layers for part in layer.modules() if isinstance(part, torch.nn.Linear)}:
        linear.to(dtype)
        if kind == "cpu":
            linear.register_forward_pre_hook(lambda _, inputs: (inputs[0].to(dtype),))
            linear.register_forward_hook(lambda _, inputs, output: output.float())
    if kind != "cpu":
        lower = torch.autocast(kind, dtype=dtype)
        for layer in {layer for among in layers for layer in among}:
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
    torch = sys.modules.get("torch")
    if isinstance(error, MemoryError) or (torch is not None and isinstance(error, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and _FULL.search(str(error)) is not None


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

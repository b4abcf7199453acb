"""Where and how models run: device, precision, size of a batch, and whether a model's own code may run.

    with corag.runtime(device="cuda:1", precision="bf16"):
        reranker = corag.reranker("cross-encoder(model=BAAI/bge-reranker-v2-m3)")

A part that loads a model takes `device`, `precision` and the like as settings; those that it is not given are those of
the innermost `with` block in which it is built. Torch is imported only for a device that only torch knows.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import platform
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from common.checks import check_choice, check_count
from corag.ambient import Ambient
from corag.errors import InputError
from corag.forks import renewed_lock
from corag.memory import megabytes
from corag.optional import require

Role = Literal["embedder", "reranker", "reader"]
"""What a model does; precision `auto` depends on it. Summarizers count as readers."""
Precision = Literal["auto", "fp32", "bf16", "fp16"]
Backend = Literal["auto", "openvino", "torch"]

BATCH_TOKENS = {"cpu": 2048, "cuda": 16384, "mps": 8192}
"""On a CPU enough to occupy the cores, few enough to stay in their caches; a GPU wants more at a time."""

PLACEMENT_SETTINGS = ("device", "batch_tokens", "trust_remote_code", "cache_mb")
"""Settings that change no value but in its last digits: work that was begun with one device goes on with another."""

R = TypeVar("R")
S = TypeVar("S", bound="Runtime")


def parse_device(text: object) -> str | None:
    """Return the device that a text names, `cuda` as `cuda:0`; None for `auto`.

    Raises:
        InputError: There is no such device.
    """
    if text == "auto":
        return None
    if not re.fullmatch(r"cpu|mps|cuda(:[0-9]+)?", str(text)):
        raise InputError(f"device {text!r} is unknown; use auto, cpu, cuda, cuda:N or mps")
    return "cuda:0" if text == "cuda" else str(text)


def check_device(device: str) -> None:
    """Raise `InputError` for a device that PyTorch does not see, and say what it sees."""
    if device == "cpu":
        return
    torch = require("torch", "models")
    seen = {f"cuda:{number}": torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())}
    seen |= {"mps": "Apple"} if torch.backends.mps.is_available() else {}
    if device not in seen:
        listed = ", ".join(["cpu", *(f"{name} ({full})" for name, full in seen.items())])
        raise InputError(
            f"device {device!r} is not there: PyTorch {torch.__version__} sees {listed}; use one of these, or auto, or "
            "install a PyTorch built for your GPU and its driver"
        )


def auto_device() -> str:
    """Return the device that `auto` resolves to: CUDA, else MPS, if PyTorch sees it, else the CPU."""
    if not _may_have_gpu():
        return "cpu"
    torch = require("torch", "models")
    if torch.cuda.is_available():
        return "cuda:0"
    return "mps" if torch.backends.mps.is_available() else "cpu"


@functools.cache
def _may_have_gpu() -> bool:
    """Return False if it is certain that PyTorch sees no GPU, so that it need not be imported to find out."""
    try:
        if importlib.metadata.version("torch").endswith("+cpu"):
            return False
    except importlib.metadata.PackageNotFoundError:
        return False
    # NVIDIA's drivers, those of its boards, of AMD, and of Windows for Linux programs.
    drivers = ("nvidia", "nvhost", "kfd", "dxg")
    return sys.platform != "linux" or any(file.name.startswith(drivers) for file in Path("/dev").iterdir())


def auto_precision(role: Role, device: str) -> Literal["fp32", "bf16"]:
    """Return the precision that `auto` resolves to; bf16 only if the GPU computes in it."""
    if role == "embedder" or device == "cpu":
        return "fp32"
    torch = require("torch", "models")
    if device == "mps":
        return "bf16" if torch.backends.mps.is_macos_or_newer(14, 0) else "fp32"
    return "bf16" if torch.version.hip or torch.cuda.get_device_capability(device) >= (8, 0) else "fp32"


@functools.cache
def hardware_of(device: str) -> str:
    """Return the maker's name of a device, or of the processor."""
    if device.startswith("cuda"):
        return str(require("torch", "models").cuda.get_device_name(device))
    cpu = Path("/proc/cpuinfo")
    named = re.search(r"^model name\s*:\s*(.+)$", cpu.read_text(encoding="utf-8") if cpu.exists() else "", re.MULTILINE)
    return named[1] if named else platform.processor() or platform.machine()


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """Where and how models run. Commands that run a model inherit these settings.

    Attributes:
        device: Where models run: cpu, cuda, cuda:N, mps, or auto, a GPU if PyTorch sees one.
        precision: Arithmetic of models: fp32, bf16, fp16, or auto: where the device has it bf16, for MiniLM's rerankers
            and reader on a CPU and for all rerankers and readers on a GPU; else fp32, for embeddings always.
        trust_remote_code: Run code that comes with a model, with all your rights; read it first.
        batch_tokens: Maximum tokens of a batch, padding included; by default 2048 on a CPU, 16384 on a GPU. A batch
            that does not fit the memory of its device is halved by itself.
        cache_mb: Megabytes of token states and vectors of texts that all parts together keep for later questions; the
            least recently used go first, 0 keeps none.

    Raises:
        InputError: A setting does not exist.
    """

    device: str = "auto"
    precision: Precision = "auto"
    trust_remote_code: bool = False
    batch_tokens: int | None = None
    cache_mb: float = 400

    def __post_init__(self) -> None:
        parse_device(self.device)
        check_choice("precision", self.precision, Precision)
        # Any text would be true, "no" among them.
        check_choice("trust_remote_code", self.trust_remote_code, (True, False))
        if self.batch_tokens is not None:
            check_count("batch_tokens", self.batch_tokens, "leave it out for what suits the device")
        megabytes(self.cache_mb)

    @property
    def runtime_settings(self) -> dict[str, Any]:
        """These five settings, whatever a subclass adds."""
        return {field.name: getattr(self, field.name) for field in fields(Runtime)}


@dataclass(frozen=True, slots=True)
class Placement:
    """Where and how one model runs: a `Runtime` in which `auto` and defaults are resolved."""

    device: str
    precision: Literal["fp32", "bf16", "fp16"]
    backend: Literal["openvino", "torch"]
    batch_tokens: int
    trust_remote_code: bool = False

    @property
    def kind(self) -> str:
        """`cpu`, `cuda` or `mps`: values depend on it, and not on which device of the kind it is."""
        return self.device.partition(":")[0]


_RUNTIME = Ambient(Runtime())

current = _RUNTIME.get
"""Returns what the innermost open block set, or else the defaults."""
use_runtime = _RUNTIME.set
"""Applies exactly what `current` returned inside a block, for parts that build others later."""


@contextmanager
def runtime(given: Runtime | None = None, **settings: Any) -> Iterator[Runtime]:
    """Apply settings to the models that are built inside this block, and yield all that hold there.

    Args:
        given: A `Runtime`, or the settings of a command; its default values leave the surrounding settings as they are.
        settings: `device`, `precision`, `trust_remote_code`, `batch_tokens`, `cache_mb`; see `Runtime`.

    Raises:
        InputError: A setting is unknown or invalid, or a device is not on this machine.
    """
    known = [one.name for one in fields(Runtime)]
    if unknown := sorted(set(settings).difference(known)):
        raise InputError(f"a runtime has no setting {unknown[0]!r}; its settings are {', '.join(known)}")
    if not isinstance(given, Runtime | None):
        raise InputError(f"a runtime is given as {given!r:.80}; name its settings, such as device='cpu'")
    defaults = Runtime().runtime_settings
    of_given = {} if given is None else given.runtime_settings
    changed = {name: value for name, value in of_given.items() if value != defaults[name]}
    inside = Runtime(**{**current().runtime_settings, **changed, **settings})
    if (device := parse_device(inside.device)) is not None:
        check_device(device)
    with use_runtime(inside):
        yield inside


def in_runtime(function: Callable[[S], R]) -> Callable[[S], R]:
    """Run a function of settings, those of a `Runtime` among them, in a block of these; a decorator."""

    @functools.wraps(function)
    def run(config: S) -> R:
        with runtime(config):
            return function(config)

    return run


def resolve_device(role: Role, *, backend: Backend = "auto", **settings: Any) -> Placement:
    """Return where and how a model is to run.

    Args:
        role: What the model does; precision `auto` depends on it.
        backend: `auto`, `openvino` or `torch`.
        settings: Those of a `Runtime`; what is None is as the surrounding block says.

    Raises:
        InputError: A setting does not exist, or not on this machine.
        MissingExtraError: A GPU is asked for, and PyTorch is not installed.
    """
    given = {name: value for name, value in settings.items() if value is not None}
    wanted = replace(current(), **given)
    device = parse_device(wanted.device) or auto_device()
    check_device(device)
    kind = device.partition(":")[0]
    check_choice("backend", backend, Backend)
    precision = wanted.precision if wanted.precision != "auto" else auto_precision(role, device)
    if wanted.precision == "auto" and kind == "cpu" and role != "embedder" and backend != "torch":
        # Not for embedders: an index is the same on every CPU.
        precision = "bf16" if has_precision("bf16") else "fp32"
    if backend == "openvino" and kind != "cpu":
        raise InputError(f"backend 'openvino' runs on the CPU, not on {kind!r}; use backend='torch'")
    if backend == "auto":
        backend = "openvino" if kind == "cpu" and has_precision(precision) else "torch"
    batch_tokens = wanted.batch_tokens or BATCH_TOKENS[kind]
    return Placement(device, precision, backend, batch_tokens, wanted.trust_remote_code)


# --- OpenVINO ---

_opting_out = renewed_lock()


@contextmanager
def without_telemetry() -> Iterator[None]:
    """Keep OpenVINO from reporting imports and conversions to its maker over the network while the block is open.

    `CI=true` is the only opt-out that its telemetry has for one process. `opt_in_out --opt_out` writes a file that
    holds for all programs of the user, and reports that it did.
    """
    with _opting_out:
        before = os.environ.get("CI")
        os.environ["CI"] = "true"
        try:
            yield
        finally:
            if before is None:
                del os.environ["CI"]
            else:
                os.environ["CI"] = before


def import_openvino() -> Any:
    """Import OpenVINO without its telemetry."""
    with without_telemetry():
        return require("openvino", "models")


@functools.lru_cache(maxsize=8)
def has_precision(precision: str) -> bool:
    """Return whether OpenVINO is installed and computes in a precision on this CPU."""
    if importlib.util.find_spec("openvino") is None:
        return False
    # Every CPU has fp32, so nothing is imported to ask.
    return precision == "fp32" or precision.upper() in import_openvino().Core().get_property(
        "CPU", "OPTIMIZATION_CAPABILITIES"
    )


# --- Which models ran, where and how: one record for every result ---

_version = functools.cache(importlib.metadata.version)
_RECORDS: Ambient[tuple[dict[tuple[str, ...], None], ...]] = Ambient(())
_RECORDED = ("model", "device", "hardware", "precision", "backend")


@contextmanager
def recording() -> Iterator[Callable[[], list[dict[str, str]]]]:
    """Record which models run while the block is open.

    Yields a function that returns a row for each model that ran so far, in the order of their first runs.
    """
    seen: dict[tuple[str, ...], None] = {}
    with _RECORDS.set((*_RECORDS.get(), seen)):
        yield lambda: [dict(zip(_RECORDED, row, strict=True)) for row in seen]


def record_use(model: str, placement: Placement) -> None:
    """Note that a model ran, in every record that is open."""
    if records := _RECORDS.get():
        device, backend = placement.device, placement.backend
        version = f"{backend} {_version(backend)}"
        for seen in records:
            seen[model, device, hardware_of(device), placement.precision, version] = None


def merge_records(records: Iterable[Iterable[Mapping[str, str]]]) -> list[dict[str, str]]:
    """Return each model of several records once, in the order of their names."""
    rows = {tuple(row[name] for name in _RECORDED) for record in records for row in record}
    return [dict(zip(_RECORDED, row, strict=True)) for row in sorted(rows)]

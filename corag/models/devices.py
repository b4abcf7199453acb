"""Devices: their names, which of them are available, and what `auto` resolves to; imports torch only if needed."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
import re
import sys
from pathlib import Path
from typing import Literal

from corag.errors import InputError
from corag.optional import require

Role = Literal["embedder", "reranker", "reader"]
"""What a model does; precision `auto` depends on it. Summarizers count as readers."""


def parse_device(text: object) -> str | None:
    """Return the device that a text names, `cuda` as `cuda:0`; None for `auto`.

    Raises:
        InputError: There is no such device.
    """
    if text == "auto":
        return None
    kind, _, number = str(text).partition(":")
    if kind not in ("cpu", "mps", "cuda") or text not in (kind, f"cuda:{number}") or not (number or "0").isdecimal():
        raise InputError(f"device {text!r} is unknown; use auto, cpu, cuda, cuda:N or mps")
    return "cuda:0" if text == "cuda" else text


def kind_of(device: str) -> str:
    """Return `cpu`, `cuda` or `mps`."""
    return device.partition(":")[0]


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

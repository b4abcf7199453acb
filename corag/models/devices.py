"""Devices: what their names mean, which of them are here, and what `auto` stands for.

Imports torch only where a device may be there that only torch knows.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import platform
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, cast

from corag.errors import InputError
from corag.optional import require

Role = Literal["embedder", "reranker", "reader"]
"""What a model does; precision `auto` depends on it. Summarizers count as readers."""

_DEVICE = re.compile(r"cpu|mps|cuda(:\d+)?")
_CONVERTER = "openvino.tools.ovc"
_DEVICES = "auto, cpu, cuda, cuda:N or mps, or several GPUs as cuda:0,cuda:1"


def parse_devices(text: object) -> tuple[str, ...]:
    """Return the devices that a text names, `cuda` as `cuda:0`; none for `auto`.

    Raises:
        InputError: There are no such devices, of different kinds, or a GPU twice.
    """
    names = [name.strip() for name in text.split(",")] if isinstance(text, str) else []
    if names == ["auto"]:
        return ()
    if not names or not all(_DEVICE.fullmatch(name) for name in names):
        raise InputError(f"device {text!r} is unknown; use {_DEVICES}")
    devices = tuple("cuda:0" if name == "cuda" else name for name in names)
    if len({kind_of((device,)) for device in devices}) > 1:
        raise InputError(f"device {text!r} mixes kinds of devices; name several of one kind, such as cuda:0,cuda:1")
    # Several replicas on a CPU are of no use but to try out what several GPUs do.
    if len(set(devices)) < len(devices) and devices[0] != "cpu":
        raise InputError(f"device {text!r} names a GPU twice; name each once")
    return devices


def kind_of(devices: tuple[str, ...]) -> str:
    """Return `cpu`, `cuda` or `mps`."""
    return devices[0].partition(":")[0]


def check_devices(devices: tuple[str, ...]) -> None:
    """Raise `InputError` for a device that PyTorch does not see, and say what it sees."""
    for device in devices:
        if device == "cpu":
            continue
        torch = require("torch", "models")
        found = _devices_of(torch)
        if device not in found:
            told = ", ".join(f"{name} ({full})" if full else name for name, full in found.items())
            raise InputError(
                f"device {device!r} is not there: PyTorch {torch.__version__} sees {told}; use one of these, or auto"
                + ("" if torch.cuda.is_available() else ", or install a PyTorch built for your GPU and its driver")
            )


def _devices_of(torch: Any) -> dict[str, str]:
    """Return the devices that PyTorch sees, with their full names."""
    found = {"cpu": ""}
    found |= {f"cuda:{number}": torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())}
    return found | ({"mps": ""} if torch.backends.mps.is_available() else {})


def auto_device() -> str:
    """Return the device that `auto` stands for: CUDA, else MPS, where PyTorch sees it, else the CPU."""
    if not _may_have_gpu():
        return "cpu"
    torch = require("torch", "models")
    if torch.cuda.is_available():
        return "cuda:0"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _may_have_gpu() -> bool:
    """Return False where it is plain that PyTorch sees no GPU, so that it need not be imported to find out."""
    if _release_of_torch().endswith("+cpu"):
        return False
    if sys.platform == "darwin":
        return platform.machine() == "arm64"
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1"):
        return False
    # NVIDIA's drivers, those of its boards, of AMD, and of Windows for Linux programs.
    drivers = ("nvidia", "nvhost", "kfd", "dxg")
    return sys.platform != "linux" or any(file.name.startswith(drivers) for file in Path("/dev").iterdir())


@functools.cache
def _release_of_torch() -> str:
    """Return the release of PyTorch that is installed; where none is, that of a build without GPUs."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return "0+cpu"


def auto_precision(role: Role, devices: tuple[str, ...]) -> Literal["fp32", "bf16"]:
    """Return the precision that `auto` stands for; bf16 only where the GPU computes in it."""
    if role == "embedder" or devices[0] == "cpu":
        return "fp32"
    torch = require("torch", "models")
    if devices[0] == "mps":
        return "bf16" if torch.backends.mps.is_macos_or_newer(14, 0) else "fp32"
    capable = (torch.cuda.get_device_capability(device) >= (8, 0) for device in devices)
    return "bf16" if torch.version.hip or all(capable) else "fp32"


@functools.cache
def hardware_of(devices: tuple[str, ...]) -> str:
    """Return the makers' names of devices, or of the processor."""
    if devices[0].startswith("cuda"):
        torch = require("torch", "models")
        return ", ".join(torch.cuda.get_device_name(device) for device in devices)
    return _processor()


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


@functools.lru_cache(maxsize=8)
def openvino_has(precision: str) -> bool:
    """Return whether OpenVINO is installed and computes in a precision on this CPU."""
    if importlib.util.find_spec("openvino") is None:
        return False
    # Every CPU has fp32, so nothing is imported to ask.
    return precision == "fp32" or {"bf16": "BF16", "fp16": "FP16"}[precision] in import_openvino().Core().get_property(
        "CPU", "OPTIMIZATION_CAPABILITIES"
    )


def import_openvino() -> Any:
    """Import OpenVINO without its telemetry, which reports every import to its maker over the network.

    OpenVINO goes without its telemetry, and without its converter, where these cannot be imported; None in
    `sys.modules` says so. A program that imported the packages before has made its own choice.
    """
    sys.modules.setdefault("openvino_telemetry", cast(ModuleType, None))
    if "openvino" in sys.modules:
        return require("openvino", "models")
    # The converter is two thirds of the import (60 ms), and wanted once for each model.
    sys.modules[_CONVERTER] = cast(ModuleType, None)
    try:
        openvino = require("openvino", "models")
    finally:
        del sys.modules[_CONVERTER]
    if not hasattr(openvino, "convert_model"):
        vars(openvino)["__getattr__"] = functools.partial(_converter, openvino)
    return openvino


def _converter(openvino: ModuleType, name: str) -> Any:
    """Return `openvino.convert_model` when it is first asked for."""
    if name != "convert_model":
        raise AttributeError(f"module {openvino.__name__!r} has no attribute {name!r}")
    found = vars(openvino)[name] = importlib.import_module(_CONVERTER).convert_model
    return found

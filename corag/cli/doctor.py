"""`corag doctor`: installed packages, devices, models and data at hand, and servers.

Only the Ollama server is contacted, at the address that is set for it.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from corag.cli.console import plain, stdout
from corag.errors import CoragError
from corag.models.servers import THIS_MACHINE
from corag.optional import to_install
from corag.text.visible import one_line

TIMEOUT_S = 2.0
"""Seconds that a server has to answer."""
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)[^;]*(?:;.*extra\s*==\s*['\"]([\w-]+)['\"])?")


Finding = tuple[str, str]
"""What was examined, and its state."""


@dataclass(frozen=True)
class DoctorConfig:
    """Show installed packages, devices, models and data at hand, and whether Ollama answers."""


def run(config: DoctorConfig) -> None:
    """Print all findings."""
    for section in (_installed, _devices, _models, _folders, _servers):
        drawn = Table.grid(padding=(0, 2, 0, 0))
        drawn.add_column(no_wrap=True)
        drawn.add_column(overflow="fold")
        for name, state in section():
            drawn.add_row(plain(f"  {name}"), plain(state))
        stdout().print(plain(section.__name__.strip("_")), style="bold")
        stdout().print(drawn)


def _installed() -> Iterator[Finding]:
    from corag import __version__

    yield "corag", f"{__version__} in {Path(__file__).parents[1]}"
    yield "python", f"{platform.python_version()}, {platform.platform(terse=True)}"
    for extra, packages in extras().items():
        versions = {name: _version(name) for name in packages}
        present = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
        missing = ", ".join(name for name, version in versions.items() if not version)
        hint = f"missing: {missing}; install with: {to_install(extra)}" if missing and extra else ""
        yield extra or "base", "; ".join(filter(None, [present, hint]))


def extras() -> Mapping[str, list[str]]:
    """Return the packages that each extra needs by itself; those of the base install are under the empty name."""
    packages: dict[str, list[str]] = {}
    with suppress(importlib.metadata.PackageNotFoundError):
        for line in importlib.metadata.requires("corag") or []:
            if (match := _REQUIREMENT.match(line)) and match[1] != "corag" and match[2] not in ("all", "dev"):
                packages.setdefault(match[2] or "", []).append(match[1])
    return packages


def _version(package: str) -> str:
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return ""


def _devices() -> Iterator[Finding]:
    from corag.models.devices import auto_device, hardware_of
    from corag.models.runtime import has_precision

    yield "processor", f"{hardware_of('cpu')}, {os.cpu_count()} cores"
    try:
        device = auto_device()
        yield "auto", device if device == "cpu" else f"{device}, {hardware_of(device)}"
    except (CoragError, OSError, RuntimeError) as error:  # a driver that does not match, for example
        yield "auto", f"unknown: {error}; use --device cpu"
    has = [name for name in ("fp32", "bf16", "fp16") if has_precision(name)]
    yield "OpenVINO", ", ".join(has) or "not installed"


def _models() -> Iterator[Finding]:
    from common.storage import CONFIG_FILE
    from corag.models.minilm import WEIGHTS_FILE, WEIGHTS_SHA256
    from corag.models.trained import FOLDER
    from corag.text.tokens import check_published, model_folder

    try:
        folder = model_folder()
        check_published(folder / WEIGHTS_FILE, WEIGHTS_SHA256)
        yield "all-MiniLM-L6-v2", f"whole, in {folder}"
    except CoragError as error:
        yield "all-MiniLM-L6-v2", f"not at hand: {error}"
    shipped = ", ".join(sorted(path.parent.name for path in FOLDER.glob(f"*/{CONFIG_FILE}")))
    yield "shipped", shipped or f"none in {FOLDER}"


def _folders() -> Iterator[Finding]:
    from corag.text.data import data_folders
    from corag.writing import cache_folder

    for folder in data_folders():
        names = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
        yield str(folder), ", ".join(names) or "no data"
    yield str(cache_folder()), "cache"


def _servers() -> Iterator[Finding]:
    try:
        import ollama

        client = ollama.Client(timeout=TIMEOUT_S, mounts=THIS_MACHINE)
        models = ", ".join(str(model.model) for model in client.list().models)
        yield "Ollama", f"answers; models: {models or 'none'}"
    except ImportError:
        yield "Ollama", f"not asked; install with: {to_install('ollama')}"
    except Exception as error:  # noqa: BLE001 - whatever the client raises, it does not answer
        yield "Ollama", f"no answer ({one_line(str(error))}); to use it: ollama serve"
    yield "OPENAI_BASE_URL", f"{os.environ.get('OPENAI_BASE_URL') or 'not set'} (not contacted)"
    yield "OPENAI_API_KEY", "set" if os.environ.get("OPENAI_API_KEY") else "not set"

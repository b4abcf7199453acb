"""`corag doctor`: installed packages, devices, models and data at hand, and servers.

Only the Ollama server is contacted, at the address that is set for it.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from corag.cli.console import plain, stdout
from corag.errors import CoragError
from corag.models.chat import THIS_MACHINE, without_password
from corag.optional import to_install
from corag.text.visible import one_line

TIMEOUT_S = 2.0
"""Seconds that a server has to answer."""
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)[^;]*(?:;.*extra\s*==\s*['\"]([\w-]+)['\"])?")


@dataclass(frozen=True)
class DoctorConfig:
    """Show installed packages, devices, models and data at hand, and whether Ollama answers."""


def run(config: DoctorConfig) -> None:
    """Print all findings."""
    drawn = Table.grid(padding=(0, 2, 0, 0))
    drawn.add_column(no_wrap=True)
    drawn.add_column(overflow="fold")
    for name, state in (*_installed(), *_devices(), *_at_hand(), *_servers()):
        drawn.add_row(plain(name), plain(state))
    stdout().print(drawn)


def _installed() -> Iterator[tuple[str, str]]:
    from corag import __version__

    yield "corag", f"{__version__} in {Path(__file__).parents[1]}"
    yield "python", f"{platform.python_version()}, {platform.platform(terse=True)}"
    for extra, packages in extras().items():
        versions = {name: _version(name) for name in packages}
        states = [f"{name} {version}" for name, version in versions.items() if version]
        if extra and (missing := [name for name in packages if not versions[name]]):
            states.append(f"missing: {', '.join(missing)}; install with: {to_install(extra)}")
        yield f"[{extra}]" if extra else "base", ", ".join(states)


def extras() -> Mapping[str, list[str]]:
    """Return the packages that each extra needs by itself; those of the base install are under the empty name."""
    packages: dict[str, list[str]] = {}
    for line in importlib.metadata.requires("corag") or []:
        if (match := _REQUIREMENT.match(line)) and match[1] != "corag" and match[2] not in ("all", "dev"):
            packages.setdefault(match[2] or "", []).append(match[1])
    return packages


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _devices() -> Iterator[tuple[str, str]]:
    from corag.models.runtime import auto_device, hardware_of, has_precision

    yield "processor", f"{hardware_of('cpu')}, {os.cpu_count()} cores"
    try:
        yield "device", f"{(device := auto_device())}, {hardware_of(device)}"
    except (CoragError, OSError, RuntimeError) as error:  # a driver that does not match, for example
        yield "device", f"unknown: {error}; use --device cpu"
    yield "OpenVINO", ", ".join(filter(has_precision, ("fp32", "bf16", "fp16"))) or "not installed"


def _at_hand() -> Iterator[tuple[str, str]]:
    from common.storage import CONFIG_FILE
    from corag.memory import cache_folder
    from corag.models.encoders import WEIGHTS_FILE, WEIGHTS_SHA256
    from corag.models.trained import FOLDER
    from corag.text.data import data_folders
    from corag.text.tokens import check_published, model_folder

    try:
        folder = model_folder()
        check_published(folder / WEIGHTS_FILE, WEIGHTS_SHA256)
        yield "all-MiniLM-L6-v2", f"whole, in {folder}"
    except CoragError as error:
        yield "all-MiniLM-L6-v2", f"not at hand: {error}"
    yield "shipped", ", ".join(sorted(path.parent.name for path in FOLDER.glob(f"*/{CONFIG_FILE}"))) or "none"
    for folder in data_folders():
        names = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
        yield "data", f"{folder}: {', '.join(names) or 'none'}"
    yield "cache", str(cache_folder())


def _servers() -> Iterator[tuple[str, str]]:
    try:
        import ollama

        models = ollama.Client(timeout=TIMEOUT_S, mounts=THIS_MACHINE).list().models
        yield "Ollama", f"answers; models: {', '.join(str(model.model) for model in models) or 'none'}"
    except ImportError:
        yield "Ollama", f"not asked; install with: {to_install('ollama')}"
    except Exception as error:  # noqa: BLE001 - whatever the client raises, it does not answer
        yield "Ollama", f"no answer ({one_line(str(error))}); to use it: ollama serve"
    yield "OPENAI_BASE_URL", f"{without_password(os.environ.get('OPENAI_BASE_URL') or 'not set')} (not contacted)"
    yield "OPENAI_API_KEY", "set" if os.environ.get("OPENAI_API_KEY") else "not set"

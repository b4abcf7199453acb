"""`corag doctor`: installed packages, devices, models and data at hand, caches and servers.

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
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from corag.cli.console import plain, stdout
from corag.errors import CoragError
from corag.optional import to_install
from corag.text.visible import visible

TIMEOUT_S = 2.0
"""Seconds that a server has to answer."""
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)[^;]*(?:;.*extra\s*==\s*['\"]([\w-]+)['\"])?")


class Finding(NamedTuple):
    """One line of the report: section, what was examined, its state, and what to do about it, if anything."""

    part: str
    name: str
    state: str
    remedy: str = ""


@dataclass(frozen=True)
class DoctorConfig:
    """Show installed packages, devices, models and data at hand, caches, and whether Ollama answers."""


def run(config: DoctorConfig) -> None:
    """Print all findings."""
    for part, group in groupby(findings(), key=lambda finding: finding.part):
        drawn = Table.grid(padding=(0, 2, 0, 0))
        drawn.add_column(no_wrap=True)
        drawn.add_column(overflow="fold")
        for _, name, state, remedy in group:
            separator = "; " if state and remedy else ""
            drawn.add_row(plain(f"  {name}"), Text.assemble(plain(state), separator, (visible(remedy), "yellow")))
        stdout().print(plain(part), style="bold")
        stdout().print(drawn)


def findings() -> Iterator[Finding]:
    """Yield all findings, those of one section after each other."""
    for section in (_installed, _devices, _models, _folders, _servers):
        yield from section()


def _installed() -> Iterator[Finding]:
    from corag import __version__

    yield Finding("installed", "corag", f"{__version__} in {Path(__file__).parents[1]}")
    yield Finding("installed", "python", f"{platform.python_version()}, {platform.platform(terse=True)}")
    for extra, packages in extras().items():
        versions = {name: _version(name) for name in packages}
        present = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
        missing = ", ".join(name for name, version in versions.items() if not version)
        state = "; ".join(filter(None, [present, missing and f"missing: {missing}"]))
        remedy = f"install with: {to_install(extra)}" if missing and extra else ""
        yield Finding("installed", extra or "base", state, remedy)


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

    yield Finding("devices", "processor", f"{hardware_of('cpu')}, {os.cpu_count()} cores")
    try:
        device = auto_device()
        yield Finding("devices", "auto", device if device == "cpu" else f"{device}, {hardware_of(device)}")
    except (CoragError, OSError, RuntimeError) as error:  # a driver that does not match, for example
        yield Finding("devices", "auto", f"unknown: {error}", "use --device cpu")
    has = [name for name in ("fp32", "bf16", "fp16") if has_precision(name)]
    yield Finding("devices", "OpenVINO", ", ".join(has) or "not installed")


def _models() -> Iterator[Finding]:
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    from common.storage import CONFIG_FILE
    from corag.models.minilm import WEIGHTS_FILE, WEIGHTS_SHA256
    from corag.models.trained import FOLDER
    from corag.text.tokens import check_published, model_folder

    try:
        folder = model_folder()
        check_published(folder / WEIGHTS_FILE, WEIGHTS_SHA256)
        yield Finding("models", "all-MiniLM-L6-v2", f"whole, in {folder}")
    except CoragError as error:
        yield Finding("models", "all-MiniLM-L6-v2", "not at hand", str(error))
    shipped = ", ".join(sorted(path.parent.name for path in FOLDER.glob(f"*/{CONFIG_FILE}")))
    yield Finding("models", "shipped", shipped or f"none in {FOLDER}")
    with suppress(CacheNotFound, ValueError):
        cached = [repo for repo in scan_cache_dir().repos if repo.repo_type == "model"]
        listed = sorted(f"{repo.repo_id} ({decimal(repo.size_on_disk)})" for repo in cached)
        yield Finding("models", "fetched from the hub", ", ".join(listed) or "none")
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        yield Finding("models", "HF_HUB_OFFLINE", "set: no model is fetched")


def _folders() -> Iterator[Finding]:
    from corag.text.data import data_folders
    from corag.writing import cache_folder

    for folder in data_folders():
        yield Finding("data folders", str(folder), ", ".join(path.name for path in _inside(folder)) or "none")
    cache = cache_folder()
    yield Finding("caches", str(cache), decimal(_bytes(cache)))
    for path in _inside(cache):
        if size := _bytes(path):
            yield Finding("caches", f"  {path.name}", decimal(size))


def _inside(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _servers() -> Iterator[Finding]:
    try:
        import ollama

        models = ", ".join(str(model.model) for model in ollama.Client(timeout=TIMEOUT_S).list().models)
        yield Finding("servers", "Ollama", f"answers; models: {models or 'none'}")
    except ImportError:
        yield Finding("servers", "Ollama", "not asked", f"install with: {to_install('ollama')}")
    except Exception as error:  # noqa: BLE001 - whatever the client raises, it does not answer
        yield Finding(
            "servers", "Ollama", f"no answer ({error})", "start one with `ollama serve`, if you want to use it"
        )
    yield Finding("servers", "OPENAI_BASE_URL", f"{os.environ.get('OPENAI_BASE_URL') or 'not set'} (not contacted)")
    yield Finding("servers", "OPENAI_API_KEY", "set" if os.environ.get("OPENAI_API_KEY") else "not set")

"""Where a model's files are: in a folder, or in the hub's cache, which a network fills."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from corag.optional import require

_SUFFIXES = (".jinja", ".json", ".model", ".py", ".safetensors", ".txt")


def find_folder(model: str | Path, weights_revision: str | None = None) -> Path:
    """Return the folder of a model given by folder or by name, downloaded where it is not there yet.

    Args:
        model: Folder, or name on the hub.
        weights_revision: Revision to take where the main one has no safetensors.

    Raises:
        OSError: Neither the folder nor the name is there.
        ValueError: It is no name.
    """
    if Path(model).is_dir():
        return Path(model)
    folder = _download(str(model), _SUFFIXES)
    if weights_revision is not None and not any(folder.glob("*.safetensors")):
        folder = _download(str(model), _SUFFIXES, weights_revision)
    return folder


def find_code(config: Mapping[str, Any]) -> list[Path]:
    """Return the folders of the repositories, other than its own, that a model's code stands in.

    Args:
        config: What its config.json says.

    Raises:
        OSError: One of them is not there.
    """
    return [_download(repository, (".py",)) for repository in code_repositories(config)]


def code_repositories(config: Mapping[str, Any]) -> list[str]:
    """Return the repositories that a configuration refers to by `repository--module.Class`."""
    return sorted({reference.partition("--")[0] for reference in _references(config) if "--" in reference})


def sha256(folder: Path) -> str:
    """Return the hash of the names and contents of all files that values depend on."""
    total = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        if file.suffix in _SUFFIXES:
            with file.open("rb") as content:
                total.update(f"{file.name} {hashlib.file_digest(content, 'sha256').hexdigest()}\n".encode())
    return total.hexdigest()


def is_out_of_reach(error: BaseException) -> bool:
    """Return whether an error says that a name is not on this machine and the hub was not reached."""
    return isinstance(error, require("huggingface_hub.errors", "models").LocalEntryNotFoundError)


def _references(config: Mapping[str, Any]) -> Iterator[str]:
    for value in config.get("auto_map", {}).values():
        # A tokenizer has two, one of which may be null.
        yield from (entry for entry in (value if isinstance(value, list) else [value]) if entry)


def _download(name: str, suffixes: tuple[str, ...], revision: str | None = None) -> Path:
    hub = require("huggingface_hub", "models")
    patterns = [f"*{suffix}" for suffix in suffixes]
    return Path(hub.snapshot_download(name, allow_patterns=patterns, revision=revision))

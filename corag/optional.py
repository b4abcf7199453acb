"""Imports on first use; optional dependencies with a clear error if they are missing."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlsplit

from corag.errors import MissingExtraError

logger = logging.getLogger(__name__)


def require(module: str, extra: str) -> ModuleType:
    """Import `module`, or raise `MissingExtraError`, which says what extra of CORAG to install."""
    with needed(module, extra):
        return importlib.import_module(module)


@contextmanager
def needed(module: str, extra: str) -> Iterator[None]:
    """Turn an `ImportError` inside the block into a `MissingExtraError`; see `require`."""
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(
            f"{module} is needed here but cannot be imported ({error}); install it with: {to_install(extra)}"
        ) from error


def to_install(extra: str) -> str:
    """Return the command that installs an extra: from where this package was installed, which may be no index."""
    source: dict[str, Any] = {}
    with suppress(importlib.metadata.PackageNotFoundError, ValueError):
        source = json.loads(importlib.metadata.distribution("corag").read_text("direct_url.json") or "{}")
    url = urlsplit(source.get("url", ""))
    editable = "-e " if source.get("dir_info", {}).get("editable") else ""
    return f"pip install {editable}'{unquote(url.path) if url.scheme == 'file' else 'corag'}[{extra}]'"


@lru_cache(maxsize=256)
def warn_once(message: str) -> None:
    """Log a warning once per process."""
    logger.warning("%s", message)


def load(path: str) -> Any:
    """Import and return what `module:attribute` names."""
    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module), attribute)


def lazy_exports(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package that imports some public names when they are first used.

    `modules` maps a name to the module that has it, or to the package for a module in it. The package's `__all__` is
    set to these names and to those that it has imported before, except modules.
    """
    namespace = vars(sys.modules[package])
    imported = {name for name, value in namespace.items() if name[0] != "_" and not isinstance(value, ModuleType)}
    namespace["__all__"] = sorted(imported.union(modules))

    def getattr_(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if modules[name] == package:
            return importlib.import_module(f"{package}.{name}")
        return getattr(importlib.import_module(modules[name]), name)

    return getattr_, lambda: namespace["__all__"]

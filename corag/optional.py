"""What is imported only where it is used; optional dependencies with a clear error where they are missing."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from types import ModuleType
from typing import Any

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
            f"{module} is needed here but cannot be imported ({error}); install it with: pip install 'corag[{extra}]'"
        ) from error


@lru_cache(maxsize=256)
def warn_once(message: str) -> None:
    """Log a warning, such as that something stands in for what is missing, once per process."""
    logger.warning("%s", message)


def load(path: str) -> Any:
    """Import and return what `module:attribute` names."""
    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module), attribute)


def lazily(package: str, places: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package that imports some public names when they are first used.

    It also sets the package's `__all__`, which holds what the package has imported before, modules aside.

    Args:
        package: Name of the package.
        places: Public name -> the module that has it; the package itself for a module in it.
    """
    module = vars(sys.modules[package])
    imported = {name for name, one in module.items() if not (name.startswith("_") or isinstance(one, ModuleType))}
    module["__all__"] = sorted(imported.union(places))

    def getattr_(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if places[name] == package:
            return importlib.import_module(f"{package}.{name}")
        return getattr(importlib.import_module(places[name]), name)

    return getattr_, lambda: module["__all__"]

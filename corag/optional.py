"""What is imported only where it is used; optional dependencies with a clear error where they are missing."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from corag.errors import MissingExtraError


def require(module: str, extra: str) -> ModuleType:
    """Import `module`, or say which extra of CORAG brings it.

    Args:
        module: Dotted module name.
        extra: Name of the extra in pyproject.toml that installs it.

    Raises:
        MissingExtraError: The module, or something it needs, is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{module} is needed here but cannot be imported ({error}); install it with: pip install 'corag[{extra}]'"
        ) from error


def load(path: str) -> Any:
    """Import and return what `module:attribute` names."""
    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module), attribute)

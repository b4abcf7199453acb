"""Optional dependencies: imported where they are used, with a clear error where they are missing."""

from __future__ import annotations

import importlib
from types import ModuleType

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

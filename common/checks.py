"""Checks of settings; each error names the setting, its value and what it may be."""

from __future__ import annotations

import math
from typing import Any, get_args

import numpy as np

from common.errors import InputError

LARGEST = 1.7e308
"""No float is larger."""


def check_choice(name: str, value: object, names: Any) -> None:
    """Raise `InputError` unless a setting is one of some names, which are a `Literal` type or an iterable."""
    listed = get_args(names) or tuple(names)
    if value not in listed:
        raise InputError(f"{name} is {value!r}; it must be one of {', '.join(map(str, listed))}")


def check_count(name: str, value: object, hint: str = "", *, least: int = 1, most: int | None = None) -> None:
    """Raise `InputError` unless a setting is a whole number from `least` to `most`; `hint` ends the message."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    hint = f"; {hint}" if hint else ""
    if not whole or value < least:  # type: ignore[operator]
        raise InputError(f"{name} must be a whole number of at least {least}, got {value!r:.80}{hint}")
    if most is not None and value > most:  # type: ignore[operator]
        raise InputError(f"{name} must be at most {most}, got {value!r:.80}{hint}")


def check_range(name: str, value: object, low: float, high: float, hint: str = "") -> None:
    """Raise `InputError` unless a setting is a finite number from `low` to `high`; `hint` ends the message."""
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    # Whole numbers may be too large for a float, and numbers of NumPy compare in their own precision.
    number: Any = value if not is_number or isinstance(value, int) else float(value)  # type: ignore[arg-type]
    if not is_number or not low <= number <= high or not abs(number) <= LARGEST:
        rule = f"from {low} to {high}" if math.isfinite(high) else f"of at least {low}"
        kind = "" if is_number and math.isfinite(high) else "a number "
        raise InputError(f"{name} must be {kind}{rule}, got {value!r:.80}{f'; {hint}' if hint else ''}")

"""Checks of settings; each error names the setting, its value and what it may be."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np

from corag.errors import InputError


def check_choice(name: str, value: object, names: Any) -> None:
    """Raise `InputError` unless a setting is one of some names, which are a `Literal` type or an iterable."""
    listed = get_args(names) or tuple(names)
    if value not in listed:
        raise InputError(f"{name} is {value!r}; it must be one of {', '.join(listed)}")


def check_count(name: str, value: object, hint: str, *, least: int = 1) -> None:
    """Raise `InputError` unless a setting is a whole number of at least `least`; `hint` ends the message."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < least:  # type: ignore[operator]
        raise InputError(f"{name} must be a whole number of at least {least}, got {value!r}; {hint}")


def check_range(name: str, value: float, low: float, high: float, hint: str) -> None:
    """Raise `InputError` unless a setting is a number from `low` to `high`; `hint` ends the message."""
    if not low <= value <= high:
        raise InputError(f"{name} must be from {low} to {high}, got {value!r}; {hint}")

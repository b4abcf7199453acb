"""Checks of settings, questions, budgets and settings files; each error names the value and what it may be."""

from __future__ import annotations

import math
from pathlib import PurePath
from typing import Any, get_args

import numpy as np

from common.errors import InputError

LARGEST = 1.7e308
"""No float is larger."""
MOST_TOKENS = 10**12
"""The largest budget: beyond all models, and times any window still a 64-bit number."""
MOST_CANDIDATES = 100_000
"""The most candidates of a question: they are in memory, and every selector compares them."""


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


def check_seed(name: str, seed: object) -> None:
    """Raise `InputError` unless a seed is a whole number that every source of random numbers takes."""
    check_count(name, seed, "typical: 0", least=0, most=2**32 - 1)


def check_text(name: str, text: object) -> None:
    """Raise `InputError` for what is not a text, or is no valid Unicode, which neither tokenizers nor files take."""
    if not isinstance(text, str):
        raise InputError(f"{name} is {text!r:.80}, a {type(text).__name__}; give a text")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{name} holds a lone surrogate ({text[error.start]!r} at {error.start}); decode its source with "
            "errors='replace'"
        ) from error


def check_path_like(name: str, path: object) -> None:
    """Raise `InputError` for what is neither a path nor a text."""
    if not isinstance(path, PurePath):
        check_text(name, path)


def check_query(query: str) -> None:
    """Raise `InputError` for a question that is not a text, is empty, or no valid Unicode."""
    check_text("the question", query)
    if not query.strip():
        raise InputError(f"the question is empty ({query!r}); give a question with at least one word")


def check_budget(budget_tokens: object, name: str = "budget_tokens") -> None:
    """Raise `InputError` for a budget that is not a whole number from 1 to `MOST_TOKENS`."""
    check_count(name, budget_tokens, "typical: 256-4096", most=MOST_TOKENS)


def well_formed(text: str) -> str:
    """Return a text that UTF-8 can hold: two halves of a character joined, any other replaced by U+FFFD."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

"""Errors of the agent, and the checks of settings that raise them."""

from __future__ import annotations

import math
from collections.abc import Collection


class AgentError(ValueError):
    """A setting, a training table or a feature vector breaks a rule."""


class CheckpointError(AgentError):
    """A checkpoint folder is missing, damaged, of another format, or would overwrite something else."""


def require_int(name: str, value: object, minimum: int) -> None:
    """Raise unless `value` is an int of at least `minimum`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise AgentError(f"{name} must be an integer of at least {minimum}, got {value!r}")


def require_number(name: str, value: object, minimum: float = 0.0, *, above: bool = False) -> None:
    """Raise unless `value` is a finite number of at least `minimum`, or greater than it with `above`."""
    finite = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not finite or value < minimum or (above and value == minimum):  # type: ignore[operator]
        rule = "greater than" if above else "of at least"
        raise AgentError(f"{name} must be a finite number {rule} {minimum}, got {value!r}")


def require_names(name: str, value: object) -> None:
    """Raise unless `value` is a tuple of at least one non-empty string, none of them twice."""
    valid = isinstance(value, tuple) and value and all(isinstance(item, str) and item.strip() for item in value)
    if not valid or len(set(value)) < len(value):  # type: ignore[call-overload, arg-type]
        raise AgentError(f"{name} must be a tuple of at least one non-empty name, each once; got {value!r}")


def require_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Raise unless `value` is one of `choices`."""
    if value not in choices:
        raise AgentError(f"{name} must be one of {', '.join(choices)}; got {value!r}")

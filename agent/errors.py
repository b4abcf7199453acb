"""Errors of the agent, and the checks of settings that raise them: each names the value, the rule and the remedy."""

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


def require_text(name: str, value: object) -> None:
    """Raise unless `value` is a string with something in it."""
    if not isinstance(value, str) or not value.strip():
        raise AgentError(f"{name} must be a non-empty string, got {value!r}")


def require_names(name: str, value: object) -> None:
    """Raise unless `value` is a tuple of at least one non-empty string, none of them twice."""
    if not isinstance(value, tuple) or not value:
        raise AgentError(f"{name} must be a tuple of at least one name, got {value!r}")
    for item in value:
        require_text(f"every name in {name}", item)
    if len(set(value)) != len(value):
        raise AgentError(f"{name} must hold each name once, got {value!r}")


def require_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Raise unless `value` is one of `choices`."""
    if value not in choices:
        raise AgentError(f"{name} must be one of {', '.join(choices)}; got {value!r}")

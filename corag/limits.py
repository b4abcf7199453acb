"""Limits for untrusted input: of the settings of parts that a request, a checkpoint or an index names.

What you type or pass as an argument has none of these limits: you see what it takes, and can stop it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DEADLINE_S = 30.0
"""Seconds for a request, waiting for its turn included, unless `corag serve --deadline` says otherwise."""

LIMITS: Mapping[str, float] = {
    # A search. `upper` has the default max_orders, enough for the paper's largest problem.
    "iterations": 200,
    "parallel": 16,
    "max_scored": 50_000,
    "max_orders": 200_000,
    "max_length": 20,
    # Clusterings, of which some compare all pairs in memory.
    "max_candidates": 200,
    # Units, each valued by a reranker, and readings of a question.
    "max_units": 500,
    "samples": 10,
    # Any number of 32 bits.
    "seed": 2**32 - 1,
}
"""The largest value of each setting that is work or memory."""
DEFAULT_LIMIT = 10_000
"""The largest value of all other numbers."""


def too_large(settings: Mapping[str, Any]) -> str:
    """Return how a setting, or one of those within it, exceeds its limit, for an error; nothing if none does."""
    for name, value in settings.items():
        most = LIMITS.get(name, DEFAULT_LIMIT)
        for one in value if isinstance(value, list | tuple) else [value]:
            if isinstance(one, Mapping) and (reason := too_large(one)):
                return reason
            if isinstance(one, int | float) and not -most <= one <= most:
                return f"{name} of {one!r:.40}, above the limit for untrusted input, {most:,}"
    return ""

"""The price of tokens, lambda: what 256 of them cost in units of value, whatever the budget is."""

from __future__ import annotations

from collections.abc import Mapping

from corag.errors import InputError

REFERENCE_TOKENS = 256
"""lambda is the price of this many tokens."""
COST_WEIGHT = 0.1
"""Price of 256 tokens where nobody names one: of pruning, and of `corag tune`."""
PREFERENCES: Mapping[str, float] = {"quality": 0.5, "balanced": 1.0, "tokens": 2.0}
"""Factors on the price of tokens by which `corag tune` compares configurations."""


def price_factor(prefer: str | float) -> float:
    """Return the factor on lambda that a preference names; `InputError` for no name and no number of at least 0."""
    try:
        factor = PREFERENCES[prefer] if isinstance(prefer, str) and prefer in PREFERENCES else float(prefer)
    except (TypeError, ValueError):
        factor = -1.0
    if not 0 <= factor < float("inf"):
        raise InputError(
            f"prefer is {prefer!r}; give {', '.join(PREFERENCES)}, or a factor on the price of tokens of at least 0, "
            "such as 2"
        )
    return factor

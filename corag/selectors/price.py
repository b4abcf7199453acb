"""The price of tokens, lambda: what 256 of them cost in units of value, whatever the budget is."""

from __future__ import annotations

from collections.abc import Mapping

from corag.errors import InputError
from corag.text.units import Unit

REFERENCE_TOKENS = 256
"""lambda is the price of this many tokens."""
COST_WEIGHT = 0.1
"""lambda by default, for sentences. On 48 training questions of HotpotQA, SQuAD and 2Wiki at 256 tokens it spends 160
tokens and finds all evidence, answer F1 .703, as the values that charged for length did (154 tokens, .703); at 1,024
tokens 203 (348) at .733 (.721). 0.2 spends 132 at .741, 0.3 misses some evidence."""
PASSAGE_COST_WEIGHT = 0.03
"""The same for passages, of which one more is a larger step: with 0.1 they hold less of the evidence. On 16 training
questions of HotpotQA as many tokens, as much evidence and the same F1 at 256 tokens as before; see LOG.md."""
PREFERENCES: Mapping[str, float] = {"quality": 0.5, "balanced": 1.0, "tokens": 2.0}
"""Factors on lambda, whether an agent names it, the user gives it, or it is the default."""


def default_cost_weight(unit: Unit) -> float:
    """Return the default lambda of a unit."""
    return PASSAGE_COST_WEIGHT if unit.size is None else COST_WEIGHT


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

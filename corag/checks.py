"""Checks of settings, questions, budgets and settings files; each error names the value and what it may be."""

from __future__ import annotations

from common.checks import check_choice as check_choice
from common.checks import check_count as check_count
from common.checks import check_range as check_range
from common.errors import InputError

MOST_TOKENS = 10**12
"""The largest budget: beyond all models, and times any window still a 64-bit number."""
MOST_CANDIDATES = 100_000
"""The most candidates of a question: they are in memory, and every selector compares them."""


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

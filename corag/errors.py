"""Errors a user can mend: each message names the value, the rule and the remedy.

The command line prints these without a traceback and exits with status 2. Anything else that
escapes is a bug in CORAG and keeps its traceback.
"""

from collections.abc import Iterator
from contextlib import contextmanager


class CoragError(Exception):
    """Base of every error that CORAG raises on purpose; `search` and `agent` raise `ValueError`s of their own.

    Its message is one line, also where it quotes a library whose message is several.
    """

    def __str__(self) -> str:
        return " ".join(line for line in map(str.strip, super().__str__().split("\n")) if line)


class InputError(CoragError, ValueError):
    """A value given by the user breaks a rule: an empty question, a budget of 0, a broken line."""


@contextmanager
def search_errors() -> Iterator[None]:
    """Raise what `search` says of its settings and values as `InputError`."""
    from search import SearchError

    try:
        yield
    except SearchError as error:
        raise InputError(str(error)) from error


class DataError(InputError):
    """A data folder or file cannot be used; the message names the file and, where it has one, the line."""


class IndexMismatchError(CoragError):
    """A vector index does not fit: built by another embedder, half-written, or of an unknown version."""


class ModelError(CoragError):
    """A model, tokenizer or adapter is missing, damaged, or not what its name says."""


class MissingExtraError(CoragError, ImportError):
    """An optional dependency is not installed; the message gives the command that installs it."""


class ScoringError(CoragError):
    """A reranker returned values that cannot be ranked: NaN, infinite, or the wrong number of them."""


class BudgetError(CoragError):
    """A selection would cost more than its budget: a bug in a selector, never shown to the model."""


class ReaderError(CoragError):
    """A reader could not answer: its server is down, its model is missing, its reply is broken."""


class SummarizerError(CoragError):
    """A summarizer could not shorten texts: its server is down, its reply is broken."""

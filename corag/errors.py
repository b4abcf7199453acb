"""Errors a user can mend: each message names the value, the rule and the remedy.

The command line prints these without a traceback and exits with status 2. Anything else that
escapes is a bug in CORAG and keeps its traceback.
"""

from common.errors import CoragError as CoragError
from common.errors import DataError as DataError
from common.errors import InputError as InputError
from common.errors import ModelError as ModelError


class IndexMismatchError(CoragError):
    """A vector index does not fit: built by another embedder, half-written, or of an unknown version."""


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

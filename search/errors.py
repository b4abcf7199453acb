"""The one error of the search."""

from corag_base import CoragError


class Stop(Exception):  # noqa: N818  (a message to the core, not an error)
    """Thrown into a search that waits for values: end now, with what was found.

    Args:
        error: Why, if something failed; it goes into the result.
    """

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.error = error


class SearchError(CoragError, ValueError):
    """A problem, a setting or a scorer's answer breaks a rule; the message names value, rule and remedy."""

"""The one error of the search."""


class SearchError(ValueError):
    """A problem, a setting or a scorer's answer breaks a rule; the message names value, rule and remedy."""

"""What `corag`, `search` and `agent` share; it imports nothing."""


class CoragError(Exception):
    """Base of every error that CORAG raises on purpose, those of `search` and `agent` included."""

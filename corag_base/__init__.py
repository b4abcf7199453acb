"""What `corag`, `search` and `agent` share; it imports nothing."""


class CoragError(Exception):
    """Base of every error that CORAG raises on purpose, those of `search` and `agent` included.

    Its message is one line, also where it quotes a library whose message is several.
    """

    def __str__(self) -> str:
        return " ".join(line for line in map(str.strip, super().__str__().split("\n")) if line)

"""The root of all errors that are raised on purpose; each message names the value, the rule and the remedy."""


class CoragError(Exception):
    """Base of every error that `corag`, `agent` and `search` raise on purpose.

    Its message is one line, also where it quotes a library whose message is several.
    """

    def __str__(self) -> str:
        return " ".join(line for line in map(str.strip, super().__str__().split("\n")) if line)


class InputError(CoragError, ValueError):
    """A value given by the user breaks a rule: an empty question, a budget of 0, a broken line."""


class DataError(InputError):
    """A data folder or file cannot be used; the message names the file and, where it has one, the line."""


class ModelError(CoragError):
    """A model, tokenizer or checkpoint is missing, damaged, or not what its name says."""

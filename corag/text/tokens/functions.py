"""Token counts by functions: the user's own, an estimate, and an upper bound."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence, Sized
from functools import cache

import numpy as np
from numpy.typing import NDArray

from corag.errors import InputError

# English prose and code have about four bytes a token under common subword vocabularies. The estimate is higher than
# that, because the budget must hold.
_BYTES_PER_TOKEN = 3
_PARTS = re.compile(r"\d+|[^\W\d_]+|[^\w\s]|_")


class CallableCounter:
    """Counts with any function that maps a text to its number of tokens, or to its tokens."""

    def __init__(self, function: Callable[[str], object], *, name: str = "callable", exact: bool = True) -> None:
        self._function = function
        self.name = name
        self.exact = exact

    def count(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Return the number of tokens of each text, `[len(texts)]`.

        Raises:
            InputError: The function returned neither a whole number of at least 0 nor a sequence of tokens.
        """
        return np.array([self._count(text) for text in texts], dtype=np.int64)

    def _count(self, text: str) -> int:
        result = self._function(text)
        if isinstance(result, int | np.integer) and not isinstance(result, bool):
            number = int(result)
        elif (
            isinstance(result, Sized)
            # A transformers tokenizer called with a text returns a mapping: its length counts fields.
            and not isinstance(result, Mapping | str | bytes)
            and getattr(result, "ndim", 1) == 1
        ):
            number = len(result)
        else:
            number = -1
        if number < 0:
            raise InputError(
                f"token counter {self.name!r} returned {result!r:.80} for a text of {len(text)} characters; "
                "it must return a whole number of at least 0, or a sequence of tokens as tokenizer.tokenize does"
            )
        return number


@cache
def estimate() -> CallableCounter:
    """Estimates from bytes, words and digits, above the tokens of prose; see `estimated_tokens`."""
    return CallableCounter(estimated_tokens, name="estimate", exact=False)


@cache
def utf8_bytes() -> CallableCounter:
    """Counts a token for each UTF-8 byte, which no tokenizer of a language model exceeds; see `most_tokens`."""
    return CallableCounter(most_tokens, name="utf8-bytes", exact=False)


def estimated_tokens(text: str) -> int:
    """Estimate tokens on the high side: 3 UTF-8 bytes a token, or a word, mark or 1.5 digits a token if that is more.

    The second count is for tables of numbers, which have fewer bytes a token than prose. Text such as base64, emoji or
    rare scripts can have more tokens than this; `most_tokens` is never exceeded.
    """
    by_bytes = -(-_bytes(text) // _BYTES_PER_TOKEN)
    return max(by_bytes, sum(-(-2 * len(part) // 3) if part.isdigit() else 1 for part in _PARTS.findall(text)))


def most_tokens(text: str) -> int:
    """Return what no common tokenizer exceeds: one token for each UTF-8 byte, and one for a space put before the text.

    A token stands for at least one byte of the text as the tokenizer has normalised it. Normalisation can lengthen a
    text, so its longest common form counts.
    """
    if not text:
        return 0
    if text.isascii():
        return len(text) + 1
    forms = (text, text.lower(), unicodedata.normalize("NFC", text), unicodedata.normalize("NFKC", text))
    return 1 + max(map(_bytes, forms))


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))

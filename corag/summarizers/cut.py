"""Cut a text to a number of tokens, after a whole sentence if one fits, else after a whole word."""

from __future__ import annotations

import re
from collections.abc import Sequence

from corag.text.chunking import sentence_spans
from corag.types import TokenCounter

_WORD_END = re.compile(r"(?<=\S)(?=\s|\Z)")


def cut_to_tokens(text: str, tokens: TokenCounter, limit: int) -> str:
    """Return the longest prefix of a text with at most `limit` tokens; empty if no word fits.

    It ends with a sentence if at least one fits, else with a word, without trailing white space.
    """
    whole = text.rstrip()
    if _fits(whole, tokens, limit):
        return whole
    sentences = _longest(whole, [end for _, end in sentence_spans(whole)], tokens, limit)
    return sentences or _longest(whole, [match.end() for match in _WORD_END.finditer(whole)], tokens, limit)


def _longest(text: str, ends: Sequence[int], tokens: TokenCounter, limit: int) -> str:
    low, high = 0, len(ends)
    while low < high:
        middle = (low + high + 1) // 2
        if _fits(text[: ends[middle - 1]].rstrip(), tokens, limit):
            low = middle
        else:
            high = middle - 1
    return text[: ends[low - 1]].rstrip() if low else ""


def _fits(text: str, tokens: TokenCounter, limit: int) -> bool:
    return int(tokens.count([text])[0]) <= limit

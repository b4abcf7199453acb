"""In which script a text is written: where words end without a space, and what a model of English reads."""

from __future__ import annotations

import re
from collections.abc import Iterable

UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
"""Characters of scripts without spaces between words, as a range of a regular expression.

Thai, Lao, Burmese, Khmer, kana and Chinese characters.
"""
_RUN = re.compile(f"[{UNSPACED}]+")
_LETTERS = re.compile(r"[^\W\d_]+")
_LATIN = re.compile("[A-Za-z\u00c0-\u024f\u1e00-\u1eff]+")


def spaced_characters(text: str) -> str:
    """Return a text with spaces between the characters where none divides words, as MLQA counts words of an answer."""
    return _RUN.sub(lambda run: f" {' '.join(run[0])} ", text)


def unspaced(texts: Iterable[str]) -> bool:
    """Return whether at least a tenth of the characters of texts are of a script without spaces between words."""
    joined = "".join(texts)
    return 10 * sum(map(len, _RUN.findall(joined))) >= len(joined) > 0


def minilm_reads(texts: Iterable[str]) -> bool:
    """Return whether at least half of the letters of texts are Latin.

    MiniLM learned English. Of other languages in Latin letters it knows pieces of words, and ranks by them better than
    by chance; of other scripts it knows little more than single letters.
    """
    joined = " ".join(texts)
    if joined.isascii():
        return True
    letters, latin = (sum(map(len, of.findall(joined))) for of in (_LETTERS, _LATIN))
    return 2 * latin >= letters

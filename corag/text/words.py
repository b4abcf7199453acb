"""Scripts, and the words of a text as a ranking by words compares them: one normalisation for every script.

Words are compared without case, width, accents and vowel points, and by their stem where Snowball has one for their
script. Where no space divides words, and in Korean, which writes particles together with them, pairs of neighbouring
characters are the words, as in Lucene's `CJKAnalyzer`.

A number is one word however its thousands are divided (1200, 1,200, 1.200), and so is 10.0.0.7. What else holds a digit
or is composed is a word beside its parts, so that it is worth an exact match: 2024-05-01, max_connections, getUserById.
Words that are frequent in every text, as bm25s lists them for English and Russian, and single letters are left out.
"""

from __future__ import annotations

import importlib.util
import re
import runpy
import unicodedata
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from corag.ambient import watched
from corag.forks import lock_for_forks
from corag.text.tokens import minilm_vocabulary

UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
"""Characters of scripts without spaces between words, as a range of a regular expression.

Thai, Lao, Burmese, Khmer, kana and Chinese characters.
"""
UNSPACED_RUN = re.compile(f"[{UNSPACED}]+")
_LETTERS = re.compile(r"[^\W\d_]+")
_LATIN = re.compile("[A-Za-z\u00c0-\u024f\u1e00-\u1eff]+")
_PAIRED = re.compile(f"[{UNSPACED}\uac00-\ud7af]+")
_HUMPS = re.compile("[A-Z]?[a-z0-9]+|[A-Z0-9]+(?![a-z])|[A-Z]")
"""Parts of a word such as XMLHttpRequest."""
# Starts only where a word does, and gives nothing back: linear in the text.
_COMPOUND = re.compile(r"(?<![^\W_])[^\W_]++(?:(?:_++|[^\w\s])[^\W_]++)++")
_NUMBER = re.compile(r"(?<![\w.])\d+(?:[.,'\u2019]\d+)+(?!\w)")
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?: \d{3})+(?!\d)")
_EXACT = re.compile(rf"{_NUMBER.pattern}|{_GROUPED.pattern}|[^\W_]+")
_THOUSANDS = re.compile(r"(\d{1,3}(?:([.,'\u2019])\d{3})(?:\2\d{3})*)(?:[.,](\d+))?")
_DECIMAL = re.compile(r"(\d+)[.,](\d+)")
_DOTTED = re.compile(r"\d+(?:\.\d+)+")
_TATWEEL = "\u0640"
"""Lengthens Arabic words on paper."""
_LONG = 64
"""Characters of a word above which it has no stem."""

_LANGUAGES = (
    ("\u024f", "en"),
    ("\u0370", ""),
    ("\u03ff", "el"),
    ("\u052f", "ru"),
    ("\u058f", "hy"),
    ("\u05ff", ""),
    ("\u06ff", "ar"),
    ("\u08ff", ""),
    ("\u097f", "hi"),
    ("\u0b7f", ""),
    ("\u0bff", "ta"),
)
"""Last characters of scripts, and a language of each that Snowball and sentencex know.

Of the languages in Latin letters English is taken for granted.
"""


class _Characters(dict[int, "str | int | None"]):
    """A table for `str.translate` by a function of characters, filled as they occur."""

    def __init__(self, function: Callable[[str], str | None]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, point: int) -> str | None:
        self[point] = value = self._function(chr(point))
        return value


def _folded(character: str) -> str | None:
    """Return a character in lower case, a digit in ASCII; None for invisible ones and for Hebrew and Arabic points."""
    if unicodedata.category(character) == "Cf" or character == _TATWEEL or 10 <= unicodedata.combining(character) <= 35:
        return None
    return str(unicodedata.decimal(character, character))


def _of_word(character: str) -> str:
    """Return a character of words, which letters, digits and marks are, and a space for any other."""
    return character if unicodedata.category(character)[0] in "LNM" else " "


def _base(character: str) -> str | None:
    """Return None for a mark above or below a letter."""
    return None if unicodedata.combining(character) >= 200 else character


_FOLDED, _OF_WORDS, _BASE = _Characters(_folded), _Characters(_of_word), _Characters(_base)


def words(text: str) -> list[str]:
    """Return the words of a text in the form in which they are compared, more than one for one in the text if composed.

    The text need not be in a normal form of Unicode, and may hold anything.
    """
    text = unicodedata.normalize("NFKC", text).translate(_FOLDED)
    found = [grouped.replace(" ", "") for grouped in _GROUPED.findall(text)]

    def take(number: re.Match[str]) -> str:
        if (one := _one_number(number[0])) is None:
            return number[0]
        found.append(one)
        return " "

    text = _NUMBER.sub(take, text)
    for word in watched(text.translate(_OF_WORDS).split()):
        humps = _HUMPS.findall(word) if word.isascii() and not word.islower() and not word.istitle() else ()
        if len(humps) > 1:
            found += chain.from_iterable(map(_terms, map(str.casefold, humps)))
        found += _terms(word.casefold())
    found += (word.casefold() for word in _COMPOUND.findall(text) if "_" in word or _has_digit(word))
    return [word for word in found if word]


def exact_words(text: str) -> list[tuple[str, int, int]]:
    """Return the numbers and the parts with a digit that a text has, as `words` has them, with start and end in it."""
    # Signs of the same length in place of what is written together with them.
    spaced = _PAIRED.sub(lambda run: " " * len(run[0]), text)
    found = []
    for part in _EXACT.finditer(spaced):
        if _has_digit(part[0]):
            term = unicodedata.normalize("NFKC", part[0]).translate(_FOLDED)
            found.append((_one_number(term.replace(" ", "")) or term.replace(" ", "").casefold(), *part.span()))
    return found


def _terms(word: str) -> list[str]:
    """Return the stem of a word in lower case, or pairs of characters; nothing for a frequent word and a letter."""
    if word in _frequent() or (len(word) == 1 and word.isascii() and not word.isdigit()):
        return []
    if word.isascii() or not _PAIRED.search(word):
        return [_stem(word)]
    terms: list[str] = []
    end = 0
    for run in _PAIRED.finditer(word):
        if between := word[end : run.start()]:
            terms.append(_stem(between))
        terms += map("".join, pairwise(run[0])) if len(run[0]) > 1 else [run[0]]
        end = run.end()
    return [*terms, _stem(word[end:])] if end < len(word) else terms


def _has_digit(text: str) -> bool:
    return any(map(str.isdigit, text))


def _one_number(text: str) -> str | None:
    """Return a number without marks between its thousands, with a point before its decimals; None for a list of some.

    Numbers with points in other places, such as versions and addresses, are returned as they are.
    """
    if number := _THOUSANDS.fullmatch(text):
        whole = re.sub(r"\D", "", number[1])
        return f"{whole}.{number[3]}" if number[3] else whole
    if _DECIMAL.fullmatch(text):
        return text.replace(",", ".")
    return text if _DOTTED.fullmatch(text) else None


@cache
def _frequent() -> frozenset[str]:
    # The file alone: the package imports scipy, which a question would wait for.
    package = importlib.util.find_spec("bm25s")
    assert package is not None and package.origin is not None  # of the base install
    lists = runpy.run_path(str(Path(package.origin).with_name("stopwords.py")))
    return frozenset((*lists["STOPWORDS_EN"], *lists["STOPWORDS_RUSSIAN"]))


_one_stems = lock_for_forks()
"""The stemmers keep a cache of their own and are not made for threads."""


@lru_cache(maxsize=2**15)
def _stem(word: str) -> str:
    """Return the stem of a word in lower case, without accents; a word with a digit has none."""
    if len(word) > _LONG or _has_digit(word):
        return word
    language = language_of(word[0])
    if language == "en":
        word = _without_accents(word)
    if language:
        with _one_stems:
            word = _stemmer(language).stemWord(word)
    return _without_accents(word)


def language_of(character: str) -> str:
    """Return the language that what is written in a script is taken to be in, given a character; empty if unknown."""
    return next((language for last, language in _LANGUAGES if character <= last), "")


def _without_accents(word: str) -> str:
    if word.isascii():
        return word
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", word).translate(_BASE))


@lru_cache(maxsize=len(_LANGUAGES))
def _stemmer(language: str) -> Any:
    from Stemmer import Stemmer

    # Words are kept here.
    return Stemmer(language, 0)


def spaced_characters(text: str) -> str:
    """Return a text with spaces between the characters where none divides words, as MLQA counts words of an answer."""
    return UNSPACED_RUN.sub(lambda run: f" {' '.join(run[0])} ", text)


def unspaced(texts: Iterable[str]) -> bool:
    """Return whether at least a tenth of the characters of texts are of a script without spaces between words."""
    joined = "".join(texts)
    return 10 * sum(map(len, UNSPACED_RUN.findall(joined))) >= len(joined) > 0


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


def minilm_share(texts: Iterable[str]) -> float:
    """Return which share of the words of texts, from 0 to 1, MiniLM's vocabulary has whole; 1 without words.

    Words have at least three letters, all lower case, so that names do not count. Of English it has 85% and more, of
    source code 75%, of German, French and Spanish 30 to 50% (lab notebook).
    """
    whole, found = minilm_vocabulary(), _LETTERS.findall(" ".join(texts))
    known = [word in whole for word in found if len(word) > 2 and word == word.lower()]
    return sum(known) / len(known) if known else 1.0

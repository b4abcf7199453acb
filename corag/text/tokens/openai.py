"""Token counts for OpenAI's models, by the package tiktoken.

tiktoken fetches a vocabulary when it is first used and keeps it in the folder TIKTOKEN_CACHE_DIR.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag.errors import InputError, ModelError
from corag.optional import require

_MODEL = re.compile(r"(ft:)?(gpt-|chatgpt-|o[1-9](-|$)|text-embedding-|davinci|babbage)", re.IGNORECASE)
_URL = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"
_VOCABULARY = {"o200k_harmony": "o200k_base", "p50k_edit": "p50k_base"}
"""Encodings -> those whose vocabulary they share."""


class Tiktoken:
    """Counts as a model of OpenAI does, without special tokens; needs `pip install 'corag[tiktoken]'`.

    Args:
        model: Name of the model.
        encoding: Name of an encoding of tiktoken, instead of a model.

    Raises:
        InputError: tiktoken knows no such model or encoding.
        MissingExtraError: The package tiktoken is not installed.
        ModelError: The vocabulary is neither on this machine nor can be fetched.
    """

    exact = True

    def __init__(self, *, model: str | None = None, encoding: str | None = None) -> None:
        if (model is None) == (encoding is None):
            raise InputError("tiktoken takes a model or an encoding, such as tiktoken(model=gpt-4o); give one of them")
        found = encoding if model is None else encoding_name(model)
        if found is None:
            raise InputError(
                f"tiktoken {require('tiktoken', 'tiktoken').__version__} does not know the model {model!r}; update it "
                "(pip install -U tiktoken), or name the model's encoding: tiktoken(encoding=o200k_base)"
            )
        self._encoding = _load(found)
        self.name = f"tiktoken(encoding={self._encoding.name})"

    def count(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Return the number of tokens of each text, `[len(texts)]`.

        Raises:
            InputError: A text is not valid Unicode.
        """
        try:
            # tiktoken would replace lone surrogates without a word.
            for text in texts:
                text.encode()
        except (AttributeError, UnicodeEncodeError) as error:
            raise InputError(
                f"a text cannot be tokenised ({error}); texts must be strings of valid Unicode without lone surrogates"
            ) from error
        return np.array([len(one) for one in self._encoding.encode_ordinary_batch(list(texts))], dtype=np.int64)


def is_openai_model(name: str) -> bool:
    """Return whether a name is one of OpenAI's own, such as gpt-4o."""
    return _MODEL.match(name) is not None and "/" not in name


def encoding_name(model: str) -> str | None:
    """Return the encoding of a model; None for one that the installed tiktoken does not know."""
    try:
        return str(require("tiktoken", "tiktoken").encoding_name_for_model(model.lower()))
    except KeyError:
        return None


def is_at_hand(encoding: str) -> bool:
    """Return whether the vocabulary of an encoding is on this machine, where tiktoken keeps those it has fetched."""
    return (_cache() / hashlib.sha1(_URL.format(_VOCABULARY.get(encoding, encoding)).encode()).hexdigest()).is_file()


def _cache() -> Path:
    for name in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"):
        if name in os.environ:
            return Path(os.environ[name])
    return Path(tempfile.gettempdir()) / "data-gym-cache"


@lru_cache(maxsize=4)
def _load(encoding: str) -> Any:
    tiktoken = require("tiktoken", "tiktoken")
    if encoding not in (names := tiktoken.list_encoding_names()):
        raise InputError(f"tiktoken has no encoding {encoding!r}; its encodings are {', '.join(sorted(names))}")
    try:
        return tiktoken.get_encoding(encoding)
    except (OSError, ValueError) as error:  # those of requests are OSErrors
        raise ModelError(
            f"the vocabulary of tiktoken's encoding {encoding!r} is not in {_cache()} and cannot be fetched "
            f"({type(error).__name__}); where there is a network, run: TIKTOKEN_CACHE_DIR=FOLDER python -c "
            f"\"import tiktoken; tiktoken.get_encoding('{encoding}')\", bring FOLDER here and set TIKTOKEN_CACHE_DIR "
            "to it; or count with tokenizer estimate"
        ) from error

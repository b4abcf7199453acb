"""Token counts under the answering model's tokenizer; `corag.tokens` makes counters by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag.errors import InputError
from corag.text.tokens.files import TokenizerCounter as TokenizerCounter
from corag.text.tokens.files import encode as encode
from corag.text.tokens.files import load_tokenizer as load_tokenizer
from corag.text.tokens.files import model_folder as model_folder
from corag.text.tokens.functions import CallableCounter as CallableCounter
from corag.text.tokens.functions import estimated_tokens as estimated_tokens
from corag.types import TokenCounter


def token_counts(tokens: TokenCounter, texts: Sequence[str]) -> NDArray[np.int64]:
    """Return the tokens of each text, `[len(texts)]`, by a counter that may be the user's own.

    Raises:
        InputError: It returns something else than as many whole numbers of at least 0.
    """
    counts = tokens.count(texts)
    try:
        found: NDArray[Any] = np.asarray(counts)
    except ValueError:
        found = np.empty(0)
    if found.shape != (len(texts),) or found.dtype.kind not in "iu" or (found < 0).any():
        raise InputError(
            f"token counter {tokens.name!r} returned {counts!r:.80} for {len(texts)} texts; it must return an array of "
            "as many whole numbers of at least 0"
        )
    return found.astype(np.int64)


def counts_exactly(tokens: TokenCounter, text: str) -> bool:
    """Return whether a counter counts a text as the answering model does, without an estimate for any part of it."""
    if isinstance(tokens, TokenizerCounter):
        return tokens.exact and tokens.counts_exactly(text)
    return tokens.exact

"""Token counts under the answering model's tokenizer; `corag.tokens` makes counters by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag.checks import MOST_TOKENS
from corag.errors import InputError
from corag.text.tokens.counters import CallableCounter as CallableCounter
from corag.text.tokens.counters import TokenizerCounter as TokenizerCounter
from corag.text.tokens.counters import encode as encode
from corag.text.tokens.counters import estimated_tokens as estimated_tokens
from corag.text.tokens.counters import load_tokenizer as load_tokenizer
from corag.text.tokens.counters import model_folder as model_folder
from corag.types import TokenCounter


def token_counts(tokens: TokenCounter, texts: Sequence[str]) -> NDArray[np.int64]:
    """Return the tokens of each text, `[len(texts)]`, by a counter that may be the user's own.

    Raises:
        InputError: It returns something else than as many whole numbers of at least 0.
    """
    counts = tokens.count(texts)
    try:
        checked: NDArray[Any] = np.asarray(counts)
    except ValueError:
        checked = np.empty(0)
    if (
        checked.shape != (len(texts),)
        or checked.dtype.kind not in "iu"
        or not ((checked >= 0) & (checked <= MOST_TOKENS)).all()
    ):
        raise InputError(
            f"token counter {tokens.name!r} returned {counts!r:.80} for {len(texts)} texts; it must return an array of "
            "as many whole numbers from 0 to 10^12"
        )
    return checked.astype(np.int64)

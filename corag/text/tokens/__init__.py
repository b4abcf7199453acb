"""Token counts under the answering model's tokenizer; `corag.tokens` makes counters by name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from corag.text.tokens.counters import CallableCounter as CallableCounter
from corag.text.tokens.counters import TokenizerCounter as TokenizerCounter
from corag.text.tokens.counters import checked_counts
from corag.text.tokens.counters import encode as encode
from corag.text.tokens.counters import estimated_tokens as estimated_tokens
from corag.text.tokens.counters import load_tokenizer as load_tokenizer
from corag.text.tokens.counters import model_folder as model_folder
from corag.types import TokenCounter


def token_counts(tokens: TokenCounter, texts: Sequence[str]) -> NDArray[np.int64]:
    """Return the tokens of each text, `[len(texts)]`, by a counter that may be the user's own."""
    return checked_counts(tokens.name, tokens.count(texts), len(texts))

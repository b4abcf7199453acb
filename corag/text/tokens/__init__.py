"""Token counts under the answering model's tokenizer; `corag.tokens` makes counters by name."""

from __future__ import annotations

from corag.text.tokens.files import TokenizerCounter as TokenizerCounter
from corag.text.tokens.files import encode as encode
from corag.text.tokens.files import load_tokenizer as load_tokenizer
from corag.text.tokens.files import model_folder as model_folder
from corag.text.tokens.functions import CallableCounter as CallableCounter
from corag.text.tokens.functions import estimated_tokens as estimated_tokens
from corag.types import TokenCounter


def counts_exactly(tokens: TokenCounter, text: str) -> bool:
    """Return whether a counter counts a text as the answering model does, without an estimate for any part of it."""
    if isinstance(tokens, TokenizerCounter):
        return tokens.exact and tokens.counts_exactly(text)
    return tokens.exact

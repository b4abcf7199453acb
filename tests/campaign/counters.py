"""Nineteen ways to count tokens: exact, on the high side, for nothing, huge, and many that do not add up."""

import corag
from corag.text.tokens import CallableCounter
from tests.corag.text.tokens.worlds import byte_level, made_encoding, unigram
from tests.corag.worlds import COUNTERS as DOZEN

COUNTERS = {
    counter.name: counter
    for counter in (
        *DOZEN,
        corag.tokens("estimate"),
        byte_level(),
        unigram(),
        CallableCounter(made_encoding().encode_ordinary, name="tiktoken/made"),
        CallableCounter(lambda text: 0, name="nothing"),
        CallableCounter(lambda text: len(text) * 10**9, name="huge"),
        CallableCounter(
            lambda text: len(f"<|user|>{text}<|end|>\n<|assistant|>".split("|")) + len(text), name="template"
        ),
    )
}
"""Counter by name; the first dozen are those of the other tests."""

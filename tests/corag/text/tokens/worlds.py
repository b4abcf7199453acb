"""Small tokenizers of every kind, and texts that tokenizers disagree about."""

import base64
from functools import cache
from pathlib import Path

from hypothesis import strategies as st
from tokenizers import Tokenizer

from corag.text.tokens import TokenizerCounter
from corag.types import Answer

PROSE = [
    "The Danube is the second-longest river in Europe, after the Volga in Russia.",
    "It flows through ten countries, more than any other river in the world.",
    "def area(width: int, height: int) -> int:\n    return width * height\n",
    "Its mouth, the delta of the Danube, lies in Romania and Ukraine; 2,850 km from the source.",
    "多瑙河是欧洲第二长河。 Она протекает через десять стран.",
]
CONTROL = "<|end|>"
FOLDER = Path(__file__).parent
ASKING = FOLDER / "asking" / "tokenizer.json"
"""A tokenizer of white-space words whose file asks for special tokens, truncation to 3 and padding to 8."""


@cache
def counter(name):
    """A counter by the tokenizer of a file here; their vocabularies are those of the first texts of `PROSE`.

    `byte-level` merges bytes, as GPT-2, Llama 3 and Qwen do. `unigram` takes the most probable pieces, as T5 and XLM-R
    do; what it does not know is one token, however long. `by-score` merges characters and falls back to bytes, as
    Llama 2 and Gemma do. `words` knows a few words, and one token for all others.
    """
    return TokenizerCounter(Tokenizer.from_file(str(FOLDER / f"{name}.json")), name=name)


def made_encoding(name="made"):
    """Return an encoding of tiktoken that knows all bytes and a few words."""
    import tiktoken

    pieces = [bytes([byte]) for byte in range(256)] + [b"th", b"the", b" the", b"er", b"in", b" i", b" in", b"\n\n"]
    return tiktoken.Encoding(
        name,
        pat_str=r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        mergeable_ranks={piece: rank for rank, piece in enumerate(pieces)},
        special_tokens={CONTROL: 1000},
    )


AWKWARD = st.one_of(
    st.sampled_from(PROSE),
    st.binary(min_size=30, max_size=300).map(lambda data: base64.b64encode(data).decode()),
    st.text(st.sampled_from("🙂🧑‍🚀🏳️‍🌈🇩🇪👍🏽"), min_size=1, max_size=40),
    st.text(st.sampled_from("的一是不了人我在有他这为之大来以个中上们"), min_size=1, max_size=80),
    st.text(st.sampled_from("ابتثجحخدذرزسشصضطظعغفقكلمنهوي "), min_size=1, max_size=80),
    st.text(st.sampled_from("กขคงจฉชซญฐดตถทธนบปผฝพฟภมยรลวศษสหอฮะาิีึืุู"), min_size=1, max_size=80),
    st.text(st.sampled_from("(){}[];=<>+-*/%&|^~!\t\n  abcxyz_0123456789"), min_size=1, max_size=120),
    st.text(st.sampled_from("abcdefghij"), min_size=101, max_size=160),
    st.sampled_from([CONTROL, f"so {CONTROL} it {CONTROL * 5}", "</context>", "\n\n\n", "   ", "ﷺ ﬁ ½ Å 한국어"]),
    st.text(max_size=60),
).filter(lambda text: text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text))
"""Base64, emoji, Chinese, Arabic and Thai without spaces, code, long words, control tokens, any characters."""

TEMPLATE = "<|user|>Use what follows.\n<context>\n{context}\n</context>\n\nQuestion: {query}<|end|>\n<|assistant|>"


class ChatReader:
    """Sends a prompt to nobody, and remembers it."""

    name = "chat"

    def __init__(self, tokens, window_tokens=None, max_answer_tokens=16, served=None):
        self.served = served
        self.tokens, self.window_tokens, self.max_answer_tokens = tokens, window_tokens, max_answer_tokens
        self.sent: list[str] = []

    def prompt(self, query, context):
        # As readers of chat models do: a control token in a context is text.
        return TEMPLATE.format(query=query, context=context.replace(CONTROL, "< |end|>"))

    def prompt_tokens(self, query, context=""):
        return int(self.tokens.count([self.prompt(query, context)])[0])

    def answer(self, query, context):
        self.sent.append(self.prompt(query, context))
        return Answer("so it is", prompt_tokens=self.served)

"""Token counts under the answering model's tokenizer; `corag.tokens` makes counters by name."""

from corag.text.tokens.counters import CallableCounter as CallableCounter
from corag.text.tokens.counters import TokenizerCounter as TokenizerCounter
from corag.text.tokens.counters import encode as encode
from corag.text.tokens.counters import estimated_tokens as estimated_tokens
from corag.text.tokens.counters import load_tokenizer as load_tokenizer
from corag.text.tokens.counters import model_folder as model_folder
from corag.text.tokens.counters import token_counts as token_counts

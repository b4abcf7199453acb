"""Readers: question and context in, answer out.

Each class is what `corag.reader` builds by name; its keyword arguments are the settings.
"""

from typing import TYPE_CHECKING

from corag.optional import lazily
from corag.registry import READERS

if TYPE_CHECKING:
    from corag.readers.cached import CachedReader as CachedReader
    from corag.readers.causal_lm import TransformersReader as TransformersReader
    from corag.readers.extractive import ExtractiveReader as ExtractiveReader
    from corag.readers.minilm_reader import MiniLMReader as MiniLMReader
    from corag.readers.ollama import OllamaReader as OllamaReader

__getattr__, __dir__ = lazily(__name__, READERS.places | {"CachedReader": "corag.readers.cached"})

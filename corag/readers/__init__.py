"""Readers: question and context in, answer out.

Each class is what `corag.reader` builds by name; its keyword arguments are the settings.
"""

import typing

from corag import optional, registry

if typing.TYPE_CHECKING:
    from corag.readers.cached import CachedReader as CachedReader
    from corag.readers.causal_lm import TransformersReader as TransformersReader
    from corag.readers.extractive import ExtractiveReader as ExtractiveReader
    from corag.readers.minilm_reader import MiniLMReader as MiniLMReader
    from corag.readers.ollama import OllamaReader as OllamaReader

__getattr__, __dir__ = optional.lazily(__name__, registry.READERS.places | {"CachedReader": "corag.readers.cached"})

"""Readers: question and context in, answer out.

Each class is what `corag.reader` builds by name; its keyword arguments are the settings.
"""

import typing

from corag import optional, registry

if typing.TYPE_CHECKING:
    from corag.readers.chat import OllamaReader as OllamaReader
    from corag.readers.chat import OpenAIReader as OpenAIReader
    from corag.readers.extractive import ExtractiveReader as ExtractiveReader
    from corag.readers.wrappers import CachedReader as CachedReader
    from corag.readers.wrappers import SelfConsistentReader as SelfConsistentReader

__getattr__, __dir__ = optional.lazy_exports(
    __name__, registry.READERS.import_paths | {"CachedReader": "corag.readers.wrappers"}
)

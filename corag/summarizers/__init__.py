"""Summarizers: texts and a token limit in, a shorter text out.

Each class is what `corag.summarizer` builds by name; its keyword arguments are the settings.
"""

import typing

from corag import optional, registry

if typing.TYPE_CHECKING:
    from corag.summarizers.chat import OllamaSummarizer as OllamaSummarizer
    from corag.summarizers.chat import OpenAISummarizer as OpenAISummarizer
    from corag.summarizers.extractive import ExtractiveSummarizer as ExtractiveSummarizer

__getattr__, __dir__ = optional.lazy_exports(__name__, registry.SUMMARIZERS.import_paths)

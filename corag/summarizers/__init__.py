"""Summarizers: texts and a token limit in, a shorter text out.

Each class is what `corag.summarizer` builds by name; its keyword arguments are the settings.
"""

from typing import TYPE_CHECKING

from corag.optional import lazily
from corag.registry import SUMMARIZERS

if TYPE_CHECKING:
    from corag.summarizers.extractive import ExtractiveSummarizer as ExtractiveSummarizer
    from corag.summarizers.ollama import OllamaSummarizer as OllamaSummarizer

__getattr__, __dir__ = lazily(__name__, SUMMARIZERS.places)

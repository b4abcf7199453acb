"""Summarizers: texts and a token limit in, a shorter text out. `corag.summarizer` builds them by name."""

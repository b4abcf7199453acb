"""Readers: question and context in, answer out. `corag.reader` builds them by name."""

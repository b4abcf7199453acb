"""Rerankers: what a text, or an ordered combination of chunks, is worth for a query, in [0, 1]."""

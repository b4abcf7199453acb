"""Comparisons of selectors and rerankers."""

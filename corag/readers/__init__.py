"""Readers: question and context in, answer out."""

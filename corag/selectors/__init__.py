"""Selectors: candidates and a budget in, a selection out."""

"""Kinds of questions, and which of them no choice may look at; see `docs/experiments.md`, "Sealed questions"."""

"""Configurations labelled on kinds of questions, and one chosen for a user's own: `corag tune`."""

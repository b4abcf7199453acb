"""Data: pools of candidates, splits, stress sets."""

"""Label tables, made comparable."""

from experiments.labels.table import read_questions, read_table

HISTORY = ("encoded", "spent", "independent_ratio", "cross_encoder_ratio")
"""Counts that depend on what was remembered: what a run that was broken off had encoded is encoded again."""


def timeless(rows):
    """Rows without the one figure that differs from run to run."""
    return [{name: value for name, value in row.items() if name != "latency_ms"} for row in rows]


def tables(path):
    """Rows, questions, metadata and counts of tokens of a table, without what differs from run to run."""
    (rows, metadata), (questions, _) = read_table(path), read_questions(path)
    tokens = {name: number for name, number in metadata.pop("tokens").items() if name not in HISTORY}
    return timeless(rows), questions, metadata, tokens

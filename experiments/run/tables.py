"""How the figures of a comparison are shown: headings, digits, and a table that has room for many methods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from corag.cli.console import say, stdout, table

COLUMNS = {
    "rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L", "f1": "F1", "em": "exact match",
    "evidence_recall": "evidence recall", "evidence_precision": "evidence precision", "full_evidence": "full evidence",
    "cost_tokens": "tokens", "chunks": "chunks", "over_budget": "over budget", "value": "value",
    "orders_scored": "orders scored", "latency_ms_median": "ms, median", "latency_ms_p95": "ms, 95%",
}  # fmt: skip
"""Figures that every result has, and their headings."""
MORE_COLUMNS = {
    "sub_em": "substring match", "context_recall": "context recall", "tes": "TES", "diff_k": "diff-k",
    "redundancy": "redundancy", "change_in_tokens": "change in tokens, %", "answer_similarity": "answer similarity",
    "failed": "failed",
}  # fmt: skip
"""Figures that results of older versions lack."""
NARROW_COLUMNS = {
    "cost_tokens": "tokens", "chunks": "chunks", "evidence_recall": "recall", "evidence_precision": "prec.",
    "full_evidence": "full", "context_recall": "context", "rougeL": "R-L", "f1": "F1", "sub_em": "subEM", "tes": "TES",
    "diff_k": "diff-k", "redundancy": "redund.", "change_in_tokens": "CiT %", "answer_similarity": "CosSim",
    "orders_scored": "orders", "latency_ms_median": "ms", "latency_ms_p95": "ms 95%", "failed": "failed",
}  # fmt: skip
"""What is shown of many methods, one line each."""
FORMATS = {
    "cost_tokens": ".1f", "chunks": ".2f", "orders_scored": ".1f", "latency_ms_median": ".1f", "latency_ms_p95": ".1f",
    "diff_k": ".2f", "change_in_tokens": ".0f",
}  # fmt: skip

MOST_COLUMNS = 8
"""More methods than this stand below each other."""


def columns_of(result: Mapping[str, Any]) -> dict[str, str]:
    """Return the figures that every method of a result has, and their headings."""
    have = set.intersection(*(set(row) for row in result["methods"]))
    return {name: heading for name, heading in (COLUMNS | MORE_COLUMNS).items() if name in have}


def figure_of(row: Mapping[str, Any], name: str, num_queries: int) -> Any:
    """Return a figure of a method; None where it is missing, and where the method failed on every question."""
    return None if name != "failed" and row.get("failed", 0) >= num_queries else row.get(name)


def format_figure(name: str, value: float | None) -> str:
    """Return a figure as tables show it; a dash for one that no question has."""
    if value is None:
        return "-"
    return format(value, FORMATS.get(name, ".3f")) if isinstance(value, float) else str(value)


def show(result: Mapping[str, Any], title: str) -> None:
    """Print a result: a column for each method, or where there are many a line for each; then what went wrong."""
    console, methods = stdout(), result["methods"]
    if len(methods) > MOST_COLUMNS:
        # Cells that are cut or folded cannot be read; a line that is too long can be scrolled.
        console.width = max(console.width, 200)
        lines = [
            {"method": row["method"]}
            | {name: format_figure(name, figure_of(row, name, result["queries"])) for name in NARROW_COLUMNS}
            for row in methods
        ]
        console.print(table(lines, {"method": "", **NARROW_COLUMNS}, title=title))
    else:
        names = [row["method"] for row in methods]
        lines = [
            {"figure": heading}
            | {row["method"]: format_figure(name, figure_of(row, name, result["queries"])) for row in methods}
            for name, heading in columns_of(result).items()
        ]
        console.print(table(lines, {"figure": "", **dict(zip(names, names, strict=True))}, title=title))
    for row in methods:
        if row.get("failed"):
            say(
                f"{row['method']} failed on {row['failed']} of {result['queries']} questions; the first: {row['error']}"
            )
    for name, reason in result.get("left_out", {}).items():
        say(f"{name} is left out: {reason}")

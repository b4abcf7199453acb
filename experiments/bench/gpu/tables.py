"""The result as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TITLES = {
    "parity": "Parity with fp32 on the CPU",
    "speed": "Tokens a second",
    "orders": "Searches: medians over questions",
    "label": "Labelling",
    "train_agent": "Training of the agent",
    "train_head": "Training of a reranker head",
}
SKIPPED = ("weights_sha256", "versions", "stages")


def tables(result: Mapping[str, Any]) -> str:
    """Return a table for each stage, with what it took and what went wrong."""
    packages = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    facts = [f"- {name}: {value}" for name, value in result.items() if name not in SKIPPED]
    parts = ["# Benchmark\n", *facts, f"- packages: {packages}", ""]
    for name, stage in result["stages"].items():
        parts += [f"## {TITLES[name]}\n", *_table(stage["rows"]), ""]
        memory = [f"{key.replace('_', ' ')} {stage[key]}" for key in sorted(stage) if key.endswith("_gb")]
        parts.append("; ".join([f"{stage['seconds']} s", *memory]) + "\n")
        if "error" in stage:
            parts.append(f"**Not finished:** {stage['error']}\n")
    return "\n".join(parts)


def _table(rows: list[Mapping[str, Any]]) -> list[str]:
    if not rows:
        return []
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [columns, ["---"] * len(columns), *([_cell(row.get(name)) for name in columns] for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)

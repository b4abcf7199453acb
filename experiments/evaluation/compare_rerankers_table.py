"""The comparison of rerankers as Markdown, and its place in a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from corag.errors import DataError
from experiments.run.journal import write_atomically

BEGIN, END = "<!-- table -->", "<!-- /table -->"
FIGURES = {
    "full_evidence": "full evidence", "evidence_recall": "recall", "evidence_precision": "precision",
    "cost_tokens": "tokens", "f1": "F1", "em": "exact match",
}  # fmt: skip
"""Figures of the table, and their headings."""
DIGITS = {"cost_tokens": ".0f"}


def table_of(result: Mapping[str, Any]) -> str:
    """Return the tables of a comparison, see `experiments.evaluation.compare_rerankers`: figures, lead, diversity."""
    config = result["config"]
    budgets = " / ".join(str(budget) for budget in config["budgets"])
    parts = [
        f"Two figures in a cell are those at {budgets} tokens; answers by `{config['reader']}`. The ceiling is the "
        "share of the questions whose evidence fits the budget at all.",
        _markdown(["questions", "reranker", "selector", *FIGURES.values()], _figure_rows(result)),
        *(f"`{pair}` searches as `{selector}`." for pair, selector in config["instead"].items()),
        f"`{config['challenger']}` against `{config['baseline']}`, question by question, with 95% intervals by "
        "bootstrap:",
        _markdown(["questions", "budget", "full evidence", "tokens", "F1"], _lead_rows(result)),
        "How often each reranker gives the best answer F1 of all rerankers (a tie is divided among the tied), and what "
        "an oracle gains that picks the best one for each question over the best single one:",
        _markdown(
            [
                "selector", "budget", "questions", *config_names(result), "best single", "its F1", "oracle", "gain",
                "answers differ",
            ],
            _diversity_rows(result),
        ),
    ]  # fmt: skip
    return "\n\n".join(parts)


def config_names(result: Mapping[str, Any]) -> list[str]:
    """Return the names of the rerankers that were compared."""
    return list(result["diversity"][0]["shares"])


def replace_table(page: Path, table: str) -> None:
    """Put a table between the markers of a page; all else stays as it is.

    Raises:
        DataError: The page cannot be read, or does not have both markers once, in their order.
    """
    try:
        text = page.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise DataError(f"{page} cannot be read: {error}; name a Markdown file") from error
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in after:
        raise DataError(f"{page} must have one line {BEGIN} and below it one line {END}; put them where the table goes")
    write_atomically(page, f"{before}{BEGIN}\n\n{table}\n\n{END}{after}")


def _figure_rows(result: Mapping[str, Any]) -> list[list[str]]:
    rows = []
    for source in result["sources"]:
        name = f"{source['name']}: {source['questions']}"
        by_budget = [{method["method"]: method for method in entry["methods"]} for entry in source["budgets"]]
        for label in by_budget[0]:
            reranker, selector = label.rsplit(" ", 1)
            cells = [
                " / ".join(format(float(methods[label][figure]), DIGITS.get(figure, ".3f")) for methods in by_budget)
                for figure in FIGURES
            ]
            rows.append([name, reranker, selector, *cells])
            name = ""
        ceiling = " / ".join(f"{entry['ceiling']:.3f}" for entry in source["budgets"])
        rows.append(["", "ceiling", "", ceiling, *[""] * (len(FIGURES) - 1)])
    return rows


def _lead_rows(result: Mapping[str, Any]) -> list[list[str]]:
    return [
        [
            f"{source['name']}: {source['questions']}",
            str(entry["budget_tokens"]),
            f"{entry['lead']['full_evidence']:+.3f}",
            f"{entry['lead']['share_of_tokens']:.0%}",
            f"{entry['lead']['f1']:+.3f} ({entry['lead']['f1_low']:+.3f} to {entry['lead']['f1_high']:+.3f})",
        ]
        for source in result["sources"]
        for entry in source["budgets"]
    ]


def _diversity_rows(result: Mapping[str, Any]) -> list[list[str]]:
    return [
        [
            entry["selector"],
            str(entry["budget_tokens"]),
            f"{entry['questions_of']}: {entry['questions']}",
            *(f"{share:.0%}" for share in entry["shares"].values()),
            entry["best"],
            f"{entry['best_mean']:.3f}",
            f"{entry['oracle_mean']:.3f}",
            f"{entry['gain']:+.0%} ({entry['low']:+.0%} to {entry['high']:+.0%})",
            f"{entry['differ']:.0%}",
        ]
        for entry in result["diversity"]
    ]


def _markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)

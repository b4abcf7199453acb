"""The HTML report: a verdict, quality against tokens, the questions won and lost, and all figures; one file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corag.checks import check_count
from corag.errors import DataError, InputError
from corag.reply import Reply
from experiments.data.config import comma_separated
from experiments.run.drawing import MAX_CHILDREN_DRAWN, quality_plot, tree_plot
from experiments.run.headline import MOST_CASES, MOST_QUESTIONS, Case, Headline, Rows, cases, headline, read_rows
from experiments.run.journal import PAGE, output_file, write_atomically
from experiments.run.page import Cell, Drawing, Table, render
from experiments.run.tables import FIGURES, MOST_COLUMNS, Result, figure_of, figures_of, remarks

REPORT_PANELS = ("f1", "evidence_recall")
"""What figures show against tokens: the one that methods are compared by leads, others are folded."""
QUALITY = (
    "One line per method, one mark per budget. Up is better, left is cheaper. Bars: 95% intervals over resampled "
    "questions, where the rows of single questions are there."
)
TREE = (
    "Each node adds one candidate (numbered by the retriever's rank) to its parent's order; below it the value on the "
    "search's scale, on which this question's single candidates span 0 to 1. Orange: the chosen order. Of each node's "
    f"children the best {MAX_CHILDREN_DRAWN} are drawn."
)
"""Captions."""


@dataclass(frozen=True)
class ReportConfig:
    """Draw one HTML report from results of `corag evaluate`.

    Attributes:
        results: JSON files of `corag evaluate --out`, separated by commas; one per budget makes a curve.
        out: HTML file to write.
        title: Heading of the report.
    """

    results: str
    out: str = "runs/report.html"
    title: str = "CORAG: chunks chosen under a token budget"


def report(config: ReportConfig) -> Path:
    """Draw the report that a config describes; return its path."""
    if not (paths := [Path(name) for name in comma_separated(config.results)]):
        raise InputError("results is empty; give at least one JSON file that `corag evaluate --out` wrote")
    if len(set(paths)) < len(paths):
        raise InputError(f"results is {config.results!r}; give each file once")
    out, results = output_file(config.out, PAGE), [read_result(path) for path in paths]
    rows = [read_rows(path, result) for path, result in zip(paths, results, strict=True)]
    return write_report(out, results, rows, title=config.title)


def read_result(path: Path) -> dict[str, Any]:
    """Read what `corag evaluate --out` wrote; anything else, or a result of no questions, is a `DataError`."""
    try:
        result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        lacking = {"methods", "budget_tokens", "queries", "split", "versions"} - result.keys()
        if lacking or not result["methods"]:
            raise ValueError(f"it lacks {', '.join(sorted(lacking)) or 'methods'}")
        for name, kind in (("methods", list), ("versions", dict), ("split", str), ("measures", list)):
            if not isinstance(result.get(name, kind()), kind):
                raise ValueError(f"{name} is {result[name]!r:.80}")
        for name in ("queries", "budget_tokens"):
            check_count(name, result[name], "a report needs at least one question")
        required = {"method", *(name for name, figure in FIGURES.items() if not figure.optional)}
        for row in result["methods"]:
            if lacking := required - row.keys():
                raise ValueError(f"a method lacks {', '.join(sorted(lacking))}")
            _check_figures(row, [*FIGURES, *map(str, result.get("measures", ()))])
        names = [row["method"] for row in result["methods"]]
        if len(set(names)) < len(names):
            raise ValueError(f"a method stands twice among {', '.join(names)}")
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path} is not a result of `corag evaluate --out` ({error}); evaluate again") from error
    return result


def _check_figures(row: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raise `ValueError` for a method without a name, or with a figure that is no finite number."""
    if not isinstance(row["method"], str):
        raise ValueError(f"a method is called {row['method']!r:.80}")
    for name in names:
        value = row.get(name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if value is not None and not is_number:
            raise ValueError(f"{name} of method {row['method']!r} is {value!r:.80}")


def write_report(
    path: Path,
    results: Sequence[Result],
    rows: Sequence[Rows | None] = (),
    *,
    title: str,
    reply: Reply | None = None,
) -> Path:
    """Write results of comparisons on the same questions, one per budget, as HTML, with its figures as SVG beside it.

    Args:
        path: The page.
        results: What `corag evaluate` wrote.
        rows: The rows of each result's questions, where they are known: then there are intervals, and the questions
            that were won and lost.
        title: Heading of the page.
        reply: A reply by method `corag`, whose policy tree is drawn.
    """
    both = sorted(zip(results, rows or [None] * len(results), strict=True), key=lambda pair: pair[0]["budget_tokens"])
    ordered, of_questions = [result for result, _ in both], [of_one for _, of_one in both]
    head = headline(ordered, of_questions)
    panels = [head.figure, *(name for name in REPORT_PANELS if name != head.figure and _known(ordered, name))]
    drawings = {
        name: Drawing(
            f"{FIGURES[name].heading} against tokens",
            quality_plot({"": ordered}, [name], head.intervals, narrow=True),
            QUALITY,
        )
        for name in panels
    }
    if reply is not None and reply.selection.trace.result is not None and reply.selection.trace.result.tree is not None:
        drawings["tree"] = Drawing("One policy tree", tree_plot(reply), TREE)
    first = ordered[0]
    page = render(
        "report.html",
        title=title,
        verdict=head.verdict,
        summary=f"{first['queries']} questions of split {first['split']}.",
        lead=drawings[head.figure],
        headline=head.table,
        remarks=remarks(ordered),
        contests=_contests(ordered, of_questions, head),
        folded=[*(drawings[name] for name in panels[1:]), *(_table(result) for result in ordered)],
        tree=drawings.get("tree"),
        example=reply.to_dict() if reply is not None else None,
        note="Versions: " + ", ".join(f"{name} {version}" for name, version in first["versions"].items()),
    )
    write_atomically(path, page)
    for name, drawing in drawings.items():
        write_atomically(path.with_name(f"{path.stem}-{'quality' if name == head.figure else name}.svg"), drawing.svg)
    return path


def _known(results: Sequence[Result], name: str) -> bool:
    return any(row.get(name) is not None for result in results for row in result["methods"])


def _contests(results: Sequence[Result], rows: Sequence[Rows | None], head: Headline) -> list[dict[str, Any]]:
    """Return for each budget the questions on which the challenger and the best other method differ."""
    leads = {lead.budget: lead for lead in head.leads}
    found = []
    for result, of_questions in zip(results, rows, strict=True):
        lead = leads.get(result["budget_tokens"])
        if lead is None or of_questions is None:
            continue
        every = cases(result, of_questions, lead, head.figure)
        won = [case for case in every if case.difference > 0]
        lost = [case for case in reversed(every) if case.difference < 0]
        found.append(
            {
                "title": f"{lead.budget} tokens: {len(won)} won, {len(lost)} lost, "
                f"{result['queries'] - len(every)} alike",
                "lead": lead,
                "figure": FIGURES[head.figure].heading,
                "parts": [
                    {"name": name, "cases": _with_contexts(part)}
                    for name, part in (("Won", won), ("Lost", lost))
                    if part
                ],
                "list": every[:MOST_QUESTIONS],
                "left_out": max(0, len(every) - MOST_QUESTIONS),
            }
        )
    return found


def _with_contexts(of_one_sort: Sequence[Case]) -> list[Case]:
    return [case for case in of_one_sort[:MOST_CASES] if case.ours.chunks or case.theirs.chunks]


def _table(result: Result) -> Table:
    """Return a column for each method, or where there are many a line for each."""
    methods = result["methods"]
    lines = [[Cell(text) for text in ("", *(row["method"] for row in methods))]]
    for name, figure in figures_of(result).items():
        values = [figure_of(method, name, result["queries"]) for method in methods]
        known = {value for value in values if value is not None}
        best = max(known, key=lambda value: figure.better * value) if figure.better and len(known) > 1 else None
        cells = [Cell(figure.text(value), "best" if best is not None and value == best else "") for value in values]
        lines.append([Cell(figure.heading), *cells])
    if len(methods) > MOST_COLUMNS:
        lines = [list(line) for line in zip(*lines, strict=True)]
    headings = [cell.text for cell in lines[0]]
    return Table(f"Budget {result['budget_tokens']} tokens", headings, lines[1:], "Bold: the best of a figure.")

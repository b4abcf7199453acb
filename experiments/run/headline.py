"""What a report says first: which method leads by how much, and on which questions it wins and loses."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from corag.errors import CoragError, DataError
from corag.text.data import DataFolder, Query, passage_at, passage_of
from experiments.evaluation.averages import OF_ANSWERS, Row
from experiments.evaluation.leads import Interval, gain, paired
from experiments.run.page import Cell, Table, with_interval
from experiments.run.tables import FIGURES, Result, figure_of

CHALLENGER, BOUND = "corag", "upper"
"""The method whose lead is told, and the one that is no rival, because it tries everything."""
HEADLINE = ("evidence_recall", "cost_tokens", "latency_ms_median")
"""Figures of the headline rows beside the main one."""
MOST_CASES, MOST_QUESTIONS, MOST_CHARACTERS = 6, 500, 1200
"""Wins and losses with their contexts, questions in the list, and characters of a chunk that a page shows."""

Rows = Mapping[str, Sequence[Row]]
"""The rows of each method, the questions in one order."""


def read_rows(path: Path, result: Result) -> Rows | None:
    """Return the rows that lie beside a result of `corag evaluate --out`; None where there are none.

    Rows that are not those of the result's methods and questions are a `DataError`.
    """
    file = path.with_suffix(".rows.jsonl")
    if not file.is_file():
        return None
    found: dict[str, dict[str, Row]] = {row["method"]: {} for row in result["methods"]}
    try:
        with file.open(encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                found[row["method"]][row["query"]] = row
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file} holds no rows of {path} ({error}); evaluate again, or move it away") from error
    queries = next(iter(found.values())).keys()
    if any(rows.keys() != queries for rows in found.values()) or len(queries) != result["queries"]:
        raise DataError(f"{file} is not of {path}: other questions or methods; evaluate again, or move it away")
    return {name: [rows[query] for query in queries] for name, rows in found.items()}


class Lead(NamedTuple):
    """What the challenger gains over the best other method at one budget.

    Attributes:
        budget: In tokens.
        challenger: The method.
        baseline: The other one.
        interval: Of the difference; only its value is known where rows are missing.
        share_of_tokens: Tokens of the challenger relative to those of the baseline.
    """

    budget: int
    challenger: str
    baseline: str
    interval: Interval
    share_of_tokens: float | None

    def __str__(self) -> str:
        known = np.isfinite(self.interval.low)
        interval = f" ({self.interval.low:+.3f} to {self.interval.high:+.3f})" if known else ""
        tokens = "" if self.share_of_tokens is None else f" with {self.share_of_tokens:.0%} of its tokens"
        return f"{self.interval.value:+.3f}{interval} against {self.baseline} at {self.budget} tokens{tokens}"


@dataclass(frozen=True)
class Headline:
    """What stands at the top of a report.

    Attributes:
        figure: Name of the figure that methods are compared by.
        verdict: One sentence; empty where there is one method only.
        leads: One for each budget.
        table: A line for each budget and method.
        intervals: Of each figure of each method at each budget: `(budget, method, figure)`.
    """

    figure: str
    verdict: str
    leads: tuple[Lead, ...]
    table: Table
    intervals: Mapping[tuple[int, str, str], Interval]


def headline(results: Sequence[Result], rows: Sequence[Rows | None]) -> Headline:
    """Return what results on the same questions, one a budget, say first."""
    figure = main_figure(results)
    intervals = {
        (result["budget_tokens"], method, name): of_one
        for result, of_methods in zip(results, rows, strict=True)
        for method, of_method in (of_methods or {}).items()
        for name in dict.fromkeys((figure, *OF_ANSWERS, *HEADLINE))
        if (of_one := interval_of(of_method, name)) is not None
    }
    leads = [
        lead
        for result, of_methods in zip(results, rows, strict=True)
        if (lead := lead_of(result, of_methods, figure)) is not None
    ]
    return Headline(
        figure, _verdict(results, leads, figure), tuple(leads), _table(results, figure, intervals), intervals
    )


def main_figure(results: Sequence[Result]) -> str:
    """Return the figure by which methods are compared: F1 where answers were read, else evidence recall."""
    read = any(row.get("f1") is not None for result in results for row in result["methods"])
    return "f1" if read else "evidence_recall"


def interval_of(rows: Sequence[Row], name: str) -> Interval | None:
    """Return a figure's mean with its interval over resampled questions; None where no row has it."""
    values, _ = paired(rows, rows, (name,))
    return gain(values, np.zeros_like(values)) if len(values) else None


def lead_of(result: Result, rows: Rows | None, figure: str) -> Lead | None:
    """Return the lead of the challenger over the best other method; None without two methods that have the figure."""
    values = {
        row["method"]: value
        for row in result["methods"]
        if (value := figure_of(row, figure, result["queries"])) is not None
    }
    rivals = [name for name in values if _selector(name) != BOUND]
    of_corag = [name for name in rivals if _selector(name) == CHALLENGER]
    best = max(rivals, key=lambda name: values[name], default=None)
    ours = CHALLENGER if CHALLENGER in of_corag else of_corag[0] if of_corag else best
    # Its own variants are rivals where there is no other.
    others = [name for name in rivals if not _selector(name).startswith(CHALLENGER)] if of_corag else rivals
    others = [name for name in others or rivals if name != ours]
    if ours is None or not others:
        return None
    baseline = max(others, key=lambda name: values[name])
    difference = values[ours] - values[baseline]
    interval = Interval(difference, -np.inf, np.inf)
    if rows is not None:
        pairs = paired(rows[ours], rows[baseline], (figure,))
        interval = gain(*pairs) if len(pairs[0]) else interval
    tokens = {row["method"]: row["cost_tokens"] for row in result["methods"]}
    share = tokens[ours] / tokens[baseline] if tokens[ours] is not None and tokens[baseline] else None
    return Lead(result["budget_tokens"], ours, baseline, interval, share)


def _selector(method: str) -> str:
    """Return the name of the selector that a method is spelled with."""
    return (method.partition("(")[0].split() or [""])[-1]


def _verdict(results: Sequence[Result], leads: Sequence[Lead], figure: str) -> str:
    if not leads:
        return ""
    number = results[0]["queries"]
    what = f"{FIGURES[figure].heading}, {number} question{'s' * (number != 1)}"
    certain = [lead for lead in leads if np.isfinite(lead.interval.low) and lead.interval.differs]
    unknown = [lead for lead in leads if not np.isfinite(lead.interval.low)]
    if len(unknown) == len(leads):
        judgement = "differs from the best other method by what may be chance, as the rows of questions are missing"
    elif not certain:
        judgement = "and the best other method differ by no more than chance"
    else:
        budgets = {
            "ahead of": [str(lead.budget) for lead in certain if lead.interval.value > 0],
            "behind": [str(lead.budget) for lead in certain if lead.interval.value < 0],
        }
        parts = [f"{word} the best other method at {' and '.join(of)} tokens" for word, of in budgets.items() if of]
        judgement = f"is {', '.join(parts)}, beyond chance"
    return f"{leads[0].challenger} {judgement} ({what}): {'; '.join(map(str, leads))}."


def _table(results: Sequence[Result], figure: str, intervals: Mapping[tuple[int, str, str], Interval]) -> Table:
    names = [figure, *(name for name in HEADLINE if name != figure)]
    shown = [
        name for name in names if any(row.get(name) is not None for result in results for row in result["methods"])
    ]
    lines: list[list[Cell | str]] = []
    for result in results:
        budget = result["budget_tokens"]
        values = {row["method"]: figure_of(row, figure, result["queries"]) for row in result["methods"]}
        ranked = sorted(values, key=lambda name: -(values[name] if values[name] is not None else -np.inf))
        of_method = {row["method"]: row for row in result["methods"]}
        for place, method in enumerate(ranked):
            cells: list[str] = []
            for name in shown:
                text = FIGURES[name].text(figure_of(of_method[method], name, result["queries"]))
                around = intervals.get((budget, method, name)) if name == figure else None
                cells.append(text if around is None else with_interval(text, f"{around.low:.3f}", f"{around.high:.3f}"))
            lines.append([str(budget) if place == 0 else "", Cell(method, "text"), *cells])
    return Table("Each method, best first", ["budget", "method", *(FIGURES[name].heading for name in shown)], lines)


class Piece(NamedTuple):
    """A part of a text, and whether it is marked."""

    text: str
    marked: bool


@dataclass(frozen=True)
class Side:
    """What one method did on a question: its figure, the answer read, its chunks with whether each is evidence."""

    method: str
    value: float
    answer: str
    tokens: int
    chunks: tuple[tuple[tuple[Piece, ...], bool], ...] = ()


@dataclass(frozen=True)
class Case:
    """A question on which two methods differ."""

    question: str
    reference: str
    ours: Side
    theirs: Side

    @property
    def difference(self) -> float:
        """Of the figure, in favour of the challenger."""
        return self.ours.value - self.theirs.value


def cases(result: Result, rows: Rows, lead: Lead, figure: str) -> list[Case]:
    """Return the questions on which challenger and baseline differ, wins first, the largest differences with contexts.

    Questions and texts come from the data folder of the result; without it, ids stand for them.
    """
    try:
        folder = DataFolder.open(str(result.get("data", "")))
        queries = {query.id: query for query in folder.queries}
    except CoragError:
        folder, queries = None, {}
    pairs = [
        (one[figure] - other[figure], one, other)
        for one, other in zip(rows[lead.challenger], rows[lead.baseline], strict=True)
        if one.get(figure) is not None and other.get(figure) is not None and one[figure] != other[figure]
    ]
    pairs.sort(key=lambda pair: -pair[0])
    shown = {*range(MOST_CASES), *range(len(pairs) - MOST_CASES, len(pairs))}
    found = []
    for place, (_, one, other) in enumerate(pairs):
        query = queries.get(str(one["query"]))
        sides = [
            _side(name, row, figure, query, folder if place in shown else None)
            for name, row in ((lead.challenger, one), (lead.baseline, other))
        ]
        question = query.question if query is not None else str(one["query"])
        reference = next(iter(query.answers), "") if query is not None else ""
        found.append(Case(question, reference, *sides))
    return found


def _side(method: str, row: Row, figure: str, query: Query | None, folder: DataFolder | None) -> Side:
    chunks = []
    for name in row.get("ids", ()) if folder is not None else ():
        assert folder is not None
        chunk = passage_at(name, folder.documents)
        text = (name if chunk is None else chunk.text)[:MOST_CHARACTERS]
        gold = set(query.gold) if query is not None else set()
        chunks.append((marked(text, query.answers if query is not None else ()), _is_evidence(name, gold, folder)))
    return Side(method, float(row[figure]), str(row.get("answer", "")), int(row.get("cost_tokens", 0)), tuple(chunks))


def _is_evidence(name: str, gold: set[str], folder: DataFolder) -> bool:
    passages = {passage_of(one, folder.documents) or one for one in gold}
    return name in gold or (passage_of(name, folder.documents) or name) in passages


def marked(text: str, answers: Sequence[str]) -> tuple[Piece, ...]:
    """Return a text in pieces, those marked where the first of the answers that it holds stands, whatever the case."""
    for answer in answers:
        wanted = answer.strip()
        parts = re.split(f"({re.escape(wanted)})", text, flags=re.IGNORECASE) if len(wanted) > 1 else [text]
        if len(parts) > 1:
            return tuple(Piece(part, place % 2 == 1) for place, part in enumerate(parts) if part)
    return (Piece(text, False),)

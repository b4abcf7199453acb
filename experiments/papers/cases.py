"""A case study: what methods put into the prompt of some questions, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from corag.text.data import DataFolder, Query, passage_at
from experiments.papers.results import Found, Measured
from experiments.papers.study import METHOD
from experiments.report.measures import Row

NUMBER = 3
"""Questions of a case study, as in figure 9 of CORAG."""


class Case(NamedTuple):
    """A question, its first reference answer, and for each method the texts that it chose and the answer read."""

    question: str
    reference: str
    contexts: Mapping[str, tuple[Sequence[str], str]]


def cases_of(measured: Measured, wanted: Sequence[str] = ()) -> list[Case]:
    """Return the cases of a study's first cell.

    Args:
        measured: What was measured.
        wanted: Ids of questions; by default those whose answers differ most in ROUGE-L, in favour of either method, as
            far as the questions measured know answers.
    """
    if not measured.found:
        return []
    first = {name: value for name, value in measured.found[0].values.items() if name != METHOD}
    methods = measured.at(first)
    folder = DataFolder.open(str(methods[0].settings["data"]))
    queries = {query.id: query for query in folder.queries}
    ids = [name for name in wanted if name in queries] or _most_different(methods)
    return [_case(queries[name], methods, folder) for name in ids]


def _most_different(methods: Sequence[Found]) -> list[str]:
    scores: dict[str, list[float]] = {}
    for one in methods:
        for row in one.rows:
            scores.setdefault(str(row["query"]), []).append(float(row.get("rougeL") or 0.0))
    spread = {name: max(found) - min(found) for name, found in scores.items()}
    return sorted(spread, key=lambda name: -spread[name])[:NUMBER]


def _case(query: Query, methods: Sequence[Found], folder: DataFolder) -> Case:
    contexts = {}
    for one in methods:
        row: Row = next((row for row in one.rows if row["query"] == query.id), {})
        chunks = [passage_at(name, folder.documents) for name in row.get("ids", ())]
        texts = [chunk.text for chunk in chunks if chunk is not None]
        contexts[one.values[METHOD]] = (texts, str(row.get("answer", row.get("error", ""))))
    return Case(query.question, next(iter(query.answers), ""), contexts)


def lines_of(cases: Sequence[Case]) -> list[dict[str, Any]]:
    """Return the cases as the lines of a table."""
    return [
        {
            "question": case.question,
            "reference": case.reference,
            METHOD: method,
            "chunks": len(texts),
            "context": " ⏎ ".join(" ".join(text.split())[:160] for text in texts[:3]),
            "answer": answer,
        }
        for case in cases
        for method, (texts, answer) in case.contexts.items()
    ]

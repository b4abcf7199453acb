"""TREC runs and judgements: what a retriever ranked, and how relevant passages are.

A line of a run: `question Q0 passage rank score tag`; of judgements (qrels): `question 0 passage grade`. White space in
an id is written as in URLs (`%20`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from corag.errors import DataError
from corag.text.data import Grades, read_lines


def read_run(
    path: str | Path, queries: Container[str] | None = None, *, limit: int | None = None
) -> dict[str, dict[str, float]]:
    """Read a TREC run, plain or `.gz`.

    Args:
        path: The file.
        queries: Questions to keep, by id; the others use no memory. None for all.
        limit: Keep only this many of the best passages of a question.

    Returns:
        The passages of each question with their scores, by rising rank; of equal ranks the higher score first.

    Raises:
        DataError: The file cannot be read, or a line is malformed or repeats a passage; the message names the line.
    """
    file = Path(path)
    runs: dict[str, dict[str, tuple[int, float]]] = {}
    number = 0
    for number, (query, passage, rank, score) in read_lines(file, _run_line):
        if queries is None or query in queries:
            passages = runs.setdefault(query, {})
            if passage in passages:
                raise DataError(f"{file}, line {number}: passage {passage!r} is ranked twice for question {query!r}")
            passages[passage] = rank, -score
    if not number:
        raise DataError(f"{file} is empty; a run has lines such as: q1 Q0 passage-7 1 12.5 bm25")
    return {
        query: {passage: -passages[passage][1] for passage in sorted(passages, key=passages.__getitem__)[:limit]}
        for query, passages in runs.items()
    }


def _run_line(text: str) -> tuple[str, str, int, float]:
    parts = text.split()
    if len(parts) != 6:
        raise ValueError(f"{len(parts)} columns; a line of a run has six: question Q0 passage rank score tag")
    query, _, passage, rank, score, _ = parts
    if not math.isfinite(float(score)):
        raise ValueError(f"the score is {score}; it must be a finite number")
    return query, passage, int(rank), float(score)


def run_lines(rankings: Mapping[str, Sequence[str]], tag: str) -> Iterable[str]:
    """Yield the lines of a run of passages, best first by question; scores only give the order."""
    for query, passages in rankings.items():
        for rank, name in enumerate(passages, start=1):
            yield f"{escaped(query)} Q0 {escaped(name)} {rank} {len(passages) - rank + 1} {escaped(tag)}\n"


def qrels_lines(judgements: Mapping[str, Grades]) -> Iterable[str]:
    """Yield the lines of judgements by question."""
    for query, grades in judgements.items():
        for name, grade in grades.items():
            yield f"{escaped(query)} 0 {escaped(name)} {grade}\n"


def escaped(name: str) -> str:
    """Return an id as runs and judgements hold it: without white space."""
    return re.sub(r"\s", lambda space: quote(space[0]), name)

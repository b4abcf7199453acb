"""TREC runs and judgements: what a retriever ranked, and how relevant passages are.

A line of a run: `question Q0 passage rank score tag`; of judgements (qrels): `question 0 passage grade`, or, in BEIR's
`.tsv` files, `question passage grade` below a heading. White space inside of an id is written as in URLs (`%20`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from corag.errors import DataError
from corag.text.data import Grades, read_lines

_WHITE = re.compile(r"\s")


class Ranked(NamedTuple):
    """A passage in a run.

    Attributes:
        id: The passage.
        score: What the retriever gave it.
        line: Line of the file.
    """

    id: str
    score: float
    line: int


class _Line(NamedTuple):
    query: str
    rank: int
    passage: str
    score: float


def read_run(
    path: str | Path, wanted: Callable[[str], bool] = lambda query: True, *, limit: int | None = None
) -> dict[str, list[Ranked]]:
    """Read a TREC run, plain or `.gz`.

    Args:
        path: The file.
        wanted: Which questions to keep, by id; the others take no memory.
        limit: Keep only this many of the best passages of a question.

    Returns:
        The passages of each question by rising rank; of equal ranks the one with the higher score first.

    Raises:
        DataError: The file cannot be read, or a line is malformed or repeats a passage; the message names the line.
    """
    file = Path(path)
    if not file.is_file():
        raise DataError(f"there is no run {file}; give a file with lines such as: q1 Q0 passage-7 1 12.5 bm25")
    runs: dict[str, dict[str, tuple[int, Ranked]]] = {}
    num_lines = 0
    for number, line in read_lines(file, _run_line):
        num_lines += 1
        if wanted(line.query):
            passages = runs.setdefault(line.query, {})
            if line.passage in passages:
                raise DataError(
                    f"{file}, line {number}: passage {line.passage!r} is already ranked for question {line.query!r} in "
                    f"line {passages[line.passage][1].line}; a run names each passage of a question once"
                )
            passages[line.passage] = line.rank, Ranked(line.passage, line.score, number)
    if not num_lines:
        raise DataError(f"{file} is empty; a run has lines such as: q1 Q0 passage-7 1 12.5 bm25")
    return {
        query: [
            ranked for _, ranked in sorted(passages.values(), key=lambda entry: (entry[0], -entry[1].score))[:limit]
        ]
        for query, passages in runs.items()
    }


def _run_line(text: str) -> _Line:
    parts = text.split()
    if len(parts) != 6:
        raise ValueError(f"{len(parts)} columns; a line of a run has six: question Q0 passage rank score tag")
    query, _, passage, rank, score, _ = parts
    if not math.isfinite(float(score)):
        raise ValueError(f"the score is {score}; it must be a finite number")
    return _Line(query, int(rank), passage, float(score))


def run_lines(rankings: Mapping[str, Sequence[str]], tag: str) -> Iterable[str]:
    """Yield the lines of a run of passages, best first by question; scores only say the order."""
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
    return _WHITE.sub(lambda space: quote(space[0]), name)

"""TREC runs and judgements: what a retriever ranked, and how relevant passages are.

A line of a run: `question Q0 passage rank score tag`; of judgements (qrels): `question 0 passage grade`, or, in BEIR's
`.tsv` files, `question passage grade` below a heading. White space inside of an id is written as in URLs (`%20`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias
from urllib.parse import quote

from corag.errors import DataError
from corag.text.lines import LineError, read_lines, utf8

Grades: TypeAlias = Mapping[str, int]
"""Relevance of passages, by id."""

_MANY = 100
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
        limit: Only the best so many passages of a question; the others take no memory and are not looked at further.

    Returns:
        The passages of each question by rising rank; of equal ranks the one with the higher score first.

    Raises:
        DataError: The file cannot be read, or a line is malformed or repeats a passage; the message names the line.
    """
    file = Path(path)
    if not file.is_file():
        raise DataError(f"there is no run {file}; give a file with lines such as: q1 Q0 passage-7 1 12.5 bm25")
    found: dict[str, dict[str, tuple[int, Ranked]]] = {}
    num_lines = 0
    for number, line in read_lines(file, _run_line):
        num_lines += 1
        if not wanted(line.query):
            continue
        passages = found.setdefault(line.query, {})
        if (before := passages.get(line.passage)) is not None:
            raise DataError(
                f"{file}, line {number}: passage {line.passage!r} is already ranked for question {line.query!r} in "
                f"line {before[1].line}; a run names each passage of a question once"
            )
        passages[line.passage] = (line.rank, Ranked(line.passage, line.score, number))
        if limit is not None and len(passages) >= 2 * max(limit, _MANY):
            found[line.query] = dict(sorted(passages.items(), key=_by_rank)[:limit])
    if not num_lines:
        raise DataError(f"{file} is empty; a run has lines such as: q1 Q0 passage-7 1 12.5 bm25")
    return {
        query: [one for _, (_, one) in sorted(passages.items(), key=_by_rank)[:limit]]
        for query, passages in found.items()
    }


def _by_rank(entry: tuple[str, tuple[int, Ranked]]) -> tuple[int, float]:
    rank, ranked = entry[1]
    return rank, -ranked.score


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


def read_qrels(file: Path) -> dict[str, dict[str, int]]:
    """Read judgements in BEIR's form: the grades of passages by question.

    Raises:
        DataError: A line is malformed, or gives a passage a second grade; the message names file and line.
    """
    found: dict[str, dict[str, int]] = {}
    for number, row in read_lines(file, _qrels_line):
        if row is None:
            if number > 1:
                raise DataError(f"{file}, line {number}: the grade is no whole number; a grade is 0, 1, 2, ...")
            continue
        query, name, grade = row
        if found.setdefault(query, {}).setdefault(name, grade) != grade:
            raise DataError(
                f"{file}, line {number}: passage {name!r} has the grades {found[query][name]} and {grade} for question "
                f"{query!r}; keep one"
            )
    if not found:
        raise DataError(f"{file} holds no judgement; it needs lines: question-id, passage-id, grade, between tabs")
    return found


def _run_line(line: bytes) -> _Line:
    parts = line.split()
    if len(parts) != 6:
        raise LineError(f"{len(parts)} columns; a line of a run has six: question Q0 passage rank score tag")
    try:
        rank = int(parts[3])
    except ValueError as error:
        raise LineError(f"the rank is {utf8(parts[3])!r:.40}; it must be a whole number") from error
    try:
        score = float(parts[4])
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise LineError(f"the score is {utf8(parts[4])!r:.40}; it must be a finite number")
    return _Line(utf8(parts[0]), rank, utf8(parts[2]), score)


def _qrels_line(line: bytes) -> tuple[str, str, int] | None:
    """Return question, passage and grade; None for a heading, whose grade is no number."""
    parts = [part.strip() for part in utf8(line).rstrip("\r\n").split("\t")]
    if len(parts) != 3:
        raise LineError(f"{len(parts)} columns; a line has three, between tabs: question-id, passage-id, grade")
    query, name, grade = parts
    if not re.fullmatch(r"[+-]?\d+", grade):
        return None
    if not query or not name:
        raise LineError("an id is empty; a line has three columns, between tabs: question-id, passage-id, grade")
    return query, name, int(grade)

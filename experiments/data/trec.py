"""TREC runs and judgements: what a retriever ranked, and how relevant passages are.

A line of a run: `question Q0 passage rank score tag`; of judgements (qrels): `question 0 passage grade`. White space in
an id is written as in URLs (`%20`).
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from corag.errors import DataError
from corag.optional import require
from corag.text.data import Grades


def read_run(
    path: str | Path, queries: Container[str] | None = None, *, limit: int | None = None
) -> dict[str, dict[str, float]]:
    """Read a TREC run, plain or `.gz`, by ir-measures.

    Args:
        path: The file.
        queries: Questions to keep, by id; the others use no memory. None for all.
        limit: Keep only this many of the best passages of a question.

    Returns:
        The passages of each question with their scores, best first, as trec_eval has them: by score, whatever the
        rank; of equal scores the first in the file.

    Raises:
        DataError: The file cannot be read, or a line is malformed.
    """
    runs: dict[str, dict[str, float]] = {}
    try:
        for line in require("ir_measures", "experiments").read_trec_run(str(path)):
            if not math.isfinite(line.score):
                raise ValueError(f"the score of {line.doc_id!r} for question {line.query_id!r} is {line.score}")
            if queries is None or line.query_id in queries:
                runs.setdefault(line.query_id, {}).setdefault(line.doc_id, line.score)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DataError(
            f"{path} is not a TREC run: {error}; its lines have six columns, such as: q1 Q0 passage-7 1 12.5 bm25"
        ) from error
    return {query: dict(sorted(of.items(), key=lambda one: -one[1])[:limit]) for query, of in runs.items()}


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

"""Rankings of a retriever and of selections: read and written as TREC runs, and measured as TREC does.

A line of a run: `question Q0 passage rank score tag`; of judgements (qrels): `question 0 passage grade`. White space in
an id is written as in URLs (`%20`).

A ranking names passages. A chunk stands for the passage that it was cut from, or, where gold is a span of a passage,
for the span that it is evidence for; so what counts as evidence counts as relevant. A selection is ranked by its order.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any
from urllib.parse import quote

from common.storage import write_atomically
from corag.errors import DataError, InputError
from corag.optional import require
from corag.text.data import Grades, is_evidence
from corag.types import Chunk
from experiments.data.config import comma_separated

RETRIEVER = "retriever"
"""Name of the ranking of the candidates."""
QRELS = "qrels.txt"
Rankings = Mapping[str, Sequence[str]]
"""Passages, best first, by question."""


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


def escaped(name: str) -> str:
    """Return an id as runs and judgements hold it: without white space."""
    return re.sub(r"\s", lambda space: quote(space[0]), name)


def ranking_of(chunks: Sequence[Chunk], gold: Sequence[str]) -> list[str]:
    """Return the passages, or spans of gold, that chunks stand for: each once, in the order of the chunks."""
    names: dict[str, None] = {}
    for chunk in chunks:
        evidence = [entry for entry in gold if is_evidence(chunk, entry)]
        names.update(dict.fromkeys(evidence or [str(chunk.metadata.get("document", chunk.id))]))
    return list(names)


class Measures:
    """Measures of rankings by ir-measures (MacAvaney et al., 2022), which computes them as trec_eval does.

    `text` has their names, separated by commas; one that cannot be computed here is an `InputError`.
    """

    def __init__(self, text: str) -> None:
        self._measures = [self._parsed(name) for name in comma_separated(text)]
        self.names = list(dict.fromkeys(map(str, self._measures)))

    def by_query(self, rankings: Rankings, judgements: Mapping[str, Grades]) -> dict[str, dict[str, float]]:
        """Return the value of every measure for each question that is judged; 0 where its ranking is empty."""
        values = {query: dict.fromkeys(self.names, 0.0) for query in rankings if query in judgements}
        run = {
            query: {name: float(-rank) for rank, name in enumerate(rankings[query])}
            for query in values
            if rankings[query]
        }
        if run and self.names:
            qrels = {query: dict(judgements[query]) for query in run}
            for value in require("ir_measures", "experiments").iter_calc(self._measures, qrels, run):
                values[value.query_id][str(value.measure)] = float(value.value)
        return values

    @staticmethod
    def _parsed(name: str) -> Any:
        library = require("ir_measures", "experiments")
        try:
            measure = library.parse_measure(name)
            # A cutoff of 0 ends the process in trec_eval's own code.
            if measure.params.get("cutoff", 1) < 1:
                raise ValueError("the cutoff must be at least 1")
            library.calc_aggregate([measure], {"q": {"d": 1}}, {"q": {"d": 1.0}})
        except (ValueError, NameError, TypeError, AssertionError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            raise InputError(
                f"measure {name!r} cannot be used: {reason}; give names of ir-measures, such as nDCG@10, RR@10, R@20"
            ) from error
        return measure


def mean_of(values: Sequence[Mapping[str, float]], names: Sequence[str]) -> dict[str, float | None]:
    """Return the mean of each figure over questions; None without any."""
    return {name: fmean(one[name] for one in values) if values else None for name in names}


def write_runs(folder: Path, rankings: Mapping[str, Rankings], judgements: Mapping[str, Grades]) -> None:
    """Write a TREC run for each method, `METHOD.run`, and the judgements, `qrels.txt`."""
    used: set[str] = set()
    for number, (method, ranking) in enumerate(rankings.items()):
        name = re.sub(r"[^\w.=,+-]+", "_", method).strip("_") or "method"
        name = f"{name}-{number}" if name in used else name
        used.add(name)
        write_atomically(folder / f"{name}.run", "".join(run_lines(ranking, name)))
    judged = [(query, *one) for query, grades in judgements.items() for one in grades.items()]
    lines = [f"{escaped(query)} 0 {escaped(passage)} {grade}\n" for query, passage, grade in judged]
    write_atomically(folder / QRELS, "".join(lines))

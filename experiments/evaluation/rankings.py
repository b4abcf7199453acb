"""Rankings of a retriever and of selections: measured as TREC does, and written as TREC runs.

A ranking names passages. A chunk stands for the passage that it was cut from, or, where gold is a span of a passage,
for the span that it is evidence for; so what counts as evidence counts as relevant. A selection is ranked by its order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from common.storage import write_atomically
from corag.errors import InputError
from corag.optional import require
from corag.text.data import Grades, is_evidence
from corag.types import Chunk
from experiments.data.config import comma_separated
from experiments.data.trec import qrels_lines, run_lines

RETRIEVER = "retriever"
"""Name of the ranking of the candidates."""
QRELS = "qrels.txt"
Rankings = Mapping[str, Sequence[str]]
"""Passages, best first, by question."""


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
    write_atomically(folder / QRELS, "".join(qrels_lines(judgements)))

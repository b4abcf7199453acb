"""What `corag evaluate` writes and reads back: a result a budget, with the rows of its questions."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.storage import write_atomically
from corag.errors import DataError
from corag.text.visible import to_json
from experiments.report.difference import Difference
from experiments.report.measures import MEASURES, Measure, Row, measure

CHALLENGER, BOUND = "corag", "upper"
"""The method that is compared with the best other one, and the one that is no rival: it tries everything."""
ROWS = ".rows.jsonl"
"""Ending of the file beside a result with the rows of its questions."""


@dataclass(frozen=True)
class Result:
    """Methods on the questions of one set at one budget.

    Attributes:
        record: What the JSON file holds; see docs/experiments.md.
        rows: The rows of each method, their questions in one order; empty if they are not known.
    """

    record: Mapping[str, Any]
    rows: Mapping[str, Sequence[Row]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Result:
        """Read a file of `corag evaluate --out`, and the files beside it; `DataError` if it is anything else."""
        if not path.is_file():
            raise DataError(f"there is no file {path}; name results that `corag evaluate --out` wrote")
        with _reading(path):
            record = _checked(json.loads(path.read_text(encoding="utf-8")))
        rows_file = path.with_suffix(ROWS)
        if not rows_file.is_file():
            return cls(record)
        rows = _read_rows(rows_file)
        found = [(row["method"], record["queries"]) for row in record["methods"]]
        if found != [(method, len(of_method)) for method, of_method in rows.items()]:
            raise DataError(f"{rows_file} has other questions or methods than its result; evaluate again")
        return cls(record, rows)

    def write(self, path: Path) -> None:
        """Write the files that `read` reads, the result last."""
        if self.rows:
            rows = ({"method": method, **row} for method, of_method in self.rows.items() for row in of_method)
            write_atomically(path.with_suffix(ROWS), "".join(to_json(row) + "\n" for row in rows))
        write_atomically(path, to_json(self.record, indent=2) + "\n")

    @property
    def budget(self) -> int:
        """Budget in tokens."""
        return int(self.record["budget_tokens"])

    @property
    def questions(self) -> int:
        """Number of questions."""
        return int(self.record["queries"])

    @property
    def methods(self) -> list[str]:
        """Names of the methods."""
        return [row["method"] for row in self.record["methods"]]

    @property
    def measures(self) -> list[Measure]:
        """Measures that some method has a value of."""
        named = {name: measure(name) for name in (*MEASURES, *self.record.get("measures", ()))}
        return [
            one for one in named.values() if any(self.value(method, one.name) is not None for method in self.methods)
        ]

    @property
    def main_measure(self) -> Measure:
        """The measure that methods are compared by: what contexts hold of answer and evidence, where that was measured.

        Otherwise that of the reader's answers; without a reader, evidence recall.
        """
        if any(row.get("context_recall") is not None for row in self.record["methods"]):
            return MEASURES["context_recall"]
        return self.answer_measure or MEASURES["evidence_recall"]

    @property
    def answer_measure(self) -> Measure | None:
        """The measure of the reader's answers: F1, or for long ones ROUGE-L; None where nothing was read."""
        read = any(row.get("f1") is not None for row in self.record["methods"])
        return MEASURES[self.record.get("main_measure", "f1")] if read else None

    def value(self, method: str, name: str) -> Any:
        """Return a measure of a method; None if it is missing, or if the method failed on every question."""
        [row] = (row for row in self.record["methods"] if row["method"] == method)
        return None if name != "failed" and self.failures(method) >= self.questions else row.get(name)

    def interval(self, method: str, name: str) -> Difference | None:
        """Return a measure of a method with its interval; None without rows, or for a median."""
        return measure(name).difference(self.rows[method]) if self.rows else None

    def difference(self, ours: str, theirs: str, name: str) -> Difference | None:
        """Return how much more of a measure one method has than another on the same questions; None without rows."""
        return measure(name).difference(self.rows[ours], self.rows[theirs]) if self.rows else None

    def failures(self, method: str) -> int:
        """Return the number of questions that a method failed on."""
        [row] = (row for row in self.record["methods"] if row["method"] == method)
        return int(row.get("failed") or 0)

    def ranked(self, methods: Sequence[str], name: str) -> list[str]:
        """Return methods by a measure, best first: those that failed on a question last, of equals the cheapest first.

        A method that failed has its figures from the questions that it answered, which may be the easy ones.
        """

        def key(method: str) -> tuple[Any, ...]:
            value = self.value(method, name)
            return self.failures(method), value is None, -(value or 0), float(self.value(method, "cost_tokens") or 0)

        return sorted(methods, key=key)

    def contest(self) -> tuple[str, str] | None:
        """Return the challenger and the best other method; None without two methods that can be compared."""
        name = self.main_measure.name
        rivals = [one for one in self.methods if selector_name(one) != BOUND and self.value(one, name) is not None]
        of_corag = [one for one in rivals if selector_name(one) == CHALLENGER]
        if len(rivals) < 2:
            return None
        ours = CHALLENGER if CHALLENGER in of_corag else of_corag[0] if of_corag else self.ranked(rivals, name)[0]
        rivals.remove(ours)
        # Its own variants are rivals if there is no other.
        others = [one for one in rivals if not (of_corag and selector_name(one).startswith(CHALLENGER))]
        return ours, self.ranked(others or rivals, name)[0]


def selector_name(method: str) -> str:
    """Return the name of the selector that a method is spelled with."""
    return method.partition("(")[0].strip()


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Turn what a file of another form leads to into a `DataError`."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{file} is not what `corag evaluate --out` writes ({error}); evaluate again") from error


def _read_rows(file: Path) -> dict[str, list[Row]]:
    """Return the rows of a file by method; all have the same questions in one order."""
    groups: dict[str, list[Row]] = {}
    with _reading(file), file.open(encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            groups.setdefault(row.pop("method"), []).append(row)
        if len({tuple(row["query"] for row in rows) for rows in groups.values()}) > 1:
            raise ValueError("its rows are of different questions")
    return groups


def _checked(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record whose fields have their types; `ValueError` and the like for others."""
    for name, kind in {"methods": list, "versions": dict, "split": str, "queries": int, "budget_tokens": int}.items():
        if not isinstance(record[name], kind):
            raise ValueError(f"unexpected {name}")
    names = [str(row["method"]) for row in record["methods"]]
    if not names or len(set(names)) < len(names) or min(record["queries"], record["budget_tokens"]) < 1:
        raise ValueError("expected at least one question, and methods of different names")
    for row in record["methods"]:
        values = [row["cost_tokens"], *(row.get(name) for name in (*MEASURES, *record.get("measures", ())))]
        if not all(math.isfinite(value) for value in values if value is not None):
            raise ValueError(f"a figure of method {row['method']!r} is not finite")
    return record

"""What `corag evaluate` wrote, read back: a result a budget, with the rows of its questions."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corag.checks import check_count
from corag.errors import DataError
from experiments.report.difference import Difference
from experiments.report.measures import MEASURES, Measure, Row, measure

CHALLENGER, BOUND = "corag", "upper"
"""The method that is compared with the best other one, and the one that is no rival: it tries everything."""


@dataclass(frozen=True)
class Result:
    """Methods on the questions of one set at one budget.

    Attributes:
        record: What the JSON file holds; see DESIGN.md, section 4.
        rows: The rows of each method, their questions in one order; empty if they are not known.
    """

    record: Mapping[str, Any]
    rows: Mapping[str, Sequence[Row]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Result:
        """Read a file of `corag evaluate --out` and the rows beside it.

        Raises:
            DataError: It is anything else, or the rows are those of other questions or methods.
        """
        record = _read_record(path)
        file = rows_file(path)
        return cls(record, _read_rows(file, record) if file.is_file() else {})

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
        """What methods are compared by: F1 if answers were read, else evidence recall."""
        read = any(row.get("f1") is not None for row in self.record["methods"])
        return MEASURES["f1" if read else "evidence_recall"]

    def value(self, method: str, name: str) -> Any:
        """Return a measure of a method; None if it is missing, or if the method failed on every question."""
        [row] = (row for row in self.record["methods"] if row["method"] == method)
        return None if name != "failed" and row.get("failed", 0) >= self.questions else row.get(name)

    def interval(self, method: str, name: str) -> Difference | None:
        """Return a measure of a method with its interval; None without rows, or for a median."""
        return measure(name).interval(self.rows[method]) if self.rows else None

    def best(self, methods: Sequence[str], name: str) -> str:
        """Return the method with the highest value."""
        return max(methods, key=lambda one: -math.inf if (value := self.value(one, name)) is None else value)

    def contest(self) -> tuple[str, str] | None:
        """Return the challenger and the best other method; None without two methods that can be compared."""
        name = self.main_measure.name
        rivals = [one for one in self.methods if selector_name(one) != BOUND and self.value(one, name) is not None]
        of_corag = [one for one in rivals if selector_name(one) == CHALLENGER]
        if not rivals:
            return None
        ours = CHALLENGER if CHALLENGER in of_corag else of_corag[0] if of_corag else self.best(rivals, name)
        # Its own variants are rivals if there is no other.
        others = [one for one in rivals if not (of_corag and selector_name(one).startswith(CHALLENGER)) and one != ours]
        others = others or [one for one in rivals if one != ours]
        return (ours, self.best(others, name)) if others else None


def selector_name(method: str) -> str:
    """Return the name of the selector that a method is spelled with."""
    return method.partition("(")[0].strip()


def rows_file(path: Path) -> Path:
    """Return the path of the rows beside a result."""
    return path.with_suffix(".rows.jsonl")


def _read_rows(file: Path, record: Mapping[str, Any]) -> dict[str, list[Row]]:
    by_method: dict[str, dict[str, Row]] = {row["method"]: {} for row in record["methods"]}
    try:
        with file.open(encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                by_method[row.pop("method")][row["query"]] = row
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{file} does not hold the rows of its result ({error}); evaluate again, or move it away"
        ) from error
    queries = next(iter(by_method.values())).keys()
    if any(rows.keys() != queries for rows in by_method.values()) or len(queries) != record["queries"]:
        raise DataError(f"{file} has other questions or methods than its result; evaluate again, or move it away")
    return {name: [rows[query] for query in queries] for name, rows in by_method.items()}


def _read_record(path: Path) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        lacking = {"methods", "budget_tokens", "queries", "split", "versions"} - record.keys()
        if lacking or not record["methods"]:
            raise ValueError(f"it lacks {', '.join(sorted(lacking)) or 'methods'}")
        for name, kind in (("methods", list), ("versions", dict), ("split", str), ("measures", list)):
            if not isinstance(record.get(name, kind()), kind):
                raise ValueError(f"{name} is {record[name]!r:.80}")
        for name in ("queries", "budget_tokens"):
            check_count(name, record[name], "a report needs at least one question")
        names = [row["method"] for row in record["methods"]]
        if len(set(names)) < len(names) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"the methods are called {names!r:.200}")
        for row in record["methods"]:
            _check_values(row, [*MEASURES, *map(str, record.get("measures", ()))])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path} is not a result of `corag evaluate --out` ({error}); evaluate again") from error
    return record


def _check_values(row: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raise `ValueError` for a method that lacks cost_tokens, or with a measure that is no finite number."""
    for name in ("cost_tokens", *names):
        value = row.get(name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not is_number and (value is not None or name == "cost_tokens"):
            raise ValueError(f"{name} of method {row['method']!r} is {value!r:.80}")

"""What `corag evaluate` writes and reads back: a result a budget, with the rows of its questions."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
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
        rows: The rows of each method, their questions in one order.
    """

    record: Mapping[str, Any]
    rows: Mapping[str, Sequence[Row]]

    @classmethod
    def read(cls, path: Path) -> Result:
        """Read a file of `corag evaluate --out`, and the rows beside it; `DataError` if it is anything else."""
        if not path.is_file():
            raise DataError(f"there is no file {path}; name results that `corag evaluate --out` wrote")
        if not (of_questions := path.with_suffix(ROWS)).is_file():
            raise DataError(
                f"beside {path} there is no {of_questions.name} with a line for each question; copy that file, too, or "
                "evaluate again"
            )
        rows: dict[str, list[Row]] = {}
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            with of_questions.open(encoding="utf-8") as lines:
                for row in map(json.loads, lines):
                    rows.setdefault(row.pop("method"), []).append(row)
            result = cls(record, rows)
            result._check()
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DataError(f"{path} is not what `corag evaluate --out` writes ({error}); evaluate again") from error
        return result

    def _check(self) -> None:
        """Raise `ValueError`, or what a missing field leads to, for a record without its rows or figures."""
        names = [row["method"] for row in self.record["methods"]]
        asked = {_queries(of_method) for of_method in self.rows.values()}
        if not names or names != list(self.rows) or [self.questions] != list(map(len, asked)) or self.budget < 1:
            raise ValueError(f"its rows are of other methods or questions than {names}, {self.questions} questions")
        for one in self.measures:
            if not all(
                math.isfinite(value) for row in self.methods.values() if (value := row.get(one.name)) is not None
            ):
                raise ValueError(f"a figure of {one.name} is not finite")

    def write(self, path: Path) -> None:
        """Write the files that `read` reads, the result last."""
        rows = ({"method": method, **row} for method, of_method in self.rows.items() for row in of_method)
        write_atomically(path.with_suffix(ROWS), "".join(to_json(row) + "\n" for row in rows))
        write_atomically(path, to_json(self.record, indent=2) + "\n")

    @property
    def name(self) -> str:
        """Data folder and split, in a few words."""
        return f"{Path(str(self.record['data'])).resolve().name}, {self.record['split']}"

    @property
    def asked(self) -> tuple[str, ...]:
        """Ids of the questions."""
        return _queries(next(iter(self.rows.values())))

    @property
    def budget(self) -> int:
        """Budget in tokens."""
        return int(self.record["budget_tokens"])

    @property
    def questions(self) -> int:
        """Number of questions."""
        return int(self.record["queries"])

    @cached_property
    def methods(self) -> Mapping[str, Mapping[str, Any]]:
        """The figures of each method."""
        return {row["method"]: row for row in self.record["methods"]}

    @property
    def measures(self) -> list[Measure]:
        """Measures that some method has a value of."""
        named = [measure(name) for name in (*MEASURES, *self.record.get("measures", ()))]
        return [one for one in named if any(self.value(method, one.name) is not None for method in self.methods)]

    @property
    def main_measure(self) -> Measure:
        """The measure that methods are compared by: what contexts hold of answer and evidence, where that was measured.

        Otherwise that of the reader's answers; without a reader, evidence recall.
        """
        if any(row.get("context_recall") is not None for row in self.methods.values()):
            return MEASURES["context_recall"]
        return self.answer_measure or MEASURES["evidence_recall"]

    @property
    def answer_measure(self) -> Measure | None:
        """The measure of the reader's answers: F1, or for long ones ROUGE-L; None where nothing was read."""
        read = any(row.get("f1") is not None for row in self.methods.values())
        return MEASURES[self.record.get("main_measure", "f1")] if read else None

    def value(self, method: str, name: str) -> Any:
        """Return a measure of a method; None if it is missing, or if the method failed on every question."""
        return None if name != "failed" and self.failures(method) >= self.questions else self.methods[method].get(name)

    def difference(self, name: str, ours: str, theirs: str | None = None) -> Difference | None:
        """Return how much more of a measure one method has than another on the same questions; None for a median.

        Without the other, it is the measure itself with its interval.
        """
        return measure(name).difference(self.rows[ours], None if theirs is None else self.rows[theirs])

    def failures(self, method: str) -> int:
        """Return the number of questions that a method failed on."""
        return int(self.methods[method].get("failed") or 0)

    def ranked(self, methods: Iterable[str], name: str) -> list[str]:
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


def _queries(rows: Sequence[Row]) -> tuple[str, ...]:
    return tuple(row["query"] for row in rows)


def selector_name(method: str) -> str:
    """Return the name of the selector that a method is spelled with."""
    return method.partition("(")[0].strip()

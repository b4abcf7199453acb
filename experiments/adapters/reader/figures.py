"""What a reader is worth: answers, abstention and calibration on held-out questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from corag.readers.span_reader import ReaderSettings, Reading, SpanReader, to_answer
from corag.text.data import DataFolder, Query
from corag.text.documents import SEPARATOR, passage
from experiments.evaluation.metrics import exact_match, f1

_LEFT_OUT = ("maybe",)


@dataclass(frozen=True, slots=True)
class ReadingCase:
    """A question with the context that it is read in.

    Attributes:
        question: The question.
        context: Passages, joined as in a prompt.
        answers: Right answers; none where the context has none.
    """

    question: str
    context: str
    answers: tuple[str, ...]


def gold_cases(folder: DataFolder, queries: Sequence[Query]) -> list[ReadingCase]:
    """Return each question with its gold passages; questions without gold or answer, and "maybe", are left out."""
    return [
        ReadingCase(query.question, _context(folder, query.gold), query.answers)
        for query in queries
        if query.answers and query.gold and query.answers[0] not in _LEFT_OUT
    ]


def foreign_cases(folder: DataFolder, queries: Sequence[Query], seed: int = 0) -> list[ReadingCase]:
    """Return each question with another question's gold passage, by the same title where there is one: no answer."""
    random = np.random.default_rng(seed)
    by_title: dict[str, list[str]] = {}
    golds = list(dict.fromkeys(gold for query in queries for gold in query.gold[:1]))
    for name in golds:
        by_title.setdefault(folder.documents[name].title, []).append(name)
    cases = []
    for query in queries:
        title = folder.documents[query.gold[0]].title if query.gold else ""
        others = [
            name
            for name in by_title.get(title, [])
            if name not in query.gold
            and not any(answer.lower() in folder.documents[name].text.lower() for answer in query.answers)
        ]
        if others:
            cases.append(ReadingCase(query.question, _context(folder, [others[int(random.integers(len(others)))]]), ()))
    return cases


def _context(folder: DataFolder, names: Sequence[str]) -> str:
    return SEPARATOR.join(passage(folder.documents[name]).text for name in names if name in folder.documents)


def read(reader: SpanReader, cases: Sequence[ReadingCase]) -> list[Reading]:
    """Return the reading of each case."""
    return reader.read([case.question for case in cases], [case.context for case in cases])


def answer_scores(
    cases: Sequence[ReadingCase], readings: Sequence[Reading], settings: ReaderSettings
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return F1 and exact match of each case, `[n]` each, as SQuAD 1.1 counts them."""
    said = [to_answer(reading, case.context, settings).text for case, reading in zip(cases, readings, strict=True)]
    f1s = [f1(text, case.answers) for text, case in zip(said, cases, strict=True)]
    matches = [exact_match(text, case.answers) for text, case in zip(said, cases, strict=True)]
    return np.array(f1s), np.array(matches)

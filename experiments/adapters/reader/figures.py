"""What a reader is worth: answers, abstention and calibration on held-out questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from corag.readers.span_reader import ReaderSettings, Reading, SpanReader, to_answer
from corag.text.data import DataFolder, Query
from corag.text.documents import SEPARATOR, passage
from experiments.evaluation.metrics import exact_match, f1

_LEFT_OUT = ("maybe",)


@dataclass(frozen=True, slots=True)
class Task:
    """A question with the context that it is read in.

    Attributes:
        question: The question.
        context: Passages, joined as in a prompt.
        answers: Right answers; none where the context has none.
    """

    question: str
    context: str
    answers: tuple[str, ...]


def gold_tasks(folder: DataFolder, queries: Sequence[Query]) -> list[Task]:
    """Return each question with its gold passages; questions without gold or answer, and "maybe", are left out."""
    return [
        Task(query.question, _context(folder, query.gold), query.answers)
        for query in queries
        if query.answers and query.gold and query.answers[0] not in _LEFT_OUT
    ]


def foreign_tasks(folder: DataFolder, queries: Sequence[Query], seed: int = 0) -> list[Task]:
    """Return each question with another question's gold passage, by the same title where there is one: no answer."""
    random = np.random.default_rng(seed)
    by_title: dict[str, list[str]] = {}
    golds = list(dict.fromkeys(gold for query in queries for gold in query.gold[:1]))
    for name in golds:
        by_title.setdefault(folder.documents[name].title, []).append(name)
    tasks = []
    for query in queries:
        title = folder.documents[query.gold[0]].title if query.gold else ""
        others = [
            name
            for name in by_title.get(title, [])
            if name not in query.gold
            and not any(answer.lower() in folder.documents[name].text.lower() for answer in query.answers)
        ]
        if others:
            tasks.append(Task(query.question, _context(folder, [others[int(random.integers(len(others)))]]), ()))
    return tasks


def _context(folder: DataFolder, names: Sequence[str]) -> str:
    return SEPARATOR.join(passage(folder.documents[name]).text for name in names if name in folder.documents)


def read(reader: SpanReader, tasks: Sequence[Task]) -> list[Reading]:
    """Return the reading of each task."""
    return reader.read([task.question for task in tasks], [task.context for task in tasks])


def answer_scores(
    tasks: Sequence[Task], readings: Sequence[Reading], settings: ReaderSettings
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return F1 and exact match of each task, `[n]` each, as SQuAD 1.1 counts them."""
    said = [to_answer(reading, task.context, settings).text for task, reading in zip(tasks, readings, strict=True)]
    f1s = [f1(text, task.answers) for text, task in zip(said, tasks, strict=True)]
    matches = [exact_match(text, task.answers) for text, task in zip(said, tasks, strict=True)]
    return np.array(f1s), np.array(matches)


def calibrate(margins: NDArray[np.float64], right: NDArray[np.float64]) -> tuple[float, float]:
    """Return slope and offset that turn margins into log-odds of being right (Platt, 1999), by maximum likelihood.

    Args:
        margins: Of spans, `[n]`.
        right: 1 where the span was right, else 0, `[n]`; both have to occur.
    """
    values, targets = torch.from_numpy(margins).double(), torch.from_numpy(right).double()
    line = torch.tensor([1.0, 0.0], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([line], max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(line[0] * values + line[1], targets)
        loss.backward()
        return loss

    optimizer.step(closure)
    slope, offset = line.detach().tolist()
    return slope, offset


def calibration_error(confidence: NDArray[np.float64], right: NDArray[np.float64], bins: int = 10) -> float:
    """Return the expected calibration error over bins of equal size (Naeini et al., 2015)."""
    order = np.argsort(confidence, kind="stable")
    parts = [part for part in np.array_split(order, bins) if len(part)]
    return float(sum(len(p) * abs(confidence[p].mean() - right[p].mean()) for p in parts) / len(confidence))


def separation(answerable: NDArray[np.float64], unanswerable: NDArray[np.float64]) -> float:
    """Return how often a question with an answer has the larger margin than one without (area under the ROC curve).

    Half of a pair for equal margins; NaN where one of the sides is empty.
    """
    if not len(answerable) or not len(unanswerable):
        return float("nan")
    greater = (answerable[:, None] > unanswerable[None, :]).mean()
    equal = (answerable[:, None] == unanswerable[None, :]).mean()
    return float(greater + equal / 2)

"""What a judge is asked about answers and contexts, and the figure that follows from its reply.

`grade` is that of Adaptive-k (section 4.4: LLM-as-a-judge); the others are the figures of evaluation frameworks that
CAR reports (table 3), each a share that follows from a structured reply, not a number that the model makes up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from corag.errors import InputError
from corag.models.chat.base import ChatError
from corag.models.chat.prompts import Prompt, prompt
from corag.text.chunking import sentence_spans
from corag.text.documents import SEPARATOR
from experiments.evaluation.judging.replies import json_object

GRADE = "grade"
ALL = "all"


class Verdict(NamedTuple):
    """A figure in [0, 1] with the judge's reason; None, with what went wrong, where the judge failed."""

    grade: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class Reading:
    """What is judged: an answer to a question, read from a context.

    Attributes:
        question: The question.
        references: Right answers; may be empty.
        context: What the reader got.
        answer: The answer; empty where it found none.
    """

    question: str
    references: tuple[str, ...]
    context: str
    answer: str

    @property
    def parts(self) -> list[str]:
        """Texts of the context, which empty lines divide."""
        return [part.strip() for part in self.context.split(SEPARATOR) if part.strip()]

    @property
    def sentences(self) -> list[str]:
        """Sentences of the context."""
        return [text for part in self.parts for start, end in sentence_spans(part) if (text := part[start:end].strip())]


@dataclass(frozen=True)
class JudgedFigure:
    """One figure of a judge.

    Attributes:
        name: Its name, which is that of the prompt with dashes.
        fields: What the prompt is filled with.
        parse: Returns the figure that follows from a reply's JSON; None where it has none.
        known: Returns the figure of a reading that nobody has to be asked for: a number, `absent` where there is none
            at all, or None.
    """

    name: str
    fields: Callable[[Reading], dict[str, str]]
    parse: Callable[[dict[str, Any], Reading], float | None]
    known: Callable[[Reading], float | str | None]

    @cached_property
    def asked(self) -> Prompt:
        """The prompt."""
        needs = sorted(self.fields(Reading("", (), "", "")))
        return prompt(
            "judge" if self.name == GRADE else self.name.replace("_", "-"), "experiments/prompts", needs=needs
        )

    @property
    def key(self) -> str:
        """Its name in rows."""
        return "judge" if self.name == GRADE else self.name


ABSENT = "absent"


def _numbered(texts: Sequence[str]) -> str:
    return "\n".join(f"[{number}] {' '.join(text.split())}" for number, text in enumerate(texts, start=1))


def _grade(content: Mapping[str, Any], reading: Reading) -> float | None:
    grade = content.get("grade")
    usable = isinstance(grade, int | float) and not isinstance(grade, bool) and 0 <= grade <= 1
    return float(grade) if usable else None  # type: ignore[arg-type]


def _share_of_items(items: str, flag: str) -> Callable[[dict[str, Any], Reading], float | None]:
    def parse(content: Mapping[str, Any], reading: Reading) -> float | None:
        found = content.get(items)
        if not isinstance(found, list) or not found:
            return None
        flags = [item.get(flag) if isinstance(item, dict) else None for item in found]
        known = [one for one in flags if isinstance(one, bool)]
        return sum(known) / len(flags) if len(known) == len(flags) else None

    return parse


def _share_of_numbers(field: str, texts: Callable[[Reading], Sequence[str]]) -> Any:
    def parse(content: Mapping[str, Any], reading: Reading) -> float | None:
        found, total = content.get(field), len(texts(reading))
        if not isinstance(found, list) or not all(
            isinstance(one, int) and not isinstance(one, bool) and 1 <= one <= total for one in found
        ):
            return None
        return len(set(found)) / total

    return parse


FIGURES = {
    figure.name: figure
    for figure in (
        JudgedFigure(
            GRADE,
            lambda one: {"question": one.question, "answer": one.answer, "references": "\n".join(one.references)},
            _grade,
            lambda one: None if one.references else ABSENT,
        ),
        JudgedFigure(
            "answer_relevancy",
            lambda one: {"question": one.question, "answer": one.answer},
            _share_of_items("statements", "relevant"),
            lambda one: None if one.answer else 0.0,
        ),
        JudgedFigure(
            "contextual_relevancy",
            lambda one: {"question": one.question, "sentences": _numbered(one.sentences)},
            _share_of_numbers("relevant", lambda one: one.sentences),
            lambda one: None if one.sentences else 0.0,
        ),
        JudgedFigure(
            "faithfulness",
            lambda one: {"question": one.question, "context": one.context, "answer": one.answer},
            _share_of_items("claims", "supported"),
            lambda one: ABSENT if not one.answer else None if one.parts else 0.0,
        ),
        JudgedFigure(
            "hallucination",
            lambda one: {"question": one.question, "texts": _numbered(one.parts), "answer": one.answer},
            _share_of_numbers("contradicted", lambda one: one.parts),
            lambda one: None if one.answer and one.parts else ABSENT,
        ),
    )
}
"""Figures of a judge, by name. With A the statements of the answer and C the sentences of the context:

- `grade`: how much of the reference answers is right; none without references.
- `answer_relevancy`: share of A that is relevant to the question; 0 for an empty answer.
- `contextual_relevancy`: share of C that the answer needs; 0 for an empty context.
- `faithfulness`: share of A that the context supports; none for an empty answer, 0 for one out of an empty context.
- `hallucination`: share of the context's texts that the answer contradicts; none where one of both is empty.
"""
JUDGED = tuple(figure.key for figure in FIGURES.values())
"""Their names in rows."""


def judged_figures(text: str) -> tuple[str, ...]:
    """Return the names of figures, separated by commas, or `all`; `InputError` for others."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if names == (ALL,):
        return tuple(FIGURES)
    if not names or not set(names) <= set(FIGURES):
        wrong = sorted(set(names) - set(FIGURES))
        raise InputError(
            f"judge_figures is {text!r}{f', but there is no {wrong[0]!r}' if wrong else ''}; name some of "
            f"{', '.join(FIGURES)}, or {ALL}"
        )
    return names


def row_of(verdicts: Mapping[str, Verdict | None]) -> dict[str, Any]:
    """Return what was judged, by name, as rows have it.

    `judged` has all names; `judge_unusable` says how many replies told no figure, and `judge_error` what was wrong with
    the first of them. None stands for what a reading does not have.
    """
    given = {name: verdict for name, verdict in verdicts.items() if verdict is not None}
    failures = [verdict.reason for verdict in given.values() if verdict.grade is None]
    return {
        **{name: verdict.grade for name, verdict in given.items() if verdict.grade is not None},
        "judged": list(verdicts),
        **({"judge_unusable": len(failures)} if given else {}),
        **({"judge_error": failures[0]} if failures else {}),
    }


def parsed(figure: JudgedFigure, reply: str | ChatError, reading: Reading) -> Verdict:
    """Return the figure in a reply: one JSON object, whatever stands around it."""
    if isinstance(reply, ChatError):
        return Verdict(None, str(reply))
    content = json_object(reply)
    value = None if content is None else figure.parse(content, reading)
    if content is None or value is None:
        return Verdict(None, f"the reply has no usable {figure.name}: {reply[:200]!r}")
    return Verdict(value, str(content.get("reason", "")))


def parse_verdict(reply: str) -> Verdict:
    """Return the grade in a reply."""
    return parsed(FIGURES[GRADE], reply, Reading("", (), "", ""))

"""A model of an Ollama server as the judge of answers (Adaptive-k, section 4.4: LLM-as-a-judge).

A reply that is no grade is counted as such. It is never taken for the grade 0, which would punish the answer for the
judge.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.resources import files
from string import Template

from corag.errors import InputError
from corag.models.ollama_chat import OllamaChat, OllamaError

_OBJECT = re.compile(r"\{.*\}", re.DOTALL)
_TAG = re.compile(r"<(?=\s*/?\s*(?:question|references|answer)\s*>)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the judge said of one answer.

    Attributes:
        grade: In [0, 1]; None when there is none.
        reason: The judge's reason for the grade; else why there is none.
    """

    grade: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the judge said of many answers.

    Attributes:
        verdicts: One for each answer.
    """

    verdicts: tuple[Verdict, ...]

    @property
    def mean_grade(self) -> float | None:
        """Mean over the answers that have a grade; None without any."""
        grades = [verdict.grade for verdict in self.verdicts if verdict.grade is not None]
        return sum(grades) / len(grades) if grades else None

    @property
    def num_ungraded(self) -> int:
        """Answers without a grade; a mean says little where these are many."""
        return sum(verdict.grade is None for verdict in self.verdicts)


class Judge:
    """Grades answers.

    Args:
        chat: The model; greedy (`temperature=0`) for repeatable grades.
        max_concurrent: Requests at the same time.
    """

    def __init__(self, chat: OllamaChat, *, max_concurrent: int = 4) -> None:
        if max_concurrent < 1:
            raise InputError(f"max_concurrent must be at least 1, got {max_concurrent!r}; 1 to 8 are usual")
        self._chat = chat
        self._max_concurrent = max_concurrent
        self._template = Template((files("experiments") / "prompts" / "judge.txt").read_text(encoding="utf-8"))

    def judge(self, questions: Sequence[str], answers: Sequence[str], references: Sequence[Sequence[str]]) -> Judgement:
        """Grade an answer to each question.

        Args:
            questions: The questions.
            answers: An answer to each.
            references: The right answers to each.

        Raises:
            InputError: Not as many of one as of the others.
        """
        if not len(questions) == len(answers) == len(references):
            raise InputError(
                f"{len(questions)} questions come with {len(answers)} answers and {len(references)} lists of "
                "references; give one for each"
            )
        with ThreadPoolExecutor(self._max_concurrent) as pool:
            return Judgement(tuple(pool.map(self._verdict, questions, answers, references)))

    def _verdict(self, question: str, answer: str, references: Sequence[str]) -> Verdict:
        prompt = self._template.substitute(
            question=_quoted(question), answer=_quoted(answer), references=_quoted("\n".join(references))
        )
        try:
            return parse_verdict(self._chat.ask([{"role": "user", "content": prompt}]))
        except OllamaError as error:
            return Verdict(None, str(error))


def parse_verdict(reply: str) -> Verdict:
    """Return the grade in a reply: one JSON object with a number from 0 to 1, whatever stands around it."""
    found = _OBJECT.search(reply)
    try:
        content = json.loads(found[0]) if found else None
    except ValueError:
        content = None
    grade = content.get("grade") if isinstance(content, dict) else None
    if not isinstance(content, dict) or isinstance(grade, bool) or not isinstance(grade, int | float):
        return Verdict(None, f"the reply has no grade: {reply[:200]!r}")
    if not 0 <= grade <= 1:
        return Verdict(None, f"the grade {grade} is not from 0 to 1")
    return Verdict(float(grade), str(content.get("reason", "")))


def _quoted(text: str) -> str:
    return _TAG.sub("< ", text)

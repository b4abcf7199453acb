"""A model of an Ollama server as the judge of answers (Adaptive-k, section 4.4: LLM-as-a-judge)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.resources import files
from string import Template
from typing import NamedTuple

from corag.errors import InputError
from corag.models.ollama_chat import OllamaChat, OllamaError

_OBJECT = re.compile(r"\{.*\}", re.DOTALL)
_TAG = re.compile(r"<(?=\s*/?\s*(?:question|references|answer)\s*>)", re.IGNORECASE)


class Verdict(NamedTuple):
    """A grade in [0, 1] with the judge's reason; None, with what went wrong, where the judge failed, not the answer."""

    grade: float | None
    reason: str


class Judge:
    """Grades answers with a model, greedy (`temperature=0`) for repeatable grades."""

    def __init__(self, chat: OllamaChat, *, max_concurrent: int = 4) -> None:
        if max_concurrent < 1:
            raise InputError(f"max_concurrent must be at least 1, got {max_concurrent!r}; 1 to 8 are usual")
        self._chat = chat
        self._max_concurrent = max_concurrent
        self._template = Template((files("experiments") / "prompts" / "judge.txt").read_text(encoding="utf-8"))

    def judge(self, question: str, answers: Sequence[str], references: Sequence[str]) -> list[Verdict]:
        """Grade answers to a question against its right answers; a server that keeps failing is an `OllamaError`."""
        with ThreadPoolExecutor(self._max_concurrent) as pool:
            return list(pool.map(partial(self._verdict, question, references), answers))

    def _verdict(self, question: str, references: Sequence[str], answer: str) -> Verdict:
        prompt = self._template.substitute(
            question=_quoted(question), answer=_quoted(answer), references=_quoted("\n".join(references))
        )
        try:
            return parse_verdict(self._chat.ask([{"role": "user", "content": prompt}]).text)
        except OllamaError as error:
            if error.can_retry:
                raise  # a later run may bring the grade
            return Verdict(None, str(error))


def parse_verdict(reply: str) -> Verdict:
    """Return the grade in a reply: one JSON object with a number from 0 to 1, whatever stands around it."""
    found = _OBJECT.search(reply)
    try:
        content = json.loads(found[0]) if found else None
    except ValueError:
        content = None
    grade = content.get("grade") if isinstance(content, dict) else None
    if content is None or isinstance(grade, bool) or not isinstance(grade, int | float):
        return Verdict(None, f"the reply has no grade: {reply[:200]!r}")
    if not 0 <= grade <= 1:
        return Verdict(None, f"the grade {grade} is not from 0 to 1")
    return Verdict(float(grade), str(content.get("reason", "")))


def _quoted(text: str) -> str:
    return _TAG.sub("< ", text)

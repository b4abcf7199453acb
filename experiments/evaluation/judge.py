"""A language model as the judge of answers (Adaptive-k, section 4.4: LLM-as-a-judge)."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import corag
from corag.errors import InputError
from corag.models.chat.base import Chat, ChatError
from corag.models.chat.prompts import prompt
from corag.naming import Spelling
from corag.readers.chat import ChatReader
from experiments.evaluation.replies import json_object


class Verdict(NamedTuple):
    """A grade in [0, 1] with the judge's reason; None, with what went wrong, where the judge failed, not the answer."""

    grade: float | None
    reason: str


class Judge:
    """Grades answers with a model, greedy by default for repeatable grades."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._prompt = prompt("judge", "experiments/prompts", needs=["question", "answer", "references"])

    def judge(self, question: str, answers: Sequence[str], references: Sequence[str]) -> list[Verdict]:
        """Grade answers to a question against its right answers; a server that keeps failing is a `ChatError`."""
        with ThreadPoolExecutor(self._chat.max_concurrent) as pool:
            return list(pool.map(partial(self._verdict, question, references), answers))

    def _verdict(self, question: str, references: Sequence[str], answer: str) -> Verdict:
        asked = self._prompt.messages(question=question, answer=answer, references="\n".join(references))
        try:
            return parse_verdict(self._chat.ask(asked).text)
        except ChatError as error:
            if error.can_retry:
                raise  # a later run may bring the grade
            return Verdict(None, str(error))


def parse_verdict(reply: str) -> Verdict:
    """Return the grade in a reply: one JSON object with a number from 0 to 1, whatever stands around it."""
    content = json_object(reply)
    grade = None if content is None else content.get("grade")
    if content is None or isinstance(grade, bool) or not isinstance(grade, int | float):
        return Verdict(None, f"the reply has no grade: {reply[:200]!r}")
    if not 0 <= grade <= 1:
        return Verdict(None, f"the grade {grade} is not from 0 to 1")
    return Verdict(float(grade), str(content.get("reason", "")))


def chat_of(role: str, name: Spelling) -> Chat:
    """Return the language model of a reader by name, such as `ollama(model=...)` or `openai(model=...)`.

    Args:
        role: What it is to be, for the error.
        name: Name and settings of the reader.

    Raises:
        InputError: There is no such reader, or it asks no language model.
        ChatError: Its server, or the model, is missing.
    """
    reader = corag.reader(name)
    if not isinstance(reader, ChatReader):
        raise InputError(
            f"{role} {name!r} asks no language model; name it like a reader that does, with the model's name: "
            "openai(model=...), ollama(model=...) or transformers(model=...)"
        )
    reader.chat.check()
    return reader.chat

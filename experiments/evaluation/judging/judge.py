"""A language model as the judge of answers and contexts; see `experiments.evaluation.judging.figures`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import corag
from corag.errors import InputError
from corag.models.chat.base import Chat, ChatError, Messages
from corag.naming import Spelling
from corag.readers.chat import ChatReader
from experiments.evaluation.judging.figures import FIGURES, GRADE, JudgedFigure, Reading, Verdict, parsed, row_of


class Judge:
    """Judges with a model, greedy by default for repeatable figures.

    Args:
        chat: The model.
        figures: Names of `FIGURES`.
    """

    def __init__(self, chat: Chat, figures: Sequence[str] = (GRADE,)) -> None:
        self._chat = chat
        self._figures = [FIGURES[name] for name in figures]
        self.prompt_text = "\n".join(figure.asked.text for figure in self._figures)

    def judge(self, question: str, answers: Sequence[str], references: Sequence[str]) -> list[Verdict]:
        """Grade answers to a question against its right answers; a server that keeps failing is a `ChatError`."""
        readings = [Reading(question, tuple(references), "", answer) for answer in answers]
        found = self._verdicts([(FIGURES[GRADE], reading) for reading in readings])
        return [verdict or Verdict(None, "there is no reference") for verdict in found]

    def figures(self, readings: Sequence[Reading]) -> list[dict[str, Any]]:
        """Return the figures of each reading as rows have them; a server that keeps failing is a `ChatError`."""
        verdicts = iter(self._verdicts([(figure, reading) for reading in readings for figure in self._figures]))
        return [row_of({figure.key: next(verdicts) for figure in self._figures}) for _ in readings]

    def _verdicts(self, wanted: Sequence[tuple[JudgedFigure, Reading]]) -> list[Verdict | None]:
        """Return a verdict for each, None where there can be none; equal requests are made once."""
        asked: dict[str, Messages] = {}
        keys = []
        for figure, reading in wanted:
            messages = figure.asked.messages(**figure.fields(reading))
            keys.append(json.dumps([figure.name, messages]))
            if figure.known(reading) is None:
                asked[keys[-1]] = messages
        with ThreadPoolExecutor(self._chat.max_concurrent) as pool:
            replies = dict(zip(asked, pool.map(self._reply, asked.values()), strict=True))
        found: list[Verdict | None] = []
        for key, (figure, reading) in zip(keys, wanted, strict=True):
            known = figure.known(reading)
            if known is None:
                found.append(parsed(figure, replies[key], reading))
            else:
                found.append(Verdict(known, "") if isinstance(known, float) else None)
        return found

    def _reply(self, messages: Messages) -> str | ChatError:
        try:
            return self._chat.ask(messages).text
        except ChatError as error:
            if error.can_retry:
                raise  # a later run may bring it
            return error


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

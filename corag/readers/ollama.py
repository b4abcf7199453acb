"""A reader that asks a model of an Ollama server.

This module knows nothing about chunks, selections or token budgets.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from corag.models.ollama_chat import Messages, OllamaChat, OllamaError, OllamaSettings
from corag.naming import Part
from corag.readers.context import answer_chunk
from corag.readers.prompt import NO_ANSWER, SYSTEM, TEMPLATE, check_template, says_no_answer, user_message
from corag.types import Answer

__all__ = ["NO_ANSWER", "SYSTEM", "TEMPLATE", "OllamaError", "OllamaReader"]


@dataclass(frozen=True, kw_only=True, eq=False)
class OllamaReader(Part, OllamaSettings):
    """Answers questions with a model of an Ollama server; needs `pip install 'corag[ollama]'`.

    Threads may share one reader. For repeated tries, see `corag.models.ollama_chat.OllamaChat`; for the settings of
    model and server, `OllamaSettings` there.

    Attributes:
        system: System message.
        template: User message, with `{context}` and `{query}` where these go.

    Raises:
        InputError: A setting is out of its range.
        MissingExtraError: The package `ollama` is not installed.
    """

    system: str = SYSTEM
    template: str = TEMPLATE
    _chat: OllamaChat = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_template(self.template)
        object.__setattr__(self, "_chat", OllamaChat(self))

    @property
    def name(self) -> str:
        """`ollama/` and the model."""
        return f"ollama/{self.model}"

    def answer(self, query: str, context: str) -> Answer:
        """Return the model's reply, stripped; the text is empty when the model says `NO_ANSWER`.

        The confidence is the geometric mean of the probabilities of the reply's tokens, and 0 when there is no answer;
        None where the server does not tell them (see `OllamaChat.ask`). The chunk is that of
        `corag.readers.context.answer_chunk`.

        Raises:
            InputError: The query is empty.
            OllamaError: No try brought a whole reply.
        """
        written = self._chat.ask(self._messages(query, context), with_scores=True)
        reply, scores = written.text.strip(), written.log_probabilities
        # Rounding may bring a sum of logarithms above 0.
        confidence = min(math.exp(math.fsum(scores) / len(scores)), 1.0) if scores else None
        if says_no_answer(reply):
            return Answer("", confidence=None if confidence is None else 0.0)
        return Answer(reply, confidence=confidence, chunk=answer_chunk(reply, context))

    def stream(self, query: str, context: str) -> Iterator[str]:
        """Return an iterator over the pieces of the model's reply as they arrive; see `OllamaChat.stream`.

        Raises:
            InputError: The query is empty.
            OllamaError: While iterating: the reply did not begin or did not end.
        """
        return self._chat.stream(self._messages(query, context))

    def _messages(self, query: str, context: str) -> Messages:
        return [
            {"role": "system", "content": self.system},
            {"role": "user", "content": user_message(self.template, query, context)},
        ]

"""A reader that asks a model of an Ollama server.

This module knows nothing about chunks, selections or token budgets.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator

from corag.models.ollama_chat import Messages, OllamaChat, OllamaError
from corag.readers.prompt import NO_ANSWER, SYSTEM, TEMPLATE, check_template, says_no_answer, user_message
from corag.readers.provenance import answer_chunk
from corag.types import Answer

__all__ = ["NO_ANSWER", "SYSTEM", "TEMPLATE", "OllamaError", "OllamaReader"]


class OllamaReader:
    """Answers questions with a model of an Ollama server; needs `pip install 'corag[ollama]'`.

    Threads may share one reader. When a try is repeated, see `corag.models.ollama_chat.OllamaChat`.

    Attributes:
        name: `ollama/` and the model.
        model: Name of the model.
        host: Address of the server.

    Args:
        model: Name of a model that the server has (`ollama list`).
        host: Address of the server; None means the environment variable OLLAMA_HOST, else this machine.
        timeout_s: Longest silence of the server, in seconds, before a try is given up; it includes the
            time to load the model.
        retries: Further tries after the first.
        backoff_s: Seconds before the second try; doubles with every further one.
        max_backoff_s: Most seconds between two tries.
        temperature: Sampling temperature; 0 is greedy.
        seed: Seed of the sampling.
        num_ctx: Tokens of the model's context window; None leaves it to the server. A server cuts a longer
            prompt without a word, so it should hold the budget, the question, the prompt and the answer.
        stream: Whether `answer` receives the reply in pieces, or in one.
        system: System message.
        template: User message, with `{context}` and `{query}` where these go.
        on_token: Called by `answer` with each piece of text. Joined, the pieces are the reply, however many
            tries it took: a repeated try hands on only what goes beyond the text already handed on, and
            one that contradicts it is an error.
        sleep: Waits the given seconds between two tries.

    Raises:
        InputError: A setting is out of its range.
        MissingExtraError: The package `ollama` is not installed.
    """

    def __init__(
        self,
        *,
        model: str = "llama3.1:8b",
        host: str | None = None,
        timeout_s: float = 120.0,
        retries: int = 3,
        backoff_s: float = 0.5,
        max_backoff_s: float = 8.0,
        temperature: float = 0.0,
        seed: int = 0,
        num_ctx: int | None = None,
        stream: bool = True,
        system: str = SYSTEM,
        template: str = TEMPLATE,
        on_token: Callable[[str], None] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        check_template(template)
        self._chat = OllamaChat(
            model=model,
            host=host,
            timeout_s=timeout_s,
            retries=retries,
            backoff_s=backoff_s,
            max_backoff_s=max_backoff_s,
            temperature=temperature,
            seed=seed,
            num_ctx=num_ctx,
            sleep=sleep,
        )
        self.name = f"ollama/{model}"
        self.model = model
        self.host = self._chat.host
        self._stream = stream
        self._system = system
        self._template = template
        self._on_token = on_token

    def answer(self, query: str, context: str) -> Answer:
        """Return the model's reply, stripped; the text is empty when the model says `NO_ANSWER`.

        The confidence is the geometric mean of the probabilities of the reply's tokens, and 0 when there is no answer;
        None where the server does not tell them (see `OllamaChat.ask_with_scores`). The chunk is that of
        `corag.readers.provenance.answer_chunk`.

        Raises:
            InputError: The query is empty.
            OllamaError: No try brought a whole reply.
        """
        written = self._chat.ask_with_scores(
            self._messages(query, context), stream=self._stream, on_token=self._on_token
        )
        reply, scores = written.text.strip(), written.log_probabilities
        # Rounding may bring a sum of logarithms above 0.
        confidence = min(math.exp(math.fsum(scores) / len(scores)), 1.0) if scores else None
        if says_no_answer(reply):
            return Answer("", confidence=None if confidence is None else 0.0)
        return Answer(reply, confidence=confidence, chunk=answer_chunk(reply, context))

    def stream(self, query: str, context: str) -> Iterator[str]:
        """Return an iterator over the pieces of the model's reply as they arrive.

        Tries are repeated until the first piece is there. A break after it is an error, since what has
        been handed out cannot be taken back. Closing the iterator stops the model.

        Raises:
            InputError: The query is empty.
            OllamaError: While iterating: the reply did not begin or did not end.
        """
        return self._chat.stream(self._messages(query, context))

    def check(self) -> None:
        """Return when the server is there and has the model; send one request and never retry.

        Raises:
            OllamaError: The server or the model is missing; the message says what to do.
        """
        self._chat.check()

    def _messages(self, query: str, context: str) -> Messages:
        return [
            {"role": "system", "content": self._system},
            {"role": "user", "content": user_message(self._template, query, context)},
        ]

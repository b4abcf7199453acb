"""Readers that ask a language model: `openai`, `ollama`, `transformers`.

This module knows prompts and answers; `corag.models.chat` knows how the models are asked.
"""

from __future__ import annotations

import math
import re
from collections.abc import Generator, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

from corag.errors import InputError
from corag.models.chat.base import ChatReply, ChatSettings, Messages
from corag.models.chat.local import LocalSettings
from corag.models.chat.prompts import Prompt, prompt
from corag.models.chat.servers import DEFAULT_OLLAMA_MODEL, OllamaSettings, OpenAISettings
from corag.optional import warn_once
from corag.readers.context import MARKER, answer_chunk
from corag.text.documents import SEPARATOR
from corag.types import Answer, TokenCounter

NO_ANSWER = "I don't know"
"""The reply that the shipped prompts ask for if the context does not contain the answer."""

NUMBERED = "numbered_context"
"""The field of a prompt for a context whose parts have citation markers."""

_THOUGHT = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)


@dataclass(frozen=True, kw_only=True, eq=False)
class ChatReader(ChatSettings):
    """Answers with the reply of a language model; the base of `openai`, `ollama` and `transformers`.

    Threads may share one reader.

    Attributes:
        prompt: What the model is asked: `short`, `sentences`, `cited`, `paper-crag`, or the path of a text file with
            the fields `{question}` and `{context}`, or `{numbered_context}`, in which parts begin with `[1]`, `[2]`,
            ...; see `corag.models.chat.prompts`.
    """

    prompt: str = "short"
    _before: ClassVar[tuple[tuple[str, str], ...]] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.asked, self.chat  # what is wrong with them is to be told now

    @cached_property
    def asked(self) -> Prompt:
        """The prompt."""
        return prompt(str(self.prompt), "corag/prompts", needs=["question"], one_of=["context", NUMBERED])

    @property
    def name(self) -> str:
        """Kind and name of the model, such as `ollama/llama3.1:8b`."""
        return self.chat.name

    @property
    def identity(self) -> str:
        """What answers depend on besides question and context."""
        return f"{self.chat.identity} {self.asked.text!r}{f' {self._before!r}' if self._before else ''}"

    def after(self, turns: Iterable[tuple[str, str]]) -> Self:
        """Return this reader with earlier questions and their answers before the last message of its prompts."""
        made = copy(self)
        object.__setattr__(made, "_before", tuple(turns))
        return made

    @cached_property
    def tokens(self) -> TokenCounter:
        """Counts as the model does, or, where its tokenizer is not at hand, an upper bound; markers are no context."""
        return self.chat.tokens

    @property
    def window_tokens(self) -> int | None:
        """The most tokens of prompt and answer together; None where that is not known."""
        return self.chat.window_tokens

    def prompt_tokens(self, query: str, context: str = "") -> int:
        """Return the tokens of the whole prompt, chat template included; with no context, of what surrounds one."""
        return self.chat.count(self._messages(query, context))

    def answer(self, query: str, context: str) -> Answer:
        """Return the model's reply; see `answer_many`."""
        return self.answer_many([query], [context])[0]

    def answer_many(self, queries: Sequence[str], contexts: Sequence[str]) -> list[Answer]:
        """Return the model's reply to each question, stripped; an empty text where it finds no answer.

        The confidence is the geometric mean of the probabilities of the reply's tokens, and 0 where there is no answer;
        None where a server does not tell them. The chunk is the first one that the reply cites, else that of
        `corag.readers.context.answer_chunk`.

        Raises:
            InputError: A question is empty, or a prompt longer than the model takes.
            ReaderError: A server gave no whole reply.
        """
        conversations = [self._messages(*pair) for pair in zip(queries, contexts, strict=True)]
        replies = self.chat.ask_many(conversations, scored=True)
        return [self._answer(reply, context) for reply, context in zip(replies, contexts, strict=True)]

    def stream(self, query: str, context: str) -> Generator[str, None, Answer]:
        """Yield the pieces of the model's reply as they arrive, and return the answer; closing it stops the model.

        Raises:
            InputError: As for `answer_many`.
            ReaderError: While iterating: the reply did not begin or did not end.
        """
        return self._streamed(self.chat.stream(self._messages(query, context), scored=True), context)

    def _streamed(self, pieces: Generator[str, None, ChatReply], context: str) -> Generator[str, None, Answer]:
        return self._answer((yield from pieces), context)

    @property
    def _numbers(self) -> bool:
        return NUMBERED in self.asked.fields

    def _messages(self, query: str, context: str) -> Messages:
        if not query.strip():
            raise InputError(f"query must be a question, got {query!r}; give a text that is not empty")
        values = {NUMBERED: numbered(context)} if self._numbers else {"context": context}
        *first, last = self.asked.messages(question=query, **values)
        for question, answer in self._before:
            first += [{"role": "user", "content": question}, {"role": "assistant", "content": answer or NO_ANSWER}]
        return [*first, last]

    def _answer(self, reply: ChatReply, context: str) -> Answer:
        text, scores = without_thoughts(reply.text), reply.log_probabilities
        # Rounding may bring a sum of logarithms above 0.
        confidence = min(math.exp(math.fsum(scores) / len(scores)), 1.0) if scores else None
        if not text:
            warn_once(
                f"{self.chat.title} sent an empty reply, which counts as no answer; if it often does, try it by hand"
            )
        if not text or says_no_answer(text):
            empty = None if confidence is None else 0.0
            return Answer("", empty, prompt_tokens=reply.prompt_tokens, answer_tokens=reply.answer_tokens)
        cited = citations(text, context) if self._numbers else ()
        return Answer(
            text,
            confidence,
            chunk=cited[0] if cited else answer_chunk(text, context),
            citations=cited,
            cut=reply.cut,
            prompt_tokens=reply.prompt_tokens,
            answer_tokens=reply.answer_tokens,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class OllamaReader(ChatReader, OllamaSettings):
    """Asks a model of an Ollama server; needs `pip install 'corag[ollama]'`.

    For the settings see `ChatReader`, `corag.models.chat.servers.OllamaSettings` and
    `ServerSettings` there.
    """

    # Fields of the first base, which has no default here, count last.
    model: str = DEFAULT_OLLAMA_MODEL


@dataclass(frozen=True, kw_only=True, eq=False)
class OpenAIReader(ChatReader, OpenAISettings):
    """Asks a model of an OpenAI-compatible server; needs `pip install 'corag[openai]'`.

    For the settings see `ChatReader`, `corag.models.chat.servers.OpenAISettings` and
    `ServerSettings` there.
    """


@dataclass(frozen=True, kw_only=True, eq=False)
class TransformersReader(ChatReader, LocalSettings):
    """Runs a causal language model in this process; needs `pip install 'corag[models]'`.

    For the settings see `ChatReader` and `corag.models.chat.local.LocalSettings`.
    """

    # Questions that callers may hand it together; `batch_tokens` says how many share a batch.
    max_concurrent: ClassVar[int] = 16


def numbered(context: str) -> str:
    """Return a context whose parts, which empty lines divide, begin with `[1] `, `[2] `, ...

    Chosen sentences of one document are one part.
    """
    parts = enumerate(context.split(SEPARATOR), start=1)
    return SEPARATOR.join(f"[{number}] {part}" if part.strip() else part for number, part in parts)


def citations(reply: str, context: str) -> tuple[int, ...]:
    """Return the parts of a context that a reply cites, counted from 0, each once, in the order of the reply."""
    num_parts = len(context.split(SEPARATOR))
    found = (int(number) - 1 for number in MARKER.findall(reply))
    return tuple(dict.fromkeys(place for place in found if 0 <= place < num_parts))


def without_thoughts(reply: str) -> str:
    """Return a reply, stripped, without what a model thought before it."""
    return _THOUGHT.sub("", reply).strip()


def says_no_answer(reply: str) -> bool:
    """Return whether a reply is `NO_ANSWER`."""
    return reply.rstrip(".").replace("\u2019", "'").casefold() == NO_ANSWER.casefold()

"""Chats with a language model on a server; `corag.models.servers` has those of Ollama, and of OpenAI and its like.

Replies are always streamed, so that a silent server is noticed after `timeout_s`, however long a whole reply takes. A
reply counts only when it is whole: one that breaks off is an error, and never returned as an answer.
"""

from __future__ import annotations

import json
import os
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from multiprocessing.pool import ThreadPool
from typing import Any, ClassVar
from urllib.parse import urlsplit

from common.checks import check_count, check_range, check_text, well_formed
from corag.errors import CoragError, InputError, ReaderError
from corag.models.prompts import Messages
from corag.optional import needed, warn_once
from corag.registry import Part
from corag.registry import tokens as make_tokens
from corag.text.tokens import estimate, tokens_for_model
from corag.text.visible import one_line
from corag.types import TokenCounter

MESSAGE_TOKENS = 8
"""The most that a chat template puts around a message, if the template itself is unknown."""
CHAT_TOKENS = 32
"""The most that it puts around all of them, such as today's date."""
MOST_ALTERNATIVES = 20
"""Alternatives of a token that servers tell; OpenAI, vLLM and Ollama refuse more."""
_MOST_SECONDS = 86_400


class ChatError(ReaderError):
    """A model gave no whole reply.

    Attributes:
        can_retry: Whether the same request may succeed later.
    """

    def __init__(self, message: str, *, can_retry: bool = False) -> None:
        super().__init__(message)
        self.can_retry = can_retry


@dataclass(slots=True)
class ChatReply:
    """A reply.

    Attributes:
        first_tokens: Log-probabilities of what its first token might have been; empty if they were not requested, or
            the server has none.
        cut: Whether it ends because `max_answer_tokens` were written.
        prompt_tokens: As the model counted them, as the next; None if a server does not say.
    """

    text: str = ""
    first_tokens: Mapping[str, float] = field(default_factory=dict)
    cut: bool = False
    prompt_tokens: int | None = None
    answer_tokens: int | None = None

    def add_alternatives(self, tokens: Sequence[Any] | None) -> None:
        """Add what a server tells of further tokens, each with `top_logprobs`."""
        if tokens and not self.first_tokens:
            self.first_tokens = {one.token: float(one.logprob) for one in tokens[0].top_logprobs or ()}


@dataclass(kw_only=True, eq=False)
class Chat(Part, ABC):
    """A language model to chat with: the base of the readers and summarizers that ask one. Threads may share it.

    Attributes:
        model: Name of a model that the server has.
        timeout_s: Longest silence of the server, in seconds; it includes the time to load the model.
        max_answer_tokens: Maximum tokens of a reply.
        temperature: Sampling temperature; 0 is greedy.
        seed: Seed of the sampling.
        max_concurrent: Maximum requests at the same time; the server may queue some of them.
        tokenizer: Counts the tokens of prompts, by name or as an object; by default the model's own, if it is on this
            machine (see `corag.text.tokens.tokens_for_model`) or the server tells its tokens, else an estimate.

    Raises:
        InputError: A setting is out of range, or the address is invalid.
        MissingExtraError: The client package is not installed.
    """

    package: ClassVar[str]
    """The client package, and the extra that installs it."""
    remedy: ClassVar[str]
    """For a request that failed; with `{address}` and `{model}`."""

    model: str
    timeout_s: float = 120.0
    max_answer_tokens: int = 512
    temperature: float = 0.0
    seed: int = 0
    max_concurrent: int = 4
    tokenizer: str | TokenCounter | None = None

    def __post_init__(self) -> None:
        check_count("max_answer_tokens", self.max_answer_tokens, "typical: 64-1024")
        check_range("temperature", self.temperature, 0, 100, "0 is greedy")
        check_count("seed", self.seed, "typical: 0", least=0)
        check_count("max_concurrent", self.max_concurrent, "typical: 1-8")
        if not str(self.model).strip():
            raise InputError(f"model must be the name of a model, got {self.model!r}")
        check_range("timeout_s", self.timeout_s, 0.001, _MOST_SECONDS, "typical: 120")
        with needed(self.package, self.package):
            self._client, url = self._connect()
        parts = urlsplit(url)
        # Without a password that the URL may hold.
        self.address = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")

    @abstractmethod
    def _connect(self) -> tuple[Any, str]:
        """Return the package's client and the server's URL."""

    @abstractmethod
    def _pieces(self, messages: Messages, reply: ChatReply, *, first_tokens: bool) -> Generator[str, None, None]:
        """Send one request, yield each piece of text that arrives, and fill in all else of the reply.

        With `first_tokens`, the reply is one token.
        """

    @abstractmethod
    def _probe(self) -> object:
        """Ask the server whether it has the model."""

    def check(self) -> None:
        """Return if the server is there and has the model; else raise a `ChatError`, which says what to do."""
        try:
            self._probe()
        except Exception as error:
            raise self._explained(error) from error

    @property
    def name(self) -> str:
        """Kind and name of the model, such as `ollama/llama3.1:8b`."""
        return f"{self.package}/{self.model}"

    @property
    def identity(self) -> str:
        """Everything that a reply depends on besides the messages."""
        return json.dumps([self.package, self.model, self.temperature, self.seed, self.max_answer_tokens])

    @cached_property
    def counter(self) -> TokenCounter:
        """Counts as the model does; an estimate, flagged as such, if its tokenizer is not at hand."""
        if self.tokenizer is not None:
            return make_tokens(self.tokenizer)
        if (own := tokens_for_model(self.model)) is not None:
            return own
        warn_once(
            f"the tokenizer of model {self.model!r} is not on this machine, so tokens are estimated, "
            "usually 10 to 30% too many; name it with --tokenizer, such as "
            "meta-llama/Llama-3.1-8B-Instruct, gpt-4o or a tokenizer.json, to count exactly"
        )
        return estimate()

    @property
    @abstractmethod
    def context_window(self) -> int | None:
        """Tokens of the model's window, as far as it is known."""

    def count(self, messages: Messages) -> int:
        """Return an upper estimate of the tokens of the whole prompt: servers keep their chat templates."""
        contents = self.counter.count([message["content"] for message in messages])
        return int(contents.sum()) + MESSAGE_TOKENS * len(messages) + CHAT_TOKENS

    def ask_many(self, conversations: Sequence[Messages], *, first_tokens: bool = False) -> list[ChatReply]:
        """Return the reply to each conversation, at most `max_concurrent` at a time; the first failure ends all.

        With `first_tokens`, a reply is one token, and has the log-probabilities of the likeliest ones, if the server
        tells any.

        Raises:
            InputError: A prompt does not fit the window, or is not valid Unicode.
            ReaderError: A reply is missing.
        """
        for messages in conversations:
            self._check(messages)

        def whole(messages: Messages) -> ChatReply:
            pieces = self._streamed(messages, first_tokens=first_tokens)
            while True:
                try:
                    next(pieces)
                except StopIteration as end:
                    reply: ChatReply = end.value
                    return reply

        if len(conversations) == 1:
            return [whole(conversations[0])]
        # Unlike those of `concurrent.futures`, these threads do not keep an interrupted process waiting for a reply.
        with ThreadPool(self.max_concurrent) as pool:
            return pool.map(whole, conversations, chunksize=1)

    def stream_reply(self, messages: Messages) -> Generator[str, None, ChatReply]:
        """Yield the pieces of a reply as they arrive, none empty, and return the whole; closing stops the model.

        It raises as `ask_many`; a `ReaderError` while iterating.
        """
        self._check(messages)
        return self._streamed(messages)

    def ask(self, messages: Messages) -> ChatReply:
        """Return the whole reply to one conversation; see `ask_many`."""
        return self.ask_many([messages])[0]

    def _check(self, messages: Messages) -> None:
        for message in messages:
            check_text("a message", message["content"])
        if (window := self.context_window) is None:
            return
        if (prompt_tokens := self.count(messages)) + self.max_answer_tokens > window:
            counted = "" if self.counter.exact else " (an upper estimate: name the model's tokenizer to count exactly)"
            raise InputError(
                f"the prompt has {prompt_tokens} tokens{counted} and the reply up to {self.max_answer_tokens}, more "
                f"than the {window} of the window of {self.title}; lower the token budget or max_answer_tokens, or "
                "shorten the question"
            )

    def _streamed(self, messages: Messages, *, first_tokens: bool = False) -> Generator[str, None, ChatReply]:
        reply, limit = ChatReply(), self.max_answer_tokens
        try:
            with closing(self._pieces(messages, reply, first_tokens=first_tokens)) as pieces:
                for piece in pieces:
                    if text := well_formed(piece):
                        reply.text += text
                        yield text
        except Exception as error:
            raise self._explained(error) from error
        if first_tokens:
            return reply
        if reply.cut and reply.answer_tokens is not None and reply.answer_tokens < limit:
            raise ChatError(
                f"{self.title} stopped after {reply.answer_tokens} of up to {limit} tokens: its window is full; "
                "lower the token budget, or give the model a larger window"
            )
        if reply.cut and not reply.text.strip():
            raise ChatError(
                f"{self.title} used up {limit} tokens before it began its answer; raise max_answer_tokens, or turn off "
                "the model's reasoning"
            )
        return reply

    @property
    def title(self) -> str:
        """The model, and where it is, for errors."""
        return f"the model {self.model!r} of the {self.package} server at {self.address}"

    def _explained(self, error: Exception) -> CoragError:
        """Return what a client raised as an error that names server, model and remedy."""
        if isinstance(error, CoragError):
            return error
        reason = str(error.__cause__ or error) or type(error).__name__
        for key in (os.environ.get("OPENAI_API_KEY"), os.environ.get("OLLAMA_API_KEY")):
            reason = reason.replace(key, "***") if key else reason  # servers echo keys
        reason = textwrap.shorten(one_line(reason[:2000]), width=300, placeholder=" ...").rstrip(".")
        status = getattr(error, "status_code", None)
        can_retry = not isinstance(status, int) or status in (408, 429) or status >= 500
        answer = f"answered with HTTP {status}" if isinstance(status, int) and status > 0 else "gave no whole answer"
        remedy = self.remedy.format(address=self.address, model=self.model)
        return ChatError(f"{self.title} {answer}: {reason}; {remedy}", can_retry=can_retry)

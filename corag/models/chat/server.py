"""Asks a language model on a server: many requests at once, tries repeated, time and size of replies bounded.

A reply counts only when it is whole: one that breaks off is asked for again or becomes an error, and is never returned
as an answer.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import cached_property
from queue import SimpleQueue
from typing import Any, ClassVar

from corag.checks import check_count
from corag.errors import CoragError, InputError, MissingExtraError
from corag.models.chat import loop
from corag.models.chat.base import Chat, ChatError, ChatSettings, Messages, Written, counted
from corag.models.chat.faults import Faults, explained
from corag.models.chat.guard import HEADERS, event_hooks, harmless
from corag.naming import Spelling
from corag.registry import tokens as make_tokens
from corag.text.tokens.families import at_hand, upper_bound
from corag.types import TokenCounter

_CONNECT_TIMEOUT_S = 10.0
# The window is asked for only where a prompt may reach it: no model in use has a smaller one.
_SMALL_WINDOW = 2048

Hear = Callable[[str], None]
"""Called with each piece of a reply."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ServerSettings(ChatSettings):
    """How to ask a model on a server, and how it writes.

    Attributes:
        timeout_s: Longest silence of the server, in seconds, before a try is given up; it includes the time to load
            the model.
        max_reply_s: Maximum seconds of a whole reply.
        max_reply_mb: Maximum megabytes of a whole reply, counted after decompression.
        retries: Further tries after the first.
        backoff_s: Seconds before the second try; doubles with every further one, and half of it is random. A server
            that names a longer time gets it, up to `timeout_s`.
        max_backoff_s: Maximum seconds between two tries, where the server names none.
        temperature: Sampling temperature; 0 is greedy.
        seed: Seed of the sampling.
        max_concurrent: Requests at the same time; the server may let some of them wait.
        tokenizer: Counts the tokens of prompts, by name or as an object; by default the model's own where it is on this
            machine or the server tells it, else an upper bound; see `corag.text.tokens.families`.
    """

    timeout_s: float = 120.0
    max_reply_s: float = 600.0
    max_reply_mb: float = 16.0
    retries: int = 3
    backoff_s: float = 0.5
    max_backoff_s: float = 8.0
    temperature: float = 0.0
    seed: int = 0
    max_concurrent: int = 4
    tokenizer: Spelling | TokenCounter | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("timeout_s", "max_reply_s", "max_reply_mb"):
            if not 0 < (value := getattr(self, name)) < math.inf:
                raise InputError(f"{name} must be a finite number above 0, got {value!r}")
        for name in ("backoff_s", "max_backoff_s", "temperature"):
            if not 0 <= (value := getattr(self, name)) < math.inf:
                raise InputError(f"{name} must be a finite number of at least 0, got {value!r}")
        check_count("retries", self.retries, "3 are usual", least=0)
        check_count("seed", self.seed, "0 is usual", least=0)
        check_count("max_concurrent", self.max_concurrent, "1 to 8 are usual")


class ServerChat(Chat):
    """A model on a server.

    A try is repeated after an unreachable server, a time-out, HTTP 408, 429 or 5xx, and a broken or malformed reply;
    not after any other 4xx, and not after a reply that is too long or takes too long, since the same seed would bring
    the same again. No connection is held between requests.

    Args:
        settings: Model, server and limits.
        address: URL of the server.

    Raises:
        InputError: The address is none.
        MissingExtraError: A package is not installed.
    """

    kind: ClassVar[str]
    label: ClassVar[str]
    """What the server is, for errors: `no KIND server answers`, `LABEL sent nothing`."""
    package: ClassVar[str]
    """The package that speaks with it, and the extra that brings it."""
    hints: ClassVar[dict[str, str]]
    """Remedies: `start`, `slow`, `look`, `model`, `refused`, `malformed`; they may use `{address}` and `{model}`."""

    def __init__(self, settings: ServerSettings, address: str) -> None:
        self.settings, self.address, self.model = settings, address.rstrip("/"), settings.model
        self.name = f"{self.package}/{settings.model}"
        self.max_answer_tokens, self.max_concurrent = settings.max_answer_tokens, settings.max_concurrent
        self._free = asyncio.Semaphore(settings.max_concurrent)
        self._looked = False
        self._found_window: int | None = None
        try:
            self._client = self._connect()
        except ImportError as error:
            raise MissingExtraError(
                f"{self.kind} models need the package {self.package!r}; install it with "
                f"`pip install 'corag[{self.package}]'`"
            ) from error

    # --- What each kind of server does in its own way ---

    @abstractmethod
    def _connect(self) -> Any:
        """Return the package's client, on top of `_http_settings`."""

    @abstractmethod
    def _pieces(self, messages: Messages, scored: bool) -> AsyncGenerator[Written]:
        """Send one request and yield the pieces of its reply; the last one says whether it was cut."""

    @abstractmethod
    async def _look(self) -> int | None:
        """Ask for the model; return its window, None where the server does not tell it."""

    # --- What all do alike ---

    @property
    def identity(self) -> str:
        """Everything that a reply depends on besides the messages."""
        settings = self.settings
        return json.dumps([self.package, self.model, settings.temperature, settings.seed, settings.max_answer_tokens])

    @cached_property
    def tokens(self) -> TokenCounter:
        """Counts as the setting `tokenizer` says; see `ServerSettings`."""
        tokenizer = self.settings.tokenizer
        if tokenizer is not None:
            return make_tokens(tokenizer)
        return at_hand(self.model) or self._served_tokens() or upper_bound(self.model)

    def _served_tokens(self) -> TokenCounter | None:
        """Return the counter of the server itself, where it has one."""
        return None

    @property
    def window_tokens(self) -> int | None:
        """The model's window as the server tells it, asked once; None where it does not."""
        return loop.run(self._window())

    async def _window(self) -> int | None:
        if not self._looked:
            try:
                async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                    self._found_window = await self._look()
            except Exception:  # noqa: BLE001  (a server that cannot answer this may still chat, or will say why not)
                self._found_window = None
            self._looked = True
        return self._found_window

    def count(self, messages: Messages) -> int:
        """Return an upper estimate of the tokens of the whole prompt: servers keep their chat templates."""
        return counted(messages, self.tokens)

    def check(self) -> None:
        """Return when the server is there and has the model; send one request and never retry.

        Raises:
            ChatError: The server or the model is missing; the message says what to do.
        """
        try:
            loop.run(asyncio.wait_for(self._look(), self.settings.timeout_s))
        except TimeoutError as error:
            raise ChatError(
                f"{self._server} did not end its reply within {self.settings.timeout_s:g} s; raise timeout_s, or "
                f"{self._faults.hints['slow']}"
            ) from error
        except Exception as error:
            raise self._explained(error) from error

    def ask_many(self, conversations: Sequence[Messages], *, scored: bool = False) -> list[Written]:
        """Return the whole reply to each conversation, at most `max_concurrent` at a time; the first failure ends all.

        Raises:
            ChatError: No try brought a whole reply.
            InputError: A prompt does not fit the window, or is not valid Unicode.
        """
        for messages in conversations:
            self._check(messages)
        return loop.run(self._ask_all(conversations, scored))

    def stream(self, messages: Messages, *, scored: bool = False) -> Generator[str, None, Written]:
        """Yield the pieces of the reply as they arrive, none empty, and return the whole.

        Tries are repeated until the first piece is there. A break after it is an error, since what has been handed out
        cannot be taken back. Closing the iterator stops the model.

        Raises:
            ChatError: The reply did not begin or did not end.
            InputError: As for `ask_many`.
        """
        self._check(messages)
        return self._streamed(messages, scored)

    def _streamed(self, messages: Messages, scored: bool) -> Generator[str, None, Written]:
        pieces: SimpleQueue[str | None] = SimpleQueue()
        future = loop.start(self._ask(messages, scored, pieces.put))
        future.add_done_callback(lambda _: pieces.put(None))
        try:
            while (piece := pieces.get()) is not None:
                yield piece
            return future.result()
        finally:
            future.cancel()

    def _check(self, messages: Messages) -> None:
        if (prompt_tokens := self.count(messages)) + self.max_answer_tokens > _SMALL_WINDOW:
            self.check_window(prompt_tokens)

    async def _ask_all(self, conversations: Sequence[Messages], scored: bool) -> list[Written]:
        tasks = [asyncio.ensure_future(self._ask_in_turn(messages, scored)) for messages in conversations]
        try:
            return list(await asyncio.gather(*tasks))
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    async def _ask_in_turn(self, messages: Messages, scored: bool) -> Written:
        async with self._free:
            return await self._ask(messages, scored)

    async def _ask(self, messages: Messages, scored: bool, hear: Hear | None = None) -> Written:
        """Return a whole reply; try again after a failure, unless a piece was heard."""
        num_tries, wait_s, heard = 1, self.settings.backoff_s, False

        def hear_once(piece: str) -> None:
            nonlocal heard
            heard = True
            if hear is not None:
                hear(piece)

        while True:
            try:
                return await self._try(messages, scored, hear_once)
            except ChatError as error:
                asked_s = error.retry_after_s or 0.0
                hopeless = not error.can_retry or asked_s > self.settings.timeout_s or (heard and hear is not None)
                if hopeless or num_tries > self.settings.retries:
                    tries = f" (tried {num_tries} times)" if num_tries > 1 else ""
                    raise ChatError(f"{error}{tries}", can_retry=error.can_retry) from error
            await pause(max(min(wait_s, self.settings.max_backoff_s) * random.uniform(0.5, 1.0), asked_s))
            num_tries, wait_s = num_tries + 1, wait_s * 2

    async def _try(self, messages: Messages, scored: bool, hear: Hear) -> Written:
        """Send one request and return its whole reply."""
        found: list[Written] = []
        try:
            async with asyncio.timeout(self.settings.max_reply_s), aclosing(self._pieces(messages, scored)) as pieces:
                async for piece in pieces:
                    found.append(piece := replace(piece, text=harmless(piece.text)))
                    if piece.text:
                        hear(piece.text)
        except Exception as error:
            raise self._explained(error, sum(len(piece.text) for piece in found)) from error
        reply = Written(
            "".join(piece.text for piece in found),
            tuple(score for piece in found for score in piece.log_probabilities),
            any(piece.cut for piece in found),
            next((piece.prompt_tokens for piece in reversed(found) if piece.prompt_tokens is not None), None),
            next((piece.answer_tokens for piece in reversed(found) if piece.answer_tokens is not None), None),
        )
        self._check_end(reply)
        return reply

    def _check_end(self, reply: Written) -> None:
        """Raise `ChatError` for a reply that was cut by the model's window, or before it began."""
        limit = self.max_answer_tokens
        if reply.cut and reply.answer_tokens is not None and reply.answer_tokens < limit:
            raise ChatError(
                f"{self._server} stopped after {reply.answer_tokens} of up to {limit} tokens, because the model's "
                "window is full; lower the token budget, or give the model a larger window"
            )
        if reply.cut and not reply.text.strip():
            raise ChatError(
                f"{self._server} used up {limit} tokens before it began its answer; raise max_answer_tokens, or turn "
                "off the model's reasoning"
            )

    # --- Errors ---

    @property
    def title(self) -> str:
        """The model, and where it is, for errors."""
        return f"the model {self.model!r} of {self._server}"

    @property
    def _server(self) -> str:
        return f"{self.label} at {self.address}"

    @property
    def _http_settings(self) -> dict[str, Any]:
        """Settings of an `httpx.AsyncClient` with the bounds of this chat."""
        import httpx

        settings = self.settings
        try:
            if httpx.URL(self.address).host == "":
                raise ValueError("it names no host")
            hooks = event_hooks(self.address, int(settings.max_reply_mb * 1e6))
        except (ValueError, httpx.InvalidURL) as error:
            raise InputError(
                f"the address of a server must be a URL such as http://127.0.0.1:8000, got {self.address!r}: {error}"
            ) from error
        return {
            "timeout": httpx.Timeout(settings.timeout_s, connect=min(settings.timeout_s, _CONNECT_TIMEOUT_S)),
            # Without idle connections there is nothing to close, and none that the server has closed already.
            "limits": httpx.Limits(max_keepalive_connections=0),
            "follow_redirects": True,
            "headers": HEADERS,
            "event_hooks": hooks,
        }

    def _explained(self, error: Exception, num_received: int = 0) -> CoragError:
        return explained(error, self._faults, num_received)

    @property
    def _faults(self) -> Faults:
        hints = {name: hint.format(address=self.address, model=self.model) for name, hint in self.hints.items()}
        return Faults(self.kind, self._server, self.address, self.model, self.settings, hints)


async def pause(seconds: float) -> None:
    """Wait between two tries."""
    await asyncio.sleep(seconds)

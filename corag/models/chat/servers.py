"""Chats with a model on a server: Ollama's, or any OpenAI-compatible one, through their own client packages.

Replies are always streamed, so that a silent server is noticed after `timeout_s`, however long a whole reply takes. A
reply counts only when it is whole: one that breaks off is an error, and never returned as an answer.
"""

from __future__ import annotations

import json
import math
import os
import re
import textwrap
import threading
from abc import abstractmethod
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from multiprocessing.pool import ThreadPool
from typing import Any, ClassVar
from urllib.parse import urlsplit

from corag.checks import check_count
from corag.errors import CoragError, InputError
from corag.models.chat.base import CHAT_TOKENS, MESSAGE_TOKENS, Chat, ChatError, ChatReply, Messages
from corag.naming import Spelling
from corag.optional import needed, warn_once
from corag.registry import tokens as make_tokens
from corag.text.tokens.models import tokens_for_model
from corag.text.visible import one_line, well_formed
from corag.types import TokenCounter

DEFAULT_OLLAMA_MODEL = "llama3.1:8b"
_OLLAMA_HOST = "http://127.0.0.1:11434"
_OPENAI = "https://api.openai.com/v1"
# The characters of a reply for each of its `max_answer_tokens`; far above what any vocabulary has.
_MAX_TOKEN_CHARACTERS = 64
# Ollama loads the model again for another window, so windows grow in steps.
_MIN_WINDOW = 4096
# Names of the window in model descriptions: vLLM, llama.cpp, LM Studio, OpenRouter.
_WINDOW_NAMES = ("max_model_len", "n_ctx", "loaded_context_length", "max_context_length", "context_length")
# Fields of a request that some servers refuse without naming them.
_OPTIONAL_FIELDS = ("logprobs", "stream_options", "seed")


@dataclass(kw_only=True, eq=False)
class ServerChat(Chat):
    """A model on a server.

    Attributes:
        timeout_s: Longest silence of the server, in seconds; it includes the time to load the model.
        temperature: Sampling temperature; 0 is greedy.
        seed: Seed of the sampling.
        max_concurrent: Maximum requests at the same time; the server may queue some of them.
        tokenizer: Counts the tokens of prompts, by name or as an object; by default the model's own if it is on this
            machine, else an estimate; see `corag.text.tokens.models.tokens_for_model`.

    Raises:
        InputError: A setting is out of range, or the address or the key is invalid.
        MissingExtraError: The client package is not installed.
    """

    label: ClassVar[str]
    """The kind of server, for errors."""
    package: ClassVar[str]
    """The client package, and the extra that installs it."""
    remedies: ClassVar[dict[str, str]]
    """For a server that does not `start` to answer, lacks the `model`, `refused` the request, or `failed`; they may use
    `{address}` and `{model}`."""

    timeout_s: float = 120.0
    temperature: float = 0.0
    seed: int = 0
    max_concurrent: int = 4
    tokenizer: Spelling | TokenCounter | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.timeout_s < math.inf:
            raise InputError(f"timeout_s must be a finite number above 0, got {self.timeout_s!r}")
        if not 0 <= self.temperature < math.inf:
            raise InputError(f"temperature must be a finite number of at least 0, got {self.temperature!r}")
        check_count("seed", self.seed, "0 is usual", least=0)
        check_count("max_concurrent", self.max_concurrent, "1 to 8 are usual")
        url, self._key, self._window = self._server()
        try:
            parts = urlsplit(url)
            valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            valid = False
        if not valid:
            raise InputError(f"the address of a server must be a URL such as http://127.0.0.1:8000, got {url!r}")
        if self._key and not (self._key.isascii() and self._key.isprintable()):
            raise InputError(f"the key to the {self.label} holds characters that no key has; copy it again")
        # Without a password that the URL may hold.
        self.address = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")
        self._free = threading.BoundedSemaphore(self.max_concurrent)
        with needed(self.package, self.package):
            self._client = self._connect(url.rstrip("/"))

    # --- What differs between kinds of servers ---

    @abstractmethod
    def _server(self) -> tuple[str, str | None, int | None]:
        """Return the server's URL, the key to it, which appears in no error, and the model's window if it is set."""

    @abstractmethod
    def _connect(self, url: str) -> Any:
        """Return the package's client."""

    @abstractmethod
    def _pieces(self, messages: Messages, scored: bool) -> Generator[ChatReply, None, None]:
        """Send one request and yield the pieces of its reply; the last one says whether it was cut."""

    @abstractmethod
    def _read_window(self) -> int | None:
        """Ask for the model; return its window, None if the server does not tell it."""

    @abstractmethod
    def _client_errors(self) -> tuple[tuple[type[Exception], ...], tuple[type[Exception], ...]]:
        """Return the client's errors for a time-out, and for a server that cannot be reached."""

    # --- What they have in common ---

    @property
    def name(self) -> str:
        """Kind and name of the model."""
        return f"{self.package}/{self.model}"

    @property
    def title(self) -> str:
        """The model, and where it is, for errors."""
        return f"the model {self.model!r} of the {self.label} at {self.address}"

    @property
    def identity(self) -> str:
        """Everything that a reply depends on besides the messages."""
        return json.dumps([self.package, self.model, self.temperature, self.seed, self.max_answer_tokens])

    @cached_property
    def counter(self) -> TokenCounter:
        """Counts as the setting `tokenizer` says."""
        return tokens_for_model(self.model) if self.tokenizer is None else make_tokens(self.tokenizer)

    @cached_property
    def context_window(self) -> int | None:
        """The window that is set, else the model's as the server tells it; None if it does not."""
        try:
            return self._window or self._read_window()
        except Exception:  # noqa: BLE001  (a server that cannot answer this may still chat, or will say why not)
            return None

    def count(self, messages: Messages) -> int:
        """Return an upper estimate of the tokens of the whole prompt: servers keep their chat templates."""
        contents = self.counter.count([message["content"] for message in messages])
        return int(contents.sum()) + MESSAGE_TOKENS * len(messages) + CHAT_TOKENS

    def check(self) -> None:
        """Return if the server is there and has the model; else raise a `ChatError`, which says what to do."""
        try:
            self._read_window()
        except Exception as error:
            raise self._explained(error) from error

    def ask_many(self, conversations: Sequence[Messages], *, scored: bool = False) -> list[ChatReply]:
        """Return the reply to each conversation, at most `max_concurrent` at a time; the first failure ends all."""
        for messages in conversations:
            self._check(messages)
        stopped = threading.Event()

        def whole(row: int) -> tuple[int, ChatReply]:
            with self._free, closing(self._streamed(conversations[row], scored)) as pieces:
                while not stopped.is_set():
                    try:
                        next(pieces)
                    except StopIteration as end:
                        return row, end.value
            raise ChatError("another request failed, or the run was interrupted", can_retry=True)

        if len(conversations) == 1:
            return [whole(0)[1]]
        # Unlike those of `concurrent.futures`, these threads do not keep an interrupted process waiting for a reply.
        with ThreadPool(self.max_concurrent) as pool:
            try:
                replies = dict(pool.imap_unordered(whole, range(len(conversations))))
            finally:
                stopped.set()
        return [replies[row] for row in range(len(conversations))]

    def stream_reply(self, messages: Messages, *, scored: bool = False) -> Generator[str, None, ChatReply]:
        """Yield the pieces of the reply as they arrive, and return the whole; see `Chat`."""
        self._check(messages)
        return self._streamed(messages, scored)

    def _check(self, messages: Messages) -> None:
        try:
            for message in messages:
                message["content"].encode()
        except UnicodeEncodeError as error:
            raise InputError(f"a message is not valid Unicode ({error}); decode it with errors='replace'") from error
        if self.context_window is not None:
            self.check_window(self.count(messages))

    def _streamed(self, messages: Messages, scored: bool) -> Generator[str, None, ChatReply]:
        received: list[ChatReply] = []
        num_characters, limit = 0, self.max_answer_tokens
        try:
            with closing(self._pieces(messages, scored)) as pieces:
                for piece in pieces:
                    text = well_formed(piece.text)
                    received.append(replace(piece, text=text))
                    num_characters += len(text)
                    if num_characters + len(received) > _MAX_TOKEN_CHARACTERS * (limit + 1):
                        raise ChatError(
                            f"{self.title} keeps writing beyond {limit} tokens; check that the server keeps "
                            "max_answer_tokens, or raise it"
                        )
                    if text:
                        yield text
        except Exception as error:
            raise self._explained(error, num_characters) from error
        reply = ChatReply(
            "".join(piece.text for piece in received),
            tuple(score for piece in received for score in piece.log_probabilities),
            any(piece.cut for piece in received),
            _last(piece.prompt_tokens for piece in received),
            _last(piece.answer_tokens for piece in received),
        )
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

    def _explained(self, error: Exception, num_received: int = 0) -> CoragError:
        """Return an error, raised after `num_received` characters, as one that names server, model and remedy.

        Clients do not check what a server sends, so whatever they raise is attributed to the server.
        """
        if isinstance(error, CoragError):
            return error
        status, reason = getattr(error, "status_code", None), self._reason(error)
        time_outs, unreachable = self._client_errors()
        can_retry, remedy = True, "failed"
        if isinstance(status, int) and status >= 300:
            can_retry = status in (408, 429) or status >= 500
            remedy = "failed" if can_retry else "model" if status == 404 else "refused"
            message = f"answered with HTTP {status}: {reason}" + ("; lower max_concurrent" if status == 429 else "")
        elif isinstance(error, time_outs):
            message = f"sent nothing for {self.timeout_s:g} s; raise timeout_s"
        elif isinstance(error, unreachable) and not num_received:
            message, remedy = f"does not answer: {reason}", "start"
        else:
            message = f"broke off, or sent what is no reply, after {num_received} characters: {reason}"
        advice = self.remedies[remedy].format(address=self.address, model=self.model)
        return ChatError(f"{self.title} {message}; {advice}", can_retry=can_retry)

    def _reason(self, error: Exception) -> str:
        """Return what an error says, or what it was raised from: clients wrap the cause."""
        cause: BaseException = error
        while cause.__cause__ is not None and not hasattr(cause, "status_code"):
            cause = cause.__cause__
        reason = one_line(str(cause)[:2000]) or type(cause).__name__  # an error page may have megabytes
        if self._key:
            reason = reason.replace(self._key, "***")
        return textwrap.shorten(reason, width=300, placeholder=" ...").rstrip(".")


def _last(counts: Iterable[int | None]) -> int | None:
    return next((count for count in reversed(list(counts)) if count is not None), None)


# --- Ollama: https://github.com/ollama/ollama/blob/main/docs/api.md ---


@dataclass(kw_only=True, eq=False)
class OllamaChat(ServerChat):
    """A model of an Ollama server; needs `pip install 'corag[ollama]'`. See `ServerChat` for the other settings.

    Attributes:
        model: Name of a model that the server has (`ollama list`).
        host: Address of the server; by default the environment variable OLLAMA_HOST, else this machine.
        num_ctx: Tokens of the model's context window. A server cuts a longer prompt without an error, so by default the
            window is made large enough for prompt and reply.
    """

    label: ClassVar = "Ollama server"
    package: ClassVar = "ollama"
    remedies: ClassVar = {
        "start": "start one with `ollama serve`, or set host or OLLAMA_HOST to where it runs",
        "model": "get it with `ollama pull {model}`, or set host to a server that has it",
        "refused": "check the settings against `ollama show {model}`, and OLLAMA_API_KEY if it needs a key",
        "failed": "look into the log of `ollama serve`, and check host with `curl {address}/api/version`",
    }

    model: str = DEFAULT_OLLAMA_MODEL
    host: str | None = field(default=None, repr=False)
    num_ctx: int | None = None

    def __post_init__(self) -> None:
        if self.num_ctx is not None:
            check_count("num_ctx", self.num_ctx, "4096 or 8192 are usual")
        self._num_ctx = self.num_ctx or _MIN_WINDOW
        super().__post_init__()

    def _server(self) -> tuple[str, str | None, int | None]:
        return ollama_address(self.host), os.environ.get("OLLAMA_API_KEY"), self.num_ctx

    def _connect(self, url: str) -> Any:
        import httpx
        import ollama

        # Without idle connections there are none that the server has closed already.
        return ollama.Client(url, timeout=self.timeout_s, limits=httpx.Limits(max_keepalive_connections=0))

    def _client_errors(self) -> tuple[tuple[type[Exception], ...], tuple[type[Exception], ...]]:
        import httpx

        return (httpx.TimeoutException,), (ConnectionError, httpx.ConnectError)

    def _read_window(self) -> int | None:
        import pydantic

        try:
            about = self._client.show(self.model).modelinfo or {}
        except pydantic.ValidationError:
            return None  # the client insists on a field that some models lack; the server has the model all the same
        return _window_in({name: length for name, length in about.items() if name.endswith(".context_length")})

    def _grown_window(self, messages: Messages) -> int:
        """Return a window that holds prompt and reply, never smaller than before."""
        needed = self.count(messages) + self.max_answer_tokens
        if self.num_ctx is None and needed > self._num_ctx:
            grown, limit = 1 << (needed - 1).bit_length(), self.context_window
            self._num_ctx = grown if limit is None else min(grown, max(limit, self._num_ctx))
        return self._num_ctx

    def _pieces(self, messages: Messages, scored: bool) -> Generator[ChatReply, None, None]:
        options = {
            "temperature": self.temperature,
            "seed": self.seed,
            "num_ctx": self._grown_window(messages),
            "num_predict": self.max_answer_tokens,
        }
        # Servers have log-probabilities since version 0.12.11; older ones, and models that run elsewhere, have none.
        reply = self._client.chat(self.model, messages, stream=True, options=options, logprobs=scored or None)
        with closing(reply):
            for part in reply:
                yield ChatReply(
                    part.message.content or "",
                    tuple(float(token.logprob) for token in part.logprobs or ()),
                    part.done_reason == "length",
                    part.prompt_eval_count,
                    part.eval_count if part.done else None,
                )
                if part.done:
                    return
        raise EOFError("it ended without its last line")


def ollama_address(host: str | None = None) -> str:
    """Return the URL of a host, by default of OLLAMA_HOST or this machine; scheme and port may be left out."""
    host = host or os.environ.get("OLLAMA_HOST") or _OLLAMA_HOST
    url = host if "://" in host else f"http://{host}"
    try:
        parts = urlsplit(url)
        has_port = parts.port is not None
    except ValueError as error:
        raise InputError(f"host must be an address such as {_OLLAMA_HOST}, got {host!r}: {error}") from error
    return url if has_port or parts.scheme != "http" else parts._replace(netloc=f"{parts.netloc}:11434").geturl()


# --- OpenAI-compatible servers: vLLM, llama.cpp, LM Studio, Ollama's `/v1`, hosted ones ---


@dataclass(kw_only=True, eq=False)
class OpenAIChat(ServerChat):
    """A model of an OpenAI-compatible server; needs `pip install 'corag[openai]'`. See `ServerChat` for other settings.

    A field that the server refuses, such as `logprobs`, is omitted from then on.

    Attributes:
        model: Name of a model that the server has (`GET /models`).
        base_url: Address of the server, most often with `/v1`; by default the environment variable OPENAI_BASE_URL,
            else OpenAI's own.
        api_key: Key to the server; by default the environment variable OPENAI_API_KEY, which, unlike a setting, is
            recorded nowhere. Servers on one's own machine need none.
        window: Tokens of the model's context window; by default as the server tells it.
        retries: Further attempts of the client before a reply has begun: after time-outs, HTTP 408, 409, 429 and 5xx.
    """

    secrets: ClassVar[frozenset[str]] = frozenset({"api_key"})
    label: ClassVar = "OpenAI-compatible server"
    package: ClassVar = "openai"
    remedies: ClassVar = {
        "start": "start one there, or set base_url or OPENAI_BASE_URL to where it runs",
        "model": "list its models with `curl {address}/models`, and check that base_url ends as the server wants it, "
        "most often with /v1",
        "refused": "check the settings, and api_key or OPENAI_API_KEY",
        "failed": "raise retries, look into the log of the server, and check base_url with `curl {address}/models`",
    }

    base_url: str | None = field(default=None, repr=False)
    api_key: str | None = field(default=None, repr=False)
    window: int | None = None
    retries: int = 3

    def __post_init__(self) -> None:
        check_count("retries", self.retries, "3 are usual", least=0)
        if self.window is not None:
            check_count("window", self.window, "4096 to 131072 are usual")
        self._refused: frozenset[str] = frozenset()
        super().__post_init__()

    def _server(self) -> tuple[str, str | None, int | None]:
        url = self.base_url or os.environ.get("OPENAI_BASE_URL") or _OPENAI
        key = self.api_key or os.environ.get("OPENAI_API_KEY")
        if not key and url.rstrip("/") == _OPENAI:
            raise InputError(
                f"{_OPENAI} needs a key; set OPENAI_API_KEY, or set base_url to a server of your own that needs none"
            )
        return url, key, self.window

    def _connect(self, url: str) -> Any:
        import openai

        return openai.OpenAI(
            base_url=url, api_key=self._key or "none", timeout=self.timeout_s, max_retries=self.retries
        )

    def _client_errors(self) -> tuple[tuple[type[Exception], ...], tuple[type[Exception], ...]]:
        import openai

        return (openai.APITimeoutError,), (openai.APIConnectionError,)

    def _read_window(self) -> int | None:
        import openai

        try:
            models = self._client.with_options(max_retries=0).models.list().data or []
        except openai.APIStatusError as error:
            if error.status_code in (401, 403):
                raise
            return None  # it need not list its models
        about = [model for model in models if model.id == self.model] or (models if len(models) == 1 else [])
        described: dict[str, Any] = (about[0].model_extra or {}) if about else {}
        described = described | (meta if isinstance(meta := described.get("meta"), dict) else {})
        return _window_in({name: described.get(name) for name in _WINDOW_NAMES})

    def _pieces(self, messages: Messages, scored: bool) -> Generator[ChatReply, None, None]:
        cut: bool | None = None
        with self._begun(messages, scored) as reply:
            for chunk in reply:
                choice = chunk.choices[0] if chunk.choices else None
                if choice is not None and choice.finish_reason is not None:
                    cut = choice.finish_reason == "length"
                    if choice.finish_reason == "content_filter":
                        raise ChatError(f"{self.title} withheld its reply: the server's filter objects to the content")
                scores = getattr(choice.logprobs, "content", None) if choice is not None else None
                yield ChatReply(
                    (choice.delta.content or "") if choice is not None else "",
                    tuple(float(token.logprob) for token in scores or ()),
                    bool(cut),
                    None if chunk.usage is None else int(chunk.usage.prompt_tokens),
                    None if chunk.usage is None else int(chunk.usage.completion_tokens),
                )
        if cut is None:
            raise EOFError("it ended without its last event")

    def _begun(self, messages: Messages, scored: bool) -> Any:
        """Send one request; if the server refuses fields, send it again without them."""
        import openai

        refused = self._refused
        while True:
            fields = self._fields(scored, refused)
            try:
                reply = self._client.chat.completions.create(model=self.model, messages=messages, stream=True, **fields)
            except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
                named = [
                    name for name in fields if name != "max_completion_tokens" and re.search(rf"\b{name}\b", str(error))
                ]
                if not (dropped := named or [name for name in _OPTIONAL_FIELDS if name in fields]):
                    raise
                refused = refused.union(dropped)
                continue
            if refused != self._refused:
                warn_once(f"{self.title} does not take {', '.join(sorted(refused))}; it is asked without")
                self._refused = refused
            return reply

    def _fields(self, scored: bool, refused: frozenset[str]) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "temperature": self.temperature,
            "seed": self.seed,
            "stream_options": {"include_usage": True},
            **({"logprobs": True} if scored else {}),
            # Its new name; older servers do not know it, and some newer models refuse the old one.
            ("max_completion_tokens" if "max_tokens" in refused else "max_tokens"): self.max_answer_tokens,
        }
        return {name: value for name, value in fields.items() if name not in refused}


def _window_in(described: Mapping[str, Any]) -> int | None:
    """Return the first positive whole number."""
    return next((window for window in described.values() if isinstance(window, int) and window > 0), None)

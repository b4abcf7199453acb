"""Chats with a model of an Ollama server (https://github.com/ollama/ollama/blob/main/docs/api.md).

A reply counts only when it is whole: one that breaks off is asked for again or becomes an error, and is
never returned as an answer. This module knows nothing about questions, chunks or summaries.
"""

from __future__ import annotations

import math
import os
import textwrap
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from corag.errors import InputError, MissingExtraError, ReaderError

_DEFAULT_HOST = "http://127.0.0.1:11434"
_CONNECT_TIMEOUT_S = 10.0

Messages = list[dict[str, str]]
_T = TypeVar("_T")


class OllamaError(ReaderError):
    """An Ollama server gave no whole answer.

    Attributes:
        partial_text: The longest part of an answer that any try received; empty when none came.
        can_retry: Whether the same request may succeed later.
        num_tries: Requests sent before giving up.
    """

    def __init__(self, message: str, *, partial_text: str = "", can_retry: bool = False) -> None:
        super().__init__(message)
        self.partial_text = partial_text
        self.can_retry = can_retry
        self.num_tries = 1

    def __str__(self) -> str:
        tries = f" (tried {self.num_tries} times)" if self.num_tries > 1 else ""
        return super().__str__() + tries


@dataclass(frozen=True, slots=True)
class Written:
    """A whole reply.

    Attributes:
        text: The reply.
        log_probabilities: Of its tokens, `[T]`; empty when they were not asked for or the server has none.
    """

    text: str
    log_probabilities: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class OllamaSettings:
    """How to reach a model of an Ollama server, and how it writes: base of the parts that use one.

    Attributes:
        model: Name of a model that the server has (`ollama list`).
        host: Address of the server; None means the environment variable OLLAMA_HOST, else this machine.
        timeout_s: Longest silence of the server, in seconds, before a try is given up; it includes the time to load
            the model.
        retries: Further tries after the first.
        backoff_s: Seconds before the second try; doubles with every further one.
        max_backoff_s: Most seconds between two tries.
        temperature: Sampling temperature; 0 is greedy.
        seed: Seed of the sampling.
        num_ctx: Tokens of the model's context window; None leaves it to the server. A server cuts a longer prompt
            without an error, so the window must hold prompt and reply.
        sleep: Waits the given seconds between two tries.

    Raises:
        InputError: A setting is out of its range.
    """

    model: str = "llama3.1:8b"
    host: str | None = None
    timeout_s: float = 120.0
    retries: int = 3
    backoff_s: float = 0.5
    max_backoff_s: float = 8.0
    temperature: float = 0.0
    seed: int = 0
    num_ctx: int | None = None
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        require_setting(bool(self.model.strip()), "model", self.model, "the name of a model (see `ollama list`)")
        require_setting(0 < self.timeout_s < math.inf, "timeout_s", self.timeout_s, "a finite number above 0")
        for name in ("backoff_s", "max_backoff_s", "temperature"):
            value = getattr(self, name)
            require_setting(0 <= value < math.inf, name, value, "a finite number of at least 0")
        for name in ("retries", "seed"):
            require_setting(getattr(self, name) >= 0, name, getattr(self, name), "at least 0")
        fits = self.num_ctx is None or self.num_ctx >= 1
        require_setting(fits, "num_ctx", self.num_ctx, "at least 1, or None for the server's own")

    @property
    def options(self) -> dict[str, float]:
        """The options of a request."""
        options = {"temperature": self.temperature, "seed": self.seed, "num_ctx": self.num_ctx}
        return {name: value for name, value in options.items() if value is not None}


class OllamaChat:
    """A model of an Ollama server to chat with; needs `pip install 'corag[ollama]'`.

    A try is repeated after an unreachable server, a time-out, HTTP 429 or 5xx, and a broken or malformed
    reply; not after any other 4xx, and not after an empty reply or one that stopped for length, since the
    same seed would bring the same again. Threads may share one object. It holds no connection between calls.

    Args:
        settings: Model and server.

    Attributes:
        model: Name of the model.
        host: Address of the server.
        options: Options of its requests.

    Raises:
        InputError: The host is no address.
        MissingExtraError: The package `ollama` is not installed.
    """

    def __init__(self, settings: OllamaSettings | None = None) -> None:
        self._settings = settings or OllamaSettings()
        self.model, self.options = self._settings.model, self._settings.options
        self.host = self._settings.host or os.environ.get("OLLAMA_HOST") or _DEFAULT_HOST
        self._client = _connect(self.host, self._settings.timeout_s)

    def ask(
        self,
        messages: Messages,
        *,
        stream: bool = True,
        on_token: Callable[[str], None] | None = None,
        with_scores: bool = False,
    ) -> Written:
        """Return the model's whole reply.

        Args:
            messages: Role and content of each.
            stream: Whether the reply is received in pieces, or in one.
            on_token: Called with each piece of text. Joined, the pieces are the reply, however many tries it
                took: a repeated try passes on only what goes beyond the text already passed on, and one that
                contradicts it is an error.
            with_scores: Whether to ask for the log-probabilities of the tokens. Servers have them since version 0.12.11
                (https://github.com/ollama/ollama/releases/tag/v0.12.11); older ones, and models that run elsewhere,
                leave them out.

        Raises:
            OllamaError: No try brought a whole reply.
        """
        relay = _Relay(on_token)

        def attempt() -> Written:
            scores: list[float] | None = [] if with_scores else None
            with closing(self._pieces(messages, stream=stream, scores=scores)) as pieces:
                return Written(relay.read(pieces), tuple(scores or ()))

        return self._with_retries(attempt)

    def stream(self, messages: Messages) -> Iterator[str]:
        """Return an iterator over the pieces of the model's reply as they arrive.

        Tries are repeated until the first piece is there. A break after it is an error, since what has
        been handed out cannot be taken back. Closing the iterator stops the model.

        Raises:
            OllamaError: While iterating: the reply did not begin or did not end.
        """

        def begin() -> tuple[str, Generator[str]]:
            pieces = self._pieces(messages, stream=True)
            return next(pieces), pieces

        first, rest = self._with_retries(begin)
        with closing(rest):
            yield first
            yield from rest

    def check(self) -> None:
        """Return when the server is there and has the model; send one request and never retry.

        Raises:
            OllamaError: The server or the model is missing; the message says what to do.
        """
        import pydantic

        # The client insists on a field that some models lack; the server knows these models all the same.
        with self._clear_errors(), suppress(pydantic.ValidationError):
            self._client.show(self.model)

    def _with_retries(self, attempt: Callable[[], _T]) -> _T:
        num_tries, wait_s, partial_text = 0, self._settings.backoff_s, ""
        while True:
            num_tries += 1
            try:
                return attempt()
            except OllamaError as error:
                partial_text = max(partial_text, error.partial_text, key=len)
                if num_tries > self._settings.retries or not error.can_retry:
                    error.num_tries, error.partial_text = num_tries, partial_text
                    raise
            self._settings.sleep(min(wait_s, self._settings.max_backoff_s))
            wait_s *= 2

    def _pieces(self, messages: Messages, *, stream: bool, scores: list[float] | None = None) -> Generator[str]:
        """Send one request and yield its pieces, one or more, none empty; raise unless the reply is whole.

        Log-probabilities of the tokens are asked for, and put into `scores`, where it is a list.
        """
        text = ""
        with closing(self._parts(messages, stream=stream, with_scores=scores is not None)) as parts:
            while True:
                with self._clear_errors(text):
                    part = next(parts, None)
                if part is None:
                    raise self._broken_off("it ended without its last line", text)
                if scores is not None:
                    scores += [token.logprob for token in part.logprobs or ()]
                if part.message.content:
                    text += part.message.content
                    yield part.message.content
                if part.done:
                    break
        self._require_whole(text, part.done_reason)

    def _parts(self, messages: Messages, *, stream: bool, with_scores: bool) -> Generator[Any]:
        reply = self._client.chat(
            model=self.model,
            messages=messages,
            stream=stream,
            options=self.options,
            logprobs=True if with_scores else None,
        )
        if stream:
            yield from reply
        else:
            yield reply

    def _require_whole(self, text: str, done_reason: str | None) -> None:
        if done_reason == "length":
            raise OllamaError(
                f"{self._server} stopped after {len(text)} characters at its length limit; "
                "raise num_ctx or lower the token budget",
                partial_text=text,
            )
        if not text.strip():
            raise OllamaError(
                f"{self._server} sent an empty reply from model {self.model!r}; "
                f"try `ollama run {self.model}` by hand, or set another model"
            )

    @property
    def _server(self) -> str:
        return f"Ollama at {self.host}"

    def _broken_off(self, reason: object, partial_text: str) -> OllamaError:
        return OllamaError(
            f"{self._server} broke off its reply after {len(partial_text)} characters: {_short(reason)}; "
            "look for the cause in the log of `ollama serve`",
            partial_text=partial_text,
            can_retry=True,
        )

    @contextmanager
    def _clear_errors(self, partial_text: str = "") -> Iterator[None]:
        """Turn what the client raises into errors that name the host and the remedy."""
        import httpx
        import ollama

        try:
            yield
        except (
            ConnectionError,
            httpx.ConnectError,
            httpx.ConnectTimeout,
            httpx.UnsupportedProtocol,
        ) as error:
            raise OllamaError(
                f"no Ollama server answers at {self.host}: {_short(error)}; start one with `ollama serve`, "
                "or set host or OLLAMA_HOST to where it runs",
                can_retry=not isinstance(error, httpx.UnsupportedProtocol),
            ) from error
        except httpx.TimeoutException as error:
            raise OllamaError(
                f"{self._server} sent nothing for {self._settings.timeout_s:g} s; raise timeout_s, "
                "or check with `ollama ps` that the model fits into memory",
                partial_text=partial_text,
                can_retry=True,
            ) from error
        except httpx.RequestError as error:
            raise self._broken_off(error, partial_text) from error
        except ollama.ResponseError as error:
            raise self._refused(error.status_code, error.error, partial_text) from error
        except UnicodeEncodeError as error:
            raise InputError(f"a message is not valid Unicode ({error}); decode it with errors='replace'") from error
        except (ValueError, TypeError, AttributeError) as error:
            # The client checks neither that a line is an object nor that its error is a text.
            raise OllamaError(
                f"{self._server} sent a malformed reply: {_short(error)}; "
                f"check with `curl {self.host}/api/version` that host is an Ollama server",
                partial_text=partial_text,
                can_retry=True,
            ) from error

    def _refused(self, status: int, reason: object, partial_text: str) -> OllamaError:
        """Return the error for a reply that carries one; a status below 0 means in mid-stream."""
        if status < 0:
            return self._broken_off(reason, partial_text)
        if status == 404:
            return OllamaError(
                f"{self._server} has no model {self.model!r}: {_short(reason)}; "
                f"get it with `ollama pull {self.model}`, or set host to a server that has it"
            )
        if status == 429 or status >= 500:
            return OllamaError(
                f"{self._server} failed with HTTP {status}: {_short(reason)}; send fewer requests at once, "
                "raise retries, or look for the cause in the log of `ollama serve`",
                can_retry=True,
            )
        return OllamaError(
            f"{self._server} refused the request with HTTP {status}: {_short(reason)}; "
            f"check the settings against `ollama show {self.model}`, and OLLAMA_API_KEY if it needs a key"
        )


class _Relay:
    """Hands each part of an answer on once, over all tries."""

    def __init__(self, on_token: Callable[[str], None] | None) -> None:
        self._on_token = on_token
        self._delivered = ""

    def read(self, pieces: Iterable[str]) -> str:
        """Return the joined pieces of one try."""
        text = ""
        for piece in pieces:
            text += piece
            if self._on_token is not None:
                self._hand_on(text, self._on_token)
        if not text.startswith(self._delivered):
            raise self._contradiction()
        return text

    def _hand_on(self, text: str, on_token: Callable[[str], None]) -> None:
        if text.startswith(self._delivered):
            news, self._delivered = text[len(self._delivered) :], text
            if news:
                on_token(news)
        elif not self._delivered.startswith(text):
            raise self._contradiction()

    def _contradiction(self) -> OllamaError:
        return OllamaError(
            f"a reply broke off after {len(self._delivered)} characters, which on_token has received, "
            "and the next try differs; set temperature=0, or ask again without on_token",
            partial_text=self._delivered,
        )


def _connect(host: str, timeout_s: float) -> Any:
    try:
        import httpx
        import ollama
    except ImportError as error:
        raise MissingExtraError(
            "Ollama models need the package 'ollama'; install it with `pip install 'corag[ollama]'`"
        ) from error
    try:
        return ollama.Client(
            host,
            timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_TIMEOUT_S)),
            # Without idle connections there is nothing to close, and none that the server has closed already.
            limits=httpx.Limits(max_keepalive_connections=0),
        )
    except (ValueError, httpx.InvalidURL) as error:
        raise InputError(f"host must be an address such as {_DEFAULT_HOST}, got {host!r}: {error}") from error


def require_setting(holds: bool, name: str, value: object, rule: str) -> None:
    """Raise `InputError` for a setting that breaks its rule."""
    if not holds:
        raise InputError(f"{name} must be {rule}, got {value!r}")


def _short(reason: object) -> str:
    return textwrap.shorten(str(reason), width=200, placeholder=" ...")

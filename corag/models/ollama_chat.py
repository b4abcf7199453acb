"""Chats with a model of an Ollama server (https://github.com/ollama/ollama/blob/main/docs/api.md).

A reply counts only when it is whole: one that breaks off is asked for again or becomes an error, and is
never returned as an answer. This module knows nothing about questions, chunks or summaries.
"""

from __future__ import annotations

import math
import os
import textwrap
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from corag.errors import CoragError, InputError, MissingExtraError, ReaderError

_DEFAULT_HOST = "http://127.0.0.1:11434"
_CONNECT_TIMEOUT_S = 10.0

Messages = list[dict[str, str]]
_T = TypeVar("_T")


class OllamaError(ReaderError):
    """An Ollama server gave no whole answer.

    Attributes:
        can_retry: Whether the same request may succeed later.
    """

    def __init__(self, message: str, *, can_retry: bool = False) -> None:
        super().__init__(message)
        self.can_retry = can_retry


class Written(NamedTuple):
    """A whole reply, or a piece of one.

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
        rules: dict[str, tuple[Callable[[Any], bool], str]] = {
            "model": (lambda name: bool(name.strip()), "the name of a model (see `ollama list`)"),
            "timeout_s": (lambda value: 0 < value < math.inf, "a finite number above 0"),
            "num_ctx": (lambda value: value is None or value >= 1, "at least 1, or None for the server's own"),
        }
        finite = (lambda value: 0 <= value < math.inf, "a finite number of at least 0")
        rules |= dict.fromkeys(("backoff_s", "max_backoff_s", "temperature"), finite)
        rules |= dict.fromkeys(("retries", "seed"), (lambda value: value >= 0, "at least 0"))
        for name, (holds, rule) in rules.items():
            if not holds(value := getattr(self, name)):
                raise InputError(f"{name} must be {rule}, got {value!r}")

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

    Raises:
        InputError: The host is no address.
        MissingExtraError: The package `ollama` is not installed.
    """

    def __init__(self, settings: OllamaSettings | None = None) -> None:
        self._settings = settings or OllamaSettings()
        self.model, self.options = self._settings.model, self._settings.options
        self.host = self._settings.host or os.environ.get("OLLAMA_HOST") or _DEFAULT_HOST
        self._client = _connect(self.host, self._settings.timeout_s)

    def ask(self, messages: Messages, *, with_scores: bool = False) -> Written:
        """Return the model's whole reply.

        Args:
            messages: Role and content of each.
            with_scores: Whether to ask for the log-probabilities of the tokens. Servers have them since version 0.12.11
                (https://github.com/ollama/ollama/releases/tag/v0.12.11); older ones, and models that run elsewhere,
                leave them out.

        Raises:
            OllamaError: No try brought a whole reply.
        """
        pieces = self._with_retries(lambda: list(self._pieces(messages, with_scores)))
        scores = [score for piece in pieces for score in piece.log_probabilities]
        return Written("".join(piece.text for piece in pieces), tuple(scores))

    def stream(self, messages: Messages) -> Iterator[str]:
        """Yield the pieces of the model's reply as they arrive, none empty.

        Tries are repeated until the first piece is there. A break after it is an error, since what has
        been handed out cannot be taken back. Closing the iterator stops the model.

        Raises:
            OllamaError: The reply did not begin or did not end.
        """

        def begin() -> tuple[Written, Generator[Written]]:
            pieces = (piece for piece in self._pieces(messages) if piece.text)
            return next(pieces), pieces

        first, rest = self._with_retries(begin)
        with closing(rest):
            yield first.text
            for piece in rest:
                yield piece.text

    def check(self) -> None:
        """Return when the server is there and has the model; send one request and never retry.

        Raises:
            OllamaError: The server or the model is missing; the message says what to do.
        """
        import pydantic

        try:
            self._client.show(self.model)
        except pydantic.ValidationError:
            pass  # the client insists on a field that some models lack; the server knows these models all the same
        except Exception as error:
            raise self._explained(error) from error

    def _with_retries(self, attempt: Callable[[], _T]) -> _T:
        num_tries, wait_s = 1, self._settings.backoff_s
        while True:
            try:
                return attempt()
            except OllamaError as error:
                if num_tries > self._settings.retries or not error.can_retry:
                    tries = f" (tried {num_tries} times)" if num_tries > 1 else ""
                    raise OllamaError(f"{error}{tries}", can_retry=error.can_retry) from error
            self._settings.sleep(min(wait_s, self._settings.max_backoff_s))
            num_tries, wait_s = num_tries + 1, wait_s * 2

    def _pieces(self, messages: Messages, with_scores: bool = False) -> Generator[Written]:
        """Send one request and yield the pieces of its reply; raise unless that is whole."""
        import httpx

        text, logprobs = "", True if with_scores else None
        try:
            reply = self._client.chat(self.model, messages, stream=True, options=self.options, logprobs=logprobs)
            with closing(reply):
                for part in reply:
                    text += part.message.content or ""
                    yield Written(part.message.content or "", tuple(token.logprob for token in part.logprobs or ()))
                    if part.done:
                        break
                else:
                    raise httpx.RemoteProtocolError("it ended without its last line")
        except Exception as error:
            raise self._explained(error, len(text)) from error
        if part.done_reason == "length":
            raise OllamaError(
                f"Ollama at {self.host} stopped after {len(text)} characters at its length limit; "
                "raise num_ctx or lower the token budget"
            )
        if not text.strip():
            raise OllamaError(
                f"Ollama at {self.host} sent an empty reply from model {self.model!r}; "
                f"try `ollama run {self.model}` by hand, or set another model"
            )

    def _explained(self, error: Exception, num_received: int = 0) -> CoragError:
        """Return the client's error, raised after `num_received` characters, as one that names host and remedy.

        Any other error is raised as it is.
        """
        import httpx
        import ollama

        server, look, can_retry = f"Ollama at {self.host}", "look for the cause in the log of `ollama serve`", True
        refused = isinstance(error, ollama.ResponseError)
        status: int = getattr(error, "status_code", 0) if refused else 0
        reason = textwrap.shorten(str(getattr(error, "error", error)), width=200, placeholder=" ...")
        if isinstance(error, UnicodeEncodeError):
            return InputError(f"a message is not valid Unicode ({error}); decode it with errors='replace'")
        if isinstance(error, (ConnectionError, httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol)):
            message = (
                f"no Ollama server answers at {self.host}: {reason}; start one with `ollama serve`, "
                "or set host or OLLAMA_HOST to where it runs"
            )
            can_retry = not isinstance(error, httpx.UnsupportedProtocol)
        elif isinstance(error, httpx.TimeoutException):
            message = (
                f"{server} sent nothing for {self._settings.timeout_s:g} s; raise timeout_s, "
                "or check with `ollama ps` that the model fits into memory"
            )
        elif isinstance(error, httpx.RequestError) or status < 0:  # below 0 in mid-stream
            message = f"{server} broke off its reply after {num_received} characters: {reason}; {look}"
        elif status == 404:
            message = (
                f"{server} has no model {self.model!r}: {reason}; "
                f"get it with `ollama pull {self.model}`, or set host to a server that has it"
            )
            can_retry = False
        elif status == 429 or status >= 500:
            message = (
                f"{server} failed with HTTP {status}: {reason}; send fewer requests at once, raise retries, or {look}"
            )
        elif refused:
            message = (
                f"{server} refused the request with HTTP {status}: {reason}; "
                f"check the settings against `ollama show {self.model}`, and OLLAMA_API_KEY if it needs a key"
            )
            can_retry = False
        elif isinstance(error, (ValueError, TypeError, AttributeError)):
            # The client checks neither that a line is an object nor that its error is a text.
            message = (
                f"{server} sent a malformed reply: {reason}; "
                f"check with `curl {self.host}/api/version` that host is an Ollama server"
            )
        else:
            raise error
        return OllamaError(message, can_retry=can_retry)


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

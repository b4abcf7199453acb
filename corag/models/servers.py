"""Connections to models on servers: Ollama's, or any OpenAI-compatible one, through their own client packages.

Chats (`corag.models.chat.servers`) and embedders (`corag.models.embedders`) are built on them.
"""

from __future__ import annotations

import math
import os
import textwrap
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import urlsplit

from corag.checks import check_count
from corag.errors import CoragError, InputError, ModelError
from corag.naming import Part
from corag.optional import needed
from corag.text.visible import one_line

_OLLAMA_HOST = "http://127.0.0.1:11434"
OPENAI = "https://api.openai.com/v1"


@dataclass(kw_only=True, eq=False)
class Server(Part, ABC):
    """A connection to a model on a server.

    Attributes:
        model: Name of a model that the server has.
        timeout_s: Longest silence of the server, in seconds; it includes the time to load the model.

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

    model: str
    timeout_s: float = 120.0

    def __post_init__(self) -> None:
        if not str(self.model).strip():
            raise InputError(f"model must be the name of a model, got {self.model!r}")
        if not 0 < self.timeout_s < math.inf:
            raise InputError(f"timeout_s must be a finite number above 0, got {self.timeout_s!r}")
        url, self._key = self._server()
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
        with needed(self.package, self.package):
            self._client = self._connect(url.rstrip("/"))

    @abstractmethod
    def _server(self) -> tuple[str, str | None]:
        """Return the server's URL, and the key to it, which appears in no error."""

    @abstractmethod
    def _connect(self, url: str) -> Any:
        """Return the package's client."""

    @abstractmethod
    def _client_errors(self) -> tuple[tuple[type[Exception], ...], tuple[type[Exception], ...]]:
        """Return the client's errors for a time-out, and for a server that cannot be reached."""

    def _failure(self, message: str, *, can_retry: bool) -> CoragError:
        """Return the error for a request that failed; `can_retry` if the same request may succeed later."""
        return ModelError(message)

    @property
    def title(self) -> str:
        """The model, and where it is, for errors."""
        return f"the model {self.model!r} of the {self.label} at {self.address}"

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
        return self._failure(f"{self.title} {message}; {advice}", can_retry=can_retry)

    def _reason(self, error: Exception) -> str:
        """Return what an error says, or what it was raised from: clients wrap the cause."""
        cause: BaseException = error
        while cause.__cause__ is not None and not hasattr(cause, "status_code"):
            cause = cause.__cause__
        reason = one_line(str(cause)[:2000]) or type(cause).__name__  # an error page may have megabytes
        if self._key:
            reason = reason.replace(self._key, "***")
        return textwrap.shorten(reason, width=300, placeholder=" ...").rstrip(".")


@dataclass(kw_only=True, eq=False)
class OllamaServer(Server):
    """A connection to an Ollama server; needs `pip install 'corag[ollama]'`.

    Attributes:
        model: Name of a model that the server has (`ollama list`).
        host: Address of the server; by default the environment variable OLLAMA_HOST, else this machine.
    """

    label: ClassVar = "Ollama server"
    package: ClassVar = "ollama"
    remedies: ClassVar = {
        "start": "start one with `ollama serve`, or set host or OLLAMA_HOST to where it runs",
        "model": "get it with `ollama pull {model}`, or set host to a server that has it",
        "refused": "check the settings against `ollama show {model}`, and OLLAMA_API_KEY if it needs a key",
        "failed": "look into the log of `ollama serve`, and check host with `curl {address}/api/version`",
    }

    host: str | None = field(default=None, repr=False)

    def _server(self) -> tuple[str, str | None]:
        return ollama_address(self.host), os.environ.get("OLLAMA_API_KEY")

    def _connect(self, url: str) -> Any:
        import httpx
        import ollama

        # Without idle connections there are none that the server has closed already.
        return ollama.Client(url, timeout=self.timeout_s, limits=httpx.Limits(max_keepalive_connections=0))

    def _client_errors(self) -> tuple[tuple[type[Exception], ...], tuple[type[Exception], ...]]:
        import httpx

        return (httpx.TimeoutException,), (ConnectionError, httpx.ConnectError)


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


@dataclass(kw_only=True, eq=False)
class OpenAIServer(Server):
    """A connection to an OpenAI-compatible server; needs `pip install 'corag[openai]'`.

    Attributes:
        model: Name of a model that the server has (`GET /models`).
        base_url: Address of the server, most often with `/v1`; by default the environment variable OPENAI_BASE_URL,
            else OpenAI's own.
        api_key: Key to the server; by default the environment variable OPENAI_API_KEY, which, unlike a setting, is
            recorded nowhere. Servers on one's own machine need none.
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
    retries: int = 3

    def __post_init__(self) -> None:
        check_count("retries", self.retries, "3 are usual", least=0)
        super().__post_init__()

    def _server(self) -> tuple[str, str | None]:
        url = self.base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI
        key = self.api_key or os.environ.get("OPENAI_API_KEY")
        if not key and url.rstrip("/") == OPENAI:
            raise InputError(
                f"{OPENAI} needs a key; set OPENAI_API_KEY, or set base_url to a server of your own that needs none"
            )
        return url, key

    def _connect(self, url: str) -> Any:
        import openai

        return openai.OpenAI(
            base_url=url, api_key=self._key or "none", timeout=self.timeout_s, max_retries=self.retries
        )

    def _client_errors(self) -> tuple[tuple[type[Exception], ...], tuple[type[Exception], ...]]:
        import openai

        return (openai.APITimeoutError,), (openai.APIConnectionError,)

"""Connections to models on servers: Ollama's, or any OpenAI-compatible one, through their own client packages.

Chats (`corag.models.chat`) and embedders (`corag.models.embedders`) are built on them.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, ClassVar
from urllib.parse import SplitResult, urlsplit

from corag.checks import check_count, check_range
from corag.errors import CoragError, InputError, ModelError
from corag.naming import Part
from corag.optional import needed
from corag.text.visible import one_line

MAX_BYTES = 128 * 2**20
"""Bytes of a reply: 64 vectors of 4,096 numbers have 6 million, 100,000 streamed tokens 40 million."""
MAX_S = 3600.0
"""Seconds in which a reply must end."""
OPENAI = "https://api.openai.com/v1"
_MOST_SECONDS = 86_400
_THIS_MACHINE = re.compile(r"localhost|[\d.]+|\[.*", re.IGNORECASE)


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

    package: ClassVar[str]
    """The client package, and the extra that installs it."""
    remedies: ClassVar[dict[str, str]]
    """For a server that does not `start` to answer, lacks the `model`, or `failed`; with `{address}` and `{model}`."""

    model: str
    timeout_s: float = 120.0

    def __post_init__(self) -> None:
        if not str(self.model).strip():
            raise InputError(f"model must be the name of a model, got {self.model!r}")
        check_range("timeout_s", self.timeout_s, 0.001, _MOST_SECONDS, "typical: 120")
        url, self._key = self._server()
        parts = _split(url)
        if self._key and not (self._key.isascii() and self._key.isprintable()):
            raise InputError(f"the key to the {self.package} server holds characters that no key has; copy it again")
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

    def _failure(self, message: str, *, can_retry: bool) -> CoragError:
        """Return the error for a request that failed; `can_retry` if the same request may succeed later."""
        return ModelError(message)

    @property
    def title(self) -> str:
        """The model, and where it is, for errors."""
        return f"the model {self.model!r} of the {self.package} server at {self.address}"

    def _explained(self, error: Exception, num_received: int = 0) -> CoragError:
        """Return an error, raised after `num_received` characters, as one that names server, model and remedy.

        Clients do not check what a server sends, so whatever they raise is attributed to the server.
        """
        if isinstance(error, CoragError):
            return error
        causes: list[BaseException] = [error]
        while causes[-1].__cause__ is not None and not hasattr(causes[-1], "status_code"):
            causes.append(causes[-1].__cause__)
        # Servers echo keys. Hidden before it is cut, as half a key is not found; an error page may have megabytes.
        reason = str(causes[-1]).replace(self._key, "***") if self._key else str(causes[-1])
        reason = one_line(reason[:2000]) or type(causes[-1]).__name__
        reason = textwrap.shorten(reason, width=300, placeholder=" ...").rstrip(".")
        status = getattr(error, "status_code", None)
        # By name: the clients, and their releases, raise errors of several libraries.
        kinds = " ".join(type(cause).__name__ for cause in causes)
        can_retry, remedy = True, "failed"
        if isinstance(status, int) and status >= 300:
            can_retry = status in (408, 429) or status >= 500
            remedy = "model" if status == 404 else "failed"
            message = f"answered with HTTP {status}: {reason}" + ("; lower max_concurrent" if status == 429 else "")
        elif "Timeout" in kinds:
            message = f"sent nothing for {self.timeout_s:g} s; raise timeout_s"
        elif "Connect" in kinds and not num_received:
            message, remedy = f"does not answer: {reason}", "start"
        else:
            message = f"broke off, or sent what is no reply, after {num_received} characters: {reason}"
        advice = self.remedies[remedy].format(address=self.address, model=self.model)
        return self._failure(f"{self.title} {message}; {advice}", can_retry=can_retry)


@dataclass(kw_only=True, eq=False)
class OllamaServer(Server):
    """A connection to an Ollama server; needs the extra `ollama`.

    Attributes:
        model: Name of a model that the server has (`ollama list`).
        host: Address of the server; by default the environment variable OLLAMA_HOST, else this machine.
    """

    package: ClassVar = "ollama"
    remedies: ClassVar = {
        "start": "start one with `ollama serve`, or set host or OLLAMA_HOST to where it runs",
        "model": "get it with `ollama pull {model}`, or set host to a server that has it",
        "failed": "look into the log of `ollama serve`, check host with `curl {address}/api/version`, and "
        "OLLAMA_API_KEY if it needs a key",
    }

    host: str | None = None

    def _server(self) -> tuple[str, str | None]:
        _refuse_password("host", self.host, "OLLAMA_HOST")
        return ollama_address(self.host), os.environ.get("OLLAMA_API_KEY")

    def _connect(self, url: str) -> Any:
        import httpx
        import ollama

        # Without idle connections there are none that the server has closed already.
        limits = httpx.Limits(max_keepalive_connections=0)
        return ollama.Client(url, timeout=self.timeout_s, limits=limits, **client_settings())


@dataclass(kw_only=True, eq=False)
class OpenAIServer(Server):
    """A connection to an OpenAI-compatible server; needs the extra `openai`.

    The key to the server is in the environment variable OPENAI_API_KEY. Servers on one's own machine need none.

    Attributes:
        model: Name of a model that the server has (`GET /models`).
        base_url: Address of the server, most often with `/v1`; by default the environment variable OPENAI_BASE_URL,
            else OpenAI's own.
        retries: Further attempts of the client before a reply has begun: after time-outs, HTTP 408, 409, 429 and 5xx.
    """

    package: ClassVar = "openai"
    remedies: ClassVar = {
        "start": "start one there, or set base_url or OPENAI_BASE_URL to where it runs",
        "model": "list its models with `curl {address}/models`, and check base_url, which most often ends with /v1",
        "failed": "raise retries, look into the log of the server, check base_url with `curl {address}/models`, and "
        "OPENAI_API_KEY",
    }

    base_url: str | None = None
    retries: int = 3

    def __post_init__(self) -> None:
        check_count("retries", self.retries, "typical: 3", least=0)
        super().__post_init__()

    def _server(self) -> tuple[str, str | None]:
        _refuse_password("base_url", self.base_url, "OPENAI_BASE_URL")
        url = self.base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI
        key = os.environ.get("OPENAI_API_KEY")
        if not key and url.rstrip("/") == OPENAI:
            raise InputError(
                f"{OPENAI} needs a key; set OPENAI_API_KEY, or set base_url to a server of your own that needs none"
            )
        return url, key

    def _connect(self, url: str) -> Any:
        import openai

        http = openai.DefaultHttpxClient(**client_settings())
        weakref.finalize(self, http.close)
        settings = {"timeout": self.timeout_s, "max_retries": self.retries, "http_client": http}
        return openai.OpenAI(base_url=url, api_key=self._key or "none", **settings)


def _refuse_password(setting: str, address: str | None, variable: str) -> None:
    if address and "@" in address:
        raise InputError(f"{setting} holds a user or a password; set {variable} in the environment to this address")


def ollama_address(host: str | None = None) -> str:
    """Return the URL of a host, by default of OLLAMA_HOST or this machine; scheme and port may be left out."""
    host = host or os.environ.get("OLLAMA_HOST") or "127.0.0.1"
    if "://" not in host and "@" in host:
        raise InputError("OLLAMA_HOST has a user, but no scheme; begin it with http:// to show which part is the host")
    url = host if "://" in host else f"http://{host}"
    parts = _split(url)
    return url if parts.port or parts.scheme != "http" else parts._replace(netloc=f"{parts.netloc}:11434").geturl()


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        # Such as http://localhost:1@evil.com, which asks evil.com.
        valid &= not _THIS_MACHINE.fullmatch(parts.username or "")
    except ValueError:
        valid = False
    if not valid:
        raise InputError(f"the address of a server must be a URL such as http://127.0.0.1:8000, got {url!r}")
    return parts


# --- Limits of what a server may send: clients put lines and replies together, however long they become ---


def client_settings() -> dict[str, Any]:
    """Return settings of the HTTP client below a client package.

    What a question and its context are sent to is the server that the user named, so redirects are errors.
    """
    hooks = {"response": [_limit]}
    return {"event_hooks": hooks, "follow_redirects": False, "headers": {"Accept-Encoding": "identity"}}


def _limit(response: Any) -> None:
    # Client packages differ in the library that they use: httpx, or its successor.
    library = sys.modules[type(response).__module__.partition(".")[0]]
    packing = response.headers.get("content-encoding", "identity")
    if packing != "identity":
        # A packed reply can be a thousand times as long as what is received.
        raise library.DecodingError(f"the reply is packed ({packing}), which was not asked for")
    response.stream = _limited(library)(response.stream)


@cache
def _limited(library: ModuleType) -> type[Any]:
    class Limited(library.SyncByteStream):  # type: ignore[name-defined, misc]
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        def __iter__(self) -> Iterator[bytes]:
            received, end_s = 0, time.monotonic() + MAX_S
            for piece in self._stream:
                received += len(piece)
                if received > MAX_BYTES:
                    raise library.ReadError(f"the reply has more than {MAX_BYTES:,} bytes")
                if time.monotonic() > end_s:
                    raise library.ReadError(f"the reply has not ended after {MAX_S:g} seconds")
                yield piece

        def close(self) -> None:
            self._stream.close()

    return Limited

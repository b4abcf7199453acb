"""Connections to language models on servers: Ollama's, or any OpenAI-compatible one, by their own client packages."""

from __future__ import annotations

import os
import textwrap
import weakref
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlsplit

from common.checks import check_count, check_range
from corag.errors import CoragError, InputError, ReaderError
from corag.optional import needed
from corag.registry import Part
from corag.text.visible import one_line

OPENAI = "https://api.openai.com/v1"
THIS_MACHINE: dict[str, None] = {f"all://{host}": None for host in ("localhost", "127.0.0.1", "[::1]", "0.0.0.0")}
"""For clients of `httpx`: servers here are asked directly, also where the environment names a proxy (`mounts`)."""

_MOST_SECONDS = 86_400


class ChatError(ReaderError):
    """A model gave no whole reply.

    Attributes:
        can_retry: Whether the same request may succeed later.
    """

    def __init__(self, message: str, *, can_retry: bool = False) -> None:
        super().__init__(message)
        self.can_retry = can_retry


@dataclass(kw_only=True, eq=False)
class Server(Part, ABC):
    """A connection to a model on a server.

    Attributes:
        model: Name of a model that the server has.
        timeout_s: Longest silence of the server, in seconds; it includes the time to load the model.

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

    def __post_init__(self) -> None:
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


@dataclass(kw_only=True, eq=False)
class OllamaServer(Server):
    """A connection to an Ollama server; needs the extra `ollama`.

    Attributes:
        model: Name of a model that the server has (`ollama list`).
        host: Address of the server; by default the environment variable OLLAMA_HOST, else this machine.
    """

    package: ClassVar = "ollama"
    remedy: ClassVar = (
        "start one with `ollama serve`, set host or OLLAMA_HOST to where it runs, get the model with `ollama pull "
        "{model}`, set OLLAMA_API_KEY if the server needs a key, or raise timeout_s"
    )

    host: str | None = None

    def _connect(self) -> tuple[Any, str]:
        _refuse_password("host", self.host, "OLLAMA_HOST")
        import httpx
        import ollama

        # Without idle connections there are none that the server has closed already.
        limits = httpx.Limits(max_keepalive_connections=0)
        client = ollama.Client(self.host, timeout=self.timeout_s, limits=limits, mounts=THIS_MACHINE)
        return client, str(client._client.base_url)


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
    remedy: ClassVar = (
        "check base_url or OPENAI_BASE_URL, which most often ends with /v1, the names of its models with "
        "`curl {address}/models`, OPENAI_API_KEY, and the server's log; raise timeout_s or retries"
    )

    base_url: str | None = None
    retries: int = 3

    def __post_init__(self) -> None:
        check_count("retries", self.retries, "typical: 3", least=0)
        super().__post_init__()

    def _connect(self) -> tuple[Any, str]:
        _refuse_password("base_url", self.base_url, "OPENAI_BASE_URL")
        import openai

        url = self.base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI
        key = os.environ.get("OPENAI_API_KEY")
        if not key and url.rstrip("/") == OPENAI:
            raise InputError(
                f"{OPENAI} needs a key; set OPENAI_API_KEY, or set base_url to a server of your own that needs none"
            )
        http = openai.DefaultHttpxClient(mounts=THIS_MACHINE)
        weakref.finalize(self, http.close)
        settings = {"timeout": self.timeout_s, "max_retries": self.retries, "http_client": http}
        return openai.OpenAI(base_url=url, api_key=key or "none", **settings), url


def _refuse_password(setting: str, address: str | None, variable: str) -> None:
    if address and "@" in address:
        raise InputError(f"{setting} holds a user or a password; set {variable} in the environment to this address")

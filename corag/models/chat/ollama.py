"""Chats with a model of an Ollama server (https://github.com/ollama/ollama/blob/main/docs/api.md)."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlsplit

from corag.checks import check_count
from corag.errors import InputError
from corag.models.chat.base import Messages, Written
from corag.models.chat.served_tokens import ollama_tokens
from corag.models.chat.server import ServerChat, ServerSettings
from corag.types import TokenCounter

DEFAULT_MODEL = "llama3.1:8b"
_DEFAULT_HOST = "http://127.0.0.1:11434"
# A server loads the model anew for another window, so windows grow in steps.
_LEAST_WINDOW = 4096


@dataclass(frozen=True, kw_only=True, eq=False)
class OllamaSettings(ServerSettings):
    """How to ask a model of an Ollama server; see `ServerSettings` for the rest.

    Attributes:
        model: Name of a model that the server has (`ollama list`).
        host: Address of the server; by default the environment variable OLLAMA_HOST, else this machine.
        num_ctx: Tokens of the model's context window. A server cuts a longer prompt without an error, so by default the
            window is made large enough for prompt and reply.
    """

    model: str = DEFAULT_MODEL
    host: str | None = None
    num_ctx: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_ctx is not None:
            check_count("num_ctx", self.num_ctx, "4096 or 8192 are usual")

    def connect(self) -> OllamaChat:
        """Return the model to chat with."""
        return OllamaChat(self)


class OllamaChat(ServerChat):
    """A model of an Ollama server to chat with; needs `pip install 'corag[ollama]'`.

    Args:
        settings: Model and server.
    """

    kind = label = "Ollama"
    package = "ollama"
    hints: ClassVar = {
        "start": "start one with `ollama serve`, or set host or OLLAMA_HOST to where it runs",
        "slow": "check with `ollama ps` that the model fits into memory",
        "look": "look for the cause in the log of `ollama serve`",
        "model": "get it with `ollama pull {model}`, or set host to a server that has it",
        "refused": "check the settings against `ollama show {model}`, and OLLAMA_API_KEY if it needs a key",
        "malformed": "check with `curl {address}/api/version` that host is an Ollama server",
    }

    settings: OllamaSettings

    def __init__(self, settings: OllamaSettings | None = None) -> None:
        settings = settings or OllamaSettings()
        self._num_ctx = settings.num_ctx or _LEAST_WINDOW
        super().__init__(settings, address(settings.host))

    def _connect(self) -> Any:
        import ollama

        return ollama.AsyncClient(self.address, **self._http_settings)

    def _served_tokens(self) -> TokenCounter | None:
        return ollama_tokens(self.address, self.model)

    async def _window(self) -> int | None:
        return self.settings.num_ctx or await super()._window()

    async def _look(self) -> int | None:
        import pydantic

        try:
            about = (await self._client.show(self.model)).modelinfo or {}
        except pydantic.ValidationError:
            return (
                None  # the client insists on a field that some models lack; the server knows these models all the same
            )
        lengths = [length for name, length in about.items() if name.endswith(".context_length")]
        return next((length for length in lengths if isinstance(length, int) and length > 0), None)

    async def _grown(self, messages: Messages) -> int:
        """Return a window that holds prompt and reply, never smaller than before."""
        needed = self.count(messages) + self.max_answer_tokens
        if self.settings.num_ctx is None and needed > self._num_ctx:
            wanted, most = 1 << (needed - 1).bit_length(), await self._window()
            self._num_ctx = wanted if most is None else min(wanted, max(most, self._num_ctx))
        return self._num_ctx

    async def _pieces(self, messages: Messages, scored: bool) -> AsyncGenerator[Written]:
        import httpx
        import ollama

        options = {
            "temperature": self.settings.temperature,
            "seed": self.settings.seed,
            "num_ctx": await self._grown(messages),
            "num_predict": self.max_answer_tokens,
        }
        # Servers have log-probabilities since version 0.12.11; older ones, and models that run elsewhere, have none.
        reply = await self._client.chat(
            self.model, messages, stream=True, options=options, logprobs=True if scored else None
        )
        try:
            async with aclosing(reply):
                async for part in reply:
                    scores = tuple(float(token.logprob) for token in part.logprobs or ())
                    yield Written(
                        part.message.content or "",
                        scores,
                        part.done_reason == "length",
                        part.prompt_eval_count,
                        part.eval_count if part.done else None,
                    )
                    if part.done:
                        return
        except ollama.ResponseError as error:
            raise httpx.RemoteProtocolError(str(error)) from error
        raise httpx.RemoteProtocolError("it ended without its last line")


def address(host: str | None = None) -> str:
    """Return the URL of a host, whose scheme and port may be left out; by default of that of OLLAMA_HOST, or this one.

    Raises:
        InputError: It is no address.
    """
    host = host or os.environ.get("OLLAMA_HOST") or _DEFAULT_HOST
    url = host if "://" in host else f"http://{host}"
    try:
        parts = urlsplit(url)
        has_port = parts.port is not None
    except ValueError as error:
        raise InputError(f"host must be an address such as {_DEFAULT_HOST}, got {host!r}: {error}") from error
    return url if has_port or parts.scheme != "http" else parts._replace(netloc=f"{parts.netloc}:11434").geturl()

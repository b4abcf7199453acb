"""Chats with a model of an OpenAI-compatible server: vLLM, llama.cpp, LM Studio, Ollama's `/v1`, hosted ones."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from corag.checks import check_count
from corag.errors import InputError
from corag.models.chat.base import ChatError, Messages, Written
from corag.models.chat.faults import root_cause
from corag.models.chat.guard import StatusError
from corag.models.chat.served_tokens import counting_server
from corag.models.chat.server import ServerChat, ServerSettings
from corag.optional import warn_once
from corag.types import TokenCounter

_OPENAI = "https://api.openai.com/v1"
# What the names of servers for the window of a model are: vLLM, llama.cpp, LM Studio, OpenRouter.
_WINDOW_NAMES = ("max_model_len", "n_ctx", "loaded_context_length", "max_context_length", "context_length")
# Fields that some servers refuse without saying so.
_EXTRAS = ("logprobs", "stream_options", "seed")


@dataclass(frozen=True, kw_only=True, eq=False)
class OpenAISettings(ServerSettings):
    """How to ask a model of an OpenAI-compatible server; see `ServerSettings` for the rest.

    Attributes:
        model: Name of a model that the server has (`GET /models`).
        base_url: Address of the server, most often with `/v1`; by default the environment variable OPENAI_BASE_URL,
            else OpenAI's own.
        api_key: Key to the server; by default the environment variable OPENAI_API_KEY, which, unlike a setting, is
            recorded nowhere. Servers on one's own machine need none.
        window: Tokens of the model's context window; by default what the server tells.
    """

    secrets: ClassVar[frozenset[str]] = frozenset({"api_key"})
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    window: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window is not None:
            check_count("window", self.window, "4096 to 131072 are usual")

    def connect(self) -> OpenAIChat:
        """Return the model to chat with."""
        return OpenAIChat(self)


class OpenAIChat(ServerChat):
    """A model of an OpenAI-compatible server to chat with; needs `pip install 'corag[openai]'`.

    A field that the server refuses, such as `logprobs`, is left out from then on.

    Args:
        settings: Model and server.
    """

    kind = "OpenAI-compatible"
    label = "the OpenAI-compatible server"
    package = "openai"
    hints: ClassVar = {
        "start": "start one there, or set base_url or OPENAI_BASE_URL to where it runs",
        "slow": "look at the load of the server",
        "look": "look into the log of the server",
        "model": "list its models with `curl {address}/models`, and check that base_url ends as the server wants it, "
        "most often with /v1",
        "refused": "check the settings, and api_key or OPENAI_API_KEY",
        "malformed": "check with `curl {address}/models` that base_url is that of an OpenAI-compatible server",
    }

    settings: OpenAISettings

    def __init__(self, settings: OpenAISettings) -> None:
        self._refused: frozenset[str] = frozenset()
        super().__init__(settings, settings.base_url or os.environ.get("OPENAI_BASE_URL") or _OPENAI)

    @property
    def _key(self) -> str | None:
        return self.settings.api_key or os.environ.get("OPENAI_API_KEY")

    def _connect(self) -> Any:
        import httpx
        import openai

        key = self._key
        if not key and self.address == _OPENAI:
            raise InputError(
                f"{_OPENAI} needs a key; set OPENAI_API_KEY, or set base_url to a server of your own that needs none"
            )
        client = httpx.AsyncClient(**self._http_settings)
        return openai.AsyncOpenAI(base_url=self.address, api_key=key or "none", http_client=client, max_retries=0)

    def _served_tokens(self) -> TokenCounter | None:
        return None if self.address == _OPENAI else counting_server(self.address, self.model, self._key)

    async def _window(self) -> int | None:
        return self.settings.window or await super()._window()

    async def _look(self) -> int | None:
        try:
            models = (await self._client.models.list()).data or []
        except Exception as error:
            status = getattr(root_cause(error), "status", None)
            if status is None or status in (401, 403):
                raise
            return None  # it need not list its models
        about = [one for one in models if one.id == self.model] or (models if len(models) == 1 else [])
        told: dict[str, Any] = (about[0].model_extra or {}) if about else {}
        told = told | (meta if isinstance(meta := told.get("meta"), dict) else {})
        windows = [told.get(name) for name in _WINDOW_NAMES]
        return next((window for window in windows if isinstance(window, int) and window > 0), None)

    async def _pieces(self, messages: Messages, scored: bool) -> AsyncGenerator[Written]:
        import httpx
        import openai

        reply = await self._begun(messages, scored)
        cut: bool | None = None
        try:
            async with reply:
                async for chunk in reply:
                    choice = chunk.choices[0] if chunk.choices else None
                    if choice is not None and choice.finish_reason is not None:
                        cut = choice.finish_reason == "length"
                        if choice.finish_reason == "content_filter":
                            raise ChatError(f"{self._server} withheld its reply: its filter objects to the content")
                    yield _piece(choice, chunk.usage, cut=bool(cut))
        except openai.APIConnectionError:
            raise
        except openai.APIError as error:
            raise httpx.RemoteProtocolError(str(error)) from error
        if cut is None:
            raise httpx.RemoteProtocolError("it ended without its last event")

    async def _begun(self, messages: Messages, scored: bool) -> Any:
        """Send one request; where the server refuses fields, send it again without them."""
        refused = self._refused
        while True:
            fields = self._fields(scored, refused)
            try:
                create = self._client.chat.completions.create
                reply = await create(model=self.model, messages=messages, stream=True, **fields)
            except Exception as error:
                if not (named := _refused_fields(root_cause(error), fields)):
                    raise
                refused |= named
                continue
            if refused != self._refused:
                warn_once(f"{self._server} does not take {', '.join(sorted(refused))}; it is asked without")
                self._refused = refused
            return reply

    def _fields(self, scored: bool, refused: frozenset[str]) -> dict[str, Any]:
        settings = self.settings
        fields: dict[str, Any] = {
            "temperature": settings.temperature,
            "seed": settings.seed,
            "stream_options": {"include_usage": True},
            **({"logprobs": True} if scored else {}),
            # Its new name; older servers do not know it, and some newer models refuse the old one.
            ("max_completion_tokens" if "max_tokens" in refused else "max_tokens"): settings.max_answer_tokens,
        }
        return {name: value for name, value in fields.items() if name not in refused}


def _piece(choice: Any, usage: Any, *, cut: bool) -> Written:
    prompt_tokens, answer_tokens = (None, None) if usage is None else (usage.prompt_tokens, usage.completion_tokens)
    if choice is None:
        return Written(cut=cut, prompt_tokens=prompt_tokens, answer_tokens=answer_tokens)
    scored = getattr(choice.logprobs, "content", None) or ()
    scores = tuple(float(token.logprob) for token in scored)
    return Written(choice.delta.content or "", scores, cut, prompt_tokens, answer_tokens)


def _refused_fields(error: Exception, fields: Mapping[str, Any]) -> frozenset[str]:
    """Return which fields of a request to leave out after a server refused it; none if the reason lies elsewhere."""
    if not isinstance(error, StatusError) or error.status not in (400, 422):
        return frozenset()
    named = [name for name in fields if name != "max_completion_tokens" and re.search(rf"\b{name}\b", error.reason)]
    return frozenset(named or [name for name in _EXTRAS if name in fields])

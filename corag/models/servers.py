"""Chats with a model of an Ollama server, or of an OpenAI-compatible one, through their own client packages."""

from __future__ import annotations

import os
import weakref
from collections.abc import Generator
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from common.checks import check_count
from corag.errors import InputError
from corag.models.chat import MOST_ALTERNATIVES, Chat, ChatError, ChatReply
from corag.models.prompts import Messages
from corag.optional import warn_once

OPENAI = "https://api.openai.com/v1"
THIS_MACHINE: dict[str, None] = {f"all://{host}": None for host in ("localhost", "127.0.0.1", "[::1]", "0.0.0.0")}
"""For clients of `httpx`: servers here are asked directly, also where the environment names a proxy (`mounts`)."""
DEFAULT_OLLAMA_MODEL = "llama3.1:8b"
# Ollama loads the model again for another window, so windows grow in steps.
_MIN_WINDOW = 4096


@dataclass(kw_only=True, eq=False)
class OllamaChat(Chat):
    """A model of an Ollama server to chat with; needs the extra `ollama`. See `Chat` for the other settings.

    Attributes:
        model: Name of a model that the server has (`ollama list`).
        host: Address of the server; by default the environment variable OLLAMA_HOST, else this machine.
        num_ctx: Tokens of the model's context window. A server cuts a longer prompt without an error, so by default the
            window is made large enough for prompt and reply.
    """

    package: ClassVar = "ollama"
    remedy: ClassVar = (
        "start one with `ollama serve`, set host or OLLAMA_HOST to where it runs, get the model with `ollama pull "
        "{model}`, set OLLAMA_API_KEY if the server needs a key, or raise timeout_s"
    )

    model: str = DEFAULT_OLLAMA_MODEL
    host: str | None = None
    num_ctx: int | None = None

    def __post_init__(self) -> None:
        if self.num_ctx is not None:
            check_count("num_ctx", self.num_ctx, "typical: 4096 or 8192")
        self._num_ctx = self.num_ctx or _MIN_WINDOW
        super().__post_init__()

    def _connect(self) -> tuple[Any, str]:
        _refuse_password("host", self.host, "OLLAMA_HOST")
        import httpx
        import ollama

        # Without idle connections there are none that the server has closed already.
        limits = httpx.Limits(max_keepalive_connections=0)
        client = ollama.Client(self.host, timeout=self.timeout_s, limits=limits, mounts=THIS_MACHINE)
        return client, str(client._client.base_url)

    def _probe(self) -> object:
        return self._client.show(self.model)

    @cached_property
    def context_window(self) -> int | None:
        """The window that is set, else the model's as the server tells it; None if it does not."""
        try:
            about = self._client.show(self.model).modelinfo or {}
        except Exception:  # noqa: BLE001  (a server that cannot answer this may still chat, or will say why not)
            about = {}
        known = [value for name, value in about.items() if name.endswith(".context_length") and isinstance(value, int)]
        return self.num_ctx or next(iter(known), None)

    def _grown_window(self, messages: Messages) -> int:
        """Return a window that holds prompt and reply, never smaller than before."""
        needed = self.count(messages) + self.max_answer_tokens
        if self.num_ctx is None and needed > self._num_ctx:
            self._num_ctx = min(1 << (needed - 1).bit_length(), self.context_window or needed)
        return self._num_ctx

    def _pieces(self, messages: Messages, reply: ChatReply, *, first_tokens: bool) -> Generator[str, None, None]:
        options = {
            "temperature": self.temperature,
            "seed": self.seed,
            "num_ctx": self._grown_window(messages),
            "num_predict": 1 if first_tokens else self.max_answer_tokens,
        }
        # Servers have log-probabilities since version 0.12.11; older ones, and models that run elsewhere, have none.
        wanted = {"logprobs": True, "top_logprobs": MOST_ALTERNATIVES} if first_tokens else {}
        parts = self._client.chat(self.model, messages, stream=True, options=options, **wanted)
        with closing(parts):
            for part in parts:
                reply.add_alternatives(part.logprobs)
                reply.cut = part.done_reason == "length"
                reply.prompt_tokens, reply.answer_tokens = part.prompt_eval_count, part.eval_count
                yield part.message.content or ""
                if part.done:
                    return
        raise EOFError("it ended without its last line")


@dataclass(kw_only=True, eq=False)
class OpenAIChat(Chat):
    """A model of an OpenAI-compatible server to chat with; needs the extra `openai`. See `Chat` for other settings.

    The key to the server is in the environment variable OPENAI_API_KEY. Servers on one's own machine need none. If the
    server refuses a request, it is sent with fewer fields, and so are those that follow.

    Attributes:
        model: Name of a model that the server has (`GET /models`).
        base_url: Address of the server, most often with `/v1`; by default the environment variable OPENAI_BASE_URL,
            else OpenAI's own.
        retries: Further attempts of the client before a reply has begun: after time-outs, HTTP 408, 409, 429 and 5xx.
        window: Tokens of the model's context window, if prompts are to be held against it.
    """

    package: ClassVar = "openai"
    remedy: ClassVar = (
        "check base_url or OPENAI_BASE_URL, which most often ends with /v1, the names of its models with "
        "`curl {address}/models`, OPENAI_API_KEY, and the server's log; raise timeout_s or retries"
    )

    base_url: str | None = None
    retries: int = 3
    window: int | None = None

    def __post_init__(self) -> None:
        check_count("retries", self.retries, "typical: 3", least=0)
        if self.window is not None:
            check_count("window", self.window, "typical: 4096-131072")
        self._form = 0
        super().__post_init__()

    @property
    def context_window(self) -> int | None:
        """The window that is set."""
        return self.window

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

    def _probe(self) -> object:
        import openai

        with suppress(openai.NotFoundError):  # a server need not list its models
            return self._client.models.list()
        return None

    def _pieces(self, messages: Messages, reply: ChatReply, *, first_tokens: bool) -> Generator[str, None, None]:
        finished: str | None = None
        with self._begun(messages, first_tokens=first_tokens) as chunks:
            for chunk in chunks:
                if chunk.usage is not None:
                    reply.prompt_tokens = int(chunk.usage.prompt_tokens)
                    reply.answer_tokens = int(chunk.usage.completion_tokens)
                text = ""
                for choice in chunk.choices[:1]:
                    finished = choice.finish_reason or finished
                    reply.add_alternatives(getattr(choice.logprobs, "content", None))
                    text = choice.delta.content or ""
                yield text
        if finished is None:
            raise EOFError("it ended without its last event")
        if finished == "content_filter":
            raise ChatError(f"{self.title} withheld its reply: the server's filter objects to the content")
        reply.cut = finished == "length"

    def _begun(self, messages: Messages, *, first_tokens: bool) -> Any:
        """Send one request; if the server refuses it, send it again with fewer fields."""
        import openai

        limit = 1 if first_tokens else self.max_answer_tokens
        basic = {"max_tokens": limit, "temperature": self.temperature}
        forms: list[dict[str, Any]] = [
            {**basic, "seed": self.seed, "stream_options": {"include_usage": True}},
            basic,
            # The new name; older servers do not know it, and some newer models refuse the other fields.
            {"max_completion_tokens": limit},
        ]
        wanted = {"logprobs": True, "top_logprobs": MOST_ALTERNATIVES} if first_tokens else {}
        refusals: list[Exception] = []
        for number, fields in enumerate(forms[self._form :], start=self._form):
            asked = {"model": self.model, "messages": messages, "stream": True, **fields, **wanted}
            try:
                reply = self._client.chat.completions.create(**asked)
            except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
                refusals.append(error)
                continue
            if number > self._form:
                warn_once(f"{self.title} takes no other fields than {', '.join(fields)}; it is asked with these alone")
                self._form = number
            return reply
        raise refusals[0]


def _refuse_password(setting: str, address: str | None, variable: str) -> None:
    if address and "@" in address:
        raise InputError(f"{setting} holds a user or a password; set {variable} in the environment to this address")

"""Chats with a language model on a server, Ollama's or an OpenAI-compatible one, through their own client packages.

Replies are always streamed, so that a silent server is noticed after `timeout_s`, however long a whole reply takes. A
reply counts only when it is whole: one that breaks off is an error, and never returned as an answer.
"""

from __future__ import annotations

import json
import os
import re
import textwrap
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import cached_property
from multiprocessing.pool import ThreadPool
from typing import Any, ClassVar

from common.checks import check_count, check_range, check_text, well_formed
from corag.errors import CoragError, InputError, ReaderError
from corag.models.prompts import Messages
from corag.optional import needed, warn_once
from corag.registry import Part
from corag.registry import tokens as make_tokens
from corag.text.tokens import estimate, tokens_for_model
from corag.text.visible import one_line
from corag.types import TokenCounter

OPENAI = "https://api.openai.com/v1"
THIS_MACHINE: dict[str, None] = {f"all://{host}": None for host in ("localhost", "127.0.0.1", "[::1]", "0.0.0.0")}
"""For clients of `httpx`: servers here are asked directly, also where the environment names a proxy (`mounts`)."""
DEFAULT_OLLAMA_MODEL = "llama3.1:8b"
# Ollama loads the model again for another window, so windows grow in steps.
_MIN_WINDOW = 4096
MESSAGE_TOKENS = 8
"""The most that a chat template puts around a message, if the template itself is unknown."""
CHAT_TOKENS = 32
"""The most that it puts around all of them, such as today's date."""
MOST_ALTERNATIVES = 20
"""Alternatives of a token that servers tell; OpenAI, vLLM and Ollama refuse more."""
BROKEN_OFF = ("abort", "error", "insufficient_system_resource")
"""Why a reply ends that is not whole, as vLLM, OpenRouter and DeepSeek say it."""
_MOST_SECONDS = 86_400


class ChatError(ReaderError):
    """A model gave no whole reply.

    Attributes:
        can_retry: Whether the same request may succeed later.
    """

    def __init__(self, message: str, *, can_retry: bool = False) -> None:
        super().__init__(message)
        self.can_retry = can_retry


@dataclass(slots=True)
class ChatReply:
    """A reply.

    Attributes:
        text: What a model writes, at last stripped and without what it thought before.
        first_tokens: Log-probabilities of what its first token might have been; empty if they were not requested, or
            the server has none.
        cut: Whether it ends because `max_answer_tokens` were written.
        prompt_tokens: As the model counted them, as the next; None if a server does not say.
    """

    text: str = ""
    first_tokens: Mapping[str, float] = field(default_factory=dict)
    cut: bool = False
    prompt_tokens: int | None = None
    answer_tokens: int | None = None

    def add_alternatives(self, tokens: Sequence[Any] | None) -> None:
        """Add what a server tells of further tokens, each with `top_logprobs`."""
        if tokens and not self.first_tokens:
            self.first_tokens = {one.token: float(one.logprob) for one in tokens[0].top_logprobs or ()}


@dataclass(kw_only=True, eq=False)
class Chat(Part, ABC):
    """A language model to chat with: the base of the readers and summarizers that ask one. Threads may share it.

    Attributes:
        model: Name of a model that the server has.
        timeout_s: Longest silence of the server, in seconds; it includes the time to load the model.
        max_answer_tokens: Maximum tokens of a reply.
        temperature: Sampling temperature; 0 is greedy.
        seed: Seed of the sampling.
        max_concurrent: Maximum requests at the same time; the server may queue some of them.
        tokenizer: Counts the tokens of prompts, by name or as an object; by default the model's own, if it is on this
            machine (see `corag.text.tokens.tokens_for_model`) or the server tells its tokens, else an estimate.

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
    max_answer_tokens: int = 512
    temperature: float = 0.0
    seed: int = 0
    max_concurrent: int = 4
    tokenizer: str | TokenCounter | None = None

    def __post_init__(self) -> None:
        check_count("max_answer_tokens", self.max_answer_tokens, "typical: 64-1024")
        check_range("temperature", self.temperature, 0, 100, "0 is greedy")
        check_count("seed", self.seed, "typical: 0", least=0)
        check_count("max_concurrent", self.max_concurrent, "typical: 1-8")
        check_text("model", self.model)
        if not self.model.strip():
            raise InputError(f"model must be the name of a model, got {self.model!r}")
        check_range("timeout_s", self.timeout_s, 0.001, _MOST_SECONDS, "typical: 120")
        with needed(self.package, self.package):
            try:
                self._client, url = self._connect()
            except (CoragError, ImportError):
                raise
            except Exception as error:  # whatever a client raises for an address
                raise InputError(f"the address of the {self.package} server cannot be read: {error}") from error
        self.address = without_password(url).rstrip("/")

    @abstractmethod
    def _connect(self) -> tuple[Any, str]:
        """Return the package's client and the server's URL."""

    @abstractmethod
    def _pieces(self, messages: Messages, reply: ChatReply, *, first_tokens: bool) -> Generator[str, None, None]:
        """Send one request, yield each piece of text that arrives, and fill in all else of the reply.

        With `first_tokens`, the reply is one token.
        """

    @abstractmethod
    def _probe(self) -> object:
        """Ask the server whether it has the model."""

    def check(self) -> None:
        """Return if the server is there and has the model; else raise a `ChatError`, which says what to do."""
        try:
            self._probe()
        except Exception as error:
            raise self._explained(error) from error

    @property
    def name(self) -> str:
        """Kind and name of the model, such as `ollama/llama3.1:8b`."""
        return f"{self.package}/{self.model}"

    @property
    def identity(self) -> str:
        """Everything that a reply depends on besides the messages."""
        return json.dumps([self.package, self.model, self.temperature, self.seed, self.max_answer_tokens])

    @cached_property
    def tokens(self) -> TokenCounter:
        """Counts as the model does; an estimate, flagged as such, if its tokenizer is not at hand."""
        if self.tokenizer is not None:
            return make_tokens(self.tokenizer)
        if (own := tokens_for_model(self.model)) is not None:
            return own
        warn_once(
            f"the tokenizer of model {self.model!r} is not on this machine, so tokens are estimated, "
            "usually 10 to 30% too many; name it with --tokenizer, such as "
            "meta-llama/Llama-3.1-8B-Instruct, gpt-4o or a tokenizer.json, to count exactly"
        )
        return estimate()

    @property
    @abstractmethod
    def context_window(self) -> int | None:
        """Tokens of the model's window, as far as it is known."""

    def count(self, messages: Messages) -> int:
        """Return an upper estimate of the tokens of the whole prompt: servers keep their chat templates."""
        contents = self.tokens.count([message["content"] for message in messages])
        return int(contents.sum()) + MESSAGE_TOKENS * len(messages) + CHAT_TOKENS

    def ask_many(self, conversations: Sequence[Messages], *, first_tokens: bool = False) -> list[ChatReply]:
        """Return the reply to each conversation, at most `max_concurrent` at a time; the first failure ends all.

        With `first_tokens`, a reply is one token, and has the log-probabilities of the likeliest ones, if the server
        tells any.

        Raises:
            InputError: A prompt does not fit the window, or is not valid Unicode.
            ReaderError: A reply is missing.
        """
        for messages in conversations:
            self._check(messages, self._most(first_tokens=first_tokens))

        def whole(messages: Messages) -> ChatReply:
            reply = ChatReply()
            deque(self._streamed(messages, reply, first_tokens=first_tokens), maxlen=0)
            return reply

        if len(conversations) < 2:
            return list(map(whole, conversations))
        # Unlike those of `concurrent.futures`, these threads do not keep an interrupted process waiting for a reply.
        with ThreadPool(min(self.max_concurrent, len(conversations))) as pool:
            return list(pool.imap(whole, conversations))  # `map` would end the others before it raises

    def stream_reply(self, messages: Messages) -> Generator[str, None, ChatReply]:
        """Yield the pieces of a reply as they arrive, thoughts included, and return it; closing stops the model.

        It raises as `ask_many`; a `ReaderError` while iterating.
        """
        self._check(messages, self.max_answer_tokens)
        return self._streamed(messages, ChatReply())

    def ask(self, messages: Messages) -> ChatReply:
        """Return the whole reply to one conversation; see `ask_many`."""
        return self.ask_many([messages])[0]

    def _most(self, *, first_tokens: bool) -> int:
        """Return the most tokens of a reply."""
        return 1 if first_tokens else self.max_answer_tokens

    def _check(self, messages: Messages, limit: int) -> None:
        for message in messages:
            check_text("a message", message["content"])
        if (window := self.context_window) is None:
            return
        if (prompt_tokens := self.count(messages)) + limit > window:
            counted = "" if self.tokens.exact else " (an upper estimate: name the model's tokenizer to count exactly)"
            raise InputError(
                f"the prompt has {prompt_tokens} tokens{counted} and the reply up to {limit}, more "
                f"than the {window} of the window of {self.title}; lower the token budget or max_answer_tokens, or "
                "shorten the question"
            )

    def _streamed(
        self, messages: Messages, reply: ChatReply, *, first_tokens: bool = False
    ) -> Generator[str, None, ChatReply]:
        limit = self.max_answer_tokens
        try:
            with closing(self._pieces(messages, reply, first_tokens=first_tokens)) as pieces:
                for piece in pieces:
                    if text := well_formed(piece):
                        reply.text += text
                        yield text
        except Exception as error:
            raise self._explained(error) from error
        if first_tokens:
            return reply
        reply.text = without_thoughts(reply.text)
        if reply.cut and reply.answer_tokens is not None and reply.answer_tokens < limit:
            raise ChatError(
                f"{self.title} stopped after {reply.answer_tokens} of up to {limit} tokens: its window is full; "
                "lower the token budget, or give the model a larger window"
            )
        if reply.cut and not reply.text:
            raise ChatError(
                f"{self.title} used up {limit} tokens before it began its answer; raise max_answer_tokens, or turn off "
                "the model's reasoning"
            )
        return reply

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
        if self.num_ctx is not None:
            return self.num_ctx
        try:
            about = self._client.show(self.model).modelinfo or {}
        except Exception:  # noqa: BLE001  (a server that cannot answer this may still chat, or will say why not)
            about = {}
        known = [value for name, value in about.items() if name.endswith(".context_length") and isinstance(value, int)]
        return next(iter(known), None)

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
            "num_predict": self._most(first_tokens=first_tokens),
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
                # Servers leave out what they do not know, or send it as null, which the client does not check.
                if chunk.usage is not None:
                    reply.prompt_tokens, reply.answer_tokens = chunk.usage.prompt_tokens, chunk.usage.completion_tokens
                for choice in (chunk.choices or ())[:1]:
                    finished = choice.finish_reason or finished
                    reply.add_alternatives(getattr(choice.logprobs, "content", None))
                    yield _text_of(getattr(choice.delta, "content", None))
        if finished is None:
            raise EOFError("it ended without its last event")
        if finished in BROKEN_OFF:
            raise EOFError(f"the server broke it off ({finished})")
        if finished == "content_filter":
            raise ChatError(f"{self.title} withheld its reply: the server's filter objects to the content")
        reply.cut = finished == "length"

    def _begun(self, messages: Messages, *, first_tokens: bool) -> Any:
        """Send one request; if the server refuses it, send it again with fewer fields."""
        import openai

        limit = self._most(first_tokens=first_tokens)
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


def without_thoughts(reply: str) -> str:
    """Return a reply, stripped, without what a model thought before it; chat templates may have written `<think>`."""
    thought, end, answer = reply.partition("</think>")
    began = thought.lstrip().startswith("<think>")
    return (answer if began or (end and "<think>" not in thought) else reply).strip()


def _text_of(content: Any) -> str:
    """Return the text of what a server sends: a text, or a list of its parts, some of which are thoughts."""
    return "".join(part.get("text") or "" for part in content) if isinstance(content, list) else content or ""


def without_password(url: str) -> str:
    """Return a URL without the user and the password that it may hold."""
    return re.sub(r"(?<=//)[^/?#]*@", "", url)


def _refuse_password(setting: str, address: str | None, variable: str) -> None:
    if address is not None:
        check_text(setting, address)
    if address and "@" in address:
        raise InputError(f"{setting} holds a user or a password; set {variable} in the environment to this address")

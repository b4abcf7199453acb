"""What a chat with a language model is, wherever the model runs: messages in, a reply out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import cached_property

from corag.checks import check_count
from corag.errors import InputError, ReaderError
from corag.naming import Part
from corag.types import TokenCounter

Messages = list[dict[str, str]]
"""Role (`system`, `user`, `assistant`) and content of each."""

MESSAGE_TOKENS = 8
"""The most that a chat template puts around a message, where the template itself is not at hand."""
CHAT_TOKENS = 32
"""The most that it puts around all of them, such as today's date."""


class ChatError(ReaderError):
    """A model gave no whole reply.

    Attributes:
        can_retry: Whether the same request may succeed later.
    """

    def __init__(self, message: str, *, can_retry: bool = False) -> None:
        super().__init__(message)
        self.can_retry = can_retry


@dataclass(frozen=True, slots=True)
class ChatReply:
    """A whole reply, or a piece of one.

    Attributes:
        text: The reply.
        log_probabilities: Of its tokens, `[t]`; empty if they were not asked for, or the server has none.
        cut: Whether it ends because `max_answer_tokens` were written.
        prompt_tokens: Tokens of the prompt, as the model counted them; None if a server does not say.
        answer_tokens: The same for the reply.
    """

    text: str = ""
    log_probabilities: tuple[float, ...] = ()
    cut: bool = False
    prompt_tokens: int | None = None
    answer_tokens: int | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class ChatSettings(Part, ABC):
    """Which model to chat with, and how: the base of all parts that ask one.

    Attributes:
        model: Its name.
        max_answer_tokens: Maximum tokens of a reply.
    """

    model: str
    max_answer_tokens: int = 512

    def __post_init__(self) -> None:
        if not str(self.model).strip():
            raise InputError(f"model must be the name of a model, got {self.model!r}")
        check_count("max_answer_tokens", self.max_answer_tokens, "64 to 1024 are usual")

    @abstractmethod
    def connect(self) -> Chat:
        """Return the model to chat with."""

    @cached_property
    def chat(self) -> Chat:
        """The model to chat with, made once."""
        return self.connect()


class Chat(ABC):
    """A language model to chat with. Threads may share one.

    Attributes:
        name: Kind and name of the model, such as `ollama/llama3.1:8b`.
        max_answer_tokens: Maximum tokens of a reply.
        max_concurrent: Replies that are written at the same time.
    """

    name: str
    max_answer_tokens: int
    max_concurrent: int = 1

    @property
    @abstractmethod
    def identity(self) -> str:
        """What a reply depends on besides the messages."""

    @property
    @abstractmethod
    def tokens(self) -> TokenCounter:
        """Counts as the model does, or estimates, and says so, if its tokenizer is not at hand."""

    @property
    @abstractmethod
    def window_tokens(self) -> int | None:
        """The most tokens of prompt and reply together; None if that is not known."""

    @abstractmethod
    def count(self, messages: Messages) -> int:
        """Return the tokens of the whole prompt, what the chat template adds included."""

    @abstractmethod
    def ask_many(self, conversations: Sequence[Messages], *, scored: bool = False) -> list[ChatReply]:
        """Return the whole reply to each conversation; with `scored`, with log-probabilities if there are any.

        Raises:
            InputError: A prompt does not fit the window, or is not valid Unicode.
            ReaderError: A reply is missing.
        """

    @abstractmethod
    def stream(self, messages: Messages, *, scored: bool = False) -> Generator[str, None, ChatReply]:
        """Yield the pieces of a reply as they are written, none empty, and return the whole; closing stops the model.

        Raises:
            InputError: As for `ask_many`.
            ReaderError: While iterating: the reply did not begin or did not end.
        """

    @property
    def title(self) -> str:
        """The model, and where it is, for errors."""
        return f"the model {self.name!r}"

    def ask(self, messages: Messages, *, scored: bool = False) -> ChatReply:
        """Return the whole reply to one conversation; see `ask_many`."""
        return self.ask_many([messages], scored=scored)[0]

    def check(self) -> None:  # noqa: B027  (most have nothing to check)
        """Return if the model is there, or raise `ReaderError`, which says what to do."""

    def check_window(self, prompt_tokens: int) -> None:
        """Raise `InputError` for a prompt that leaves no room for a reply."""
        window = self.window_tokens
        if window is not None and prompt_tokens + self.max_answer_tokens > window:
            counted = "" if self.tokens.exact else " (an upper estimate: name the model's tokenizer to count exactly)"
            raise InputError(
                f"the prompt has {prompt_tokens} tokens{counted} and the reply up to {self.max_answer_tokens}, more "
                f"than the {window} that the model {self.name!r} takes; lower the token budget or max_answer_tokens, "
                "or shorten the question"
            )

"""A chat with a language model: messages in, a reply out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from corag.checks import check_count
from corag.errors import InputError, ReaderError
from corag.models.servers import check_model
from corag.naming import Part
from corag.types import TokenCounter

Messages = list[dict[str, str]]
"""Role (`system`, `user`, `assistant`) and content of each."""

MESSAGE_TOKENS = 8
"""The most that a chat template puts around a message, if the template itself is unknown."""
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


@dataclass(slots=True)
class ChatReply:
    """A reply.

    Attributes:
        log_probabilities: Of its tokens, `[t]`; empty if they were not requested, or the server has none.
        cut: Whether it ends because `max_answer_tokens` were written.
        prompt_tokens: As the model counted them, as the next; None if a server does not say.
    """

    text: str = ""
    log_probabilities: tuple[float, ...] = ()
    cut: bool = False
    prompt_tokens: int | None = None
    answer_tokens: int | None = None


@dataclass(kw_only=True, eq=False)
class Chat(Part, ABC):
    """A language model to chat with: the base of the readers and summarizers that ask one. Threads may share it.

    Attributes:
        model: Its name.
        max_answer_tokens: Maximum tokens of a reply.
    """

    model: str
    max_answer_tokens: int = 512

    def __post_init__(self) -> None:
        check_model(self.model)
        check_count("max_answer_tokens", self.max_answer_tokens, "typical: 64-1024")

    @property
    @abstractmethod
    def name(self) -> str:
        """Kind and name of the model, such as `ollama/llama3.1:8b`."""

    @property
    def title(self) -> str:
        """The model, and where it is, for errors."""
        return f"the model {self.name!r}"

    @property
    def identity(self) -> str:
        """What a reply depends on besides the messages."""
        return f"{self.name} {self.max_answer_tokens}"

    @property
    def max_concurrent(self) -> int:
        """The most replies that are written at the same time."""
        return 1

    @property
    @abstractmethod
    def counter(self) -> TokenCounter:
        """Counts as the model does; an estimate, flagged as such, if its tokenizer is not on this machine."""

    @property
    @abstractmethod
    def context_window(self) -> int | None:
        """Maximum tokens of prompt and reply together; None if unknown."""

    @abstractmethod
    def count(self, messages: Messages) -> int:
        """Return the tokens of the whole prompt, including what the chat template adds."""

    @abstractmethod
    def ask_many(self, conversations: Sequence[Messages], *, scored: bool = False) -> list[ChatReply]:
        """Return the whole reply to each conversation; with `scored`, with log-probabilities if there are any.

        Raises:
            InputError: A prompt does not fit the window, or is not valid Unicode.
            ReaderError: A reply is missing.
        """

    @abstractmethod
    def stream_reply(self, messages: Messages, *, scored: bool = False) -> Generator[str, None, ChatReply]:
        """Yield the pieces of a reply as they are written, none empty, and return the whole; closing stops the model.

        It raises as `ask_many`; a `ReaderError` while iterating.
        """

    def ask(self, messages: Messages, *, scored: bool = False) -> ChatReply:
        """Return the whole reply to one conversation; see `ask_many`."""
        return self.ask_many([messages], scored=scored)[0]

    def check(self) -> None:
        """Return if the model is available, or raise `ReaderError`, which says what to do."""

    def check_window(self, prompt_tokens: int) -> None:
        """Raise `InputError` for a prompt that leaves no room for a reply."""
        window = self.context_window
        if window is not None and prompt_tokens + self.max_answer_tokens > window:
            counted = "" if self.counter.exact else " (an upper estimate: name the model's tokenizer to count exactly)"
            raise InputError(
                f"the prompt has {prompt_tokens} tokens{counted} and the reply up to {self.max_answer_tokens}, more "
                f"than the {window} of the window of {self.title}; lower the token budget or max_answer_tokens, or "
                "shorten the question"
            )

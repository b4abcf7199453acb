"""Summarizers that ask a language model: `openai`, `ollama`, `transformers`."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

from corag.checks import check_choice
from corag.errors import InputError, ReaderError, SummarizerError
from corag.models.chat.base import ChatSettings
from corag.models.chat.local import LocalSettings
from corag.models.chat.prompts import Prompt, prompt
from corag.models.chat.servers import DEFAULT_OLLAMA_MODEL, OllamaSettings, OpenAISettings
from corag.types import SummaryRequest, TokenCounter

Task = Literal["question", "statement", "person", "summary"]

NOTHING = "NOTHING RELEVANT"
"""The reply that the prompts ask for if the texts hold nothing relevant."""

# English has about three words to four tokens; models count badly, so they are asked for fewer.
_WORDS_PER_TOKEN = 0.6


@dataclass(frozen=True, kw_only=True, eq=False)
class ChatSummarizer(ChatSettings):
    """Has a language model write the summary; the base of `openai`, `ollama` and `transformers`.

    The tasks are those of EDC2-RAG (sections 4.3 and B: what helps with a question, what bears on a statement, what
    bears on a statement about a person) and of CRAG (section 2.4: what many texts say together); the words are ours,
    in `corag/prompts/summaries`. Each shows the model an example first, as both papers do.

    Attributes:
        max_answer_tokens: Maximum tokens of a reply, which should hold the longest summary that is asked for.
        task: What to look for. A request without a query is always a `summary`.
        tokens: Counts the tokens of summaries, and, unless there is a `tokenizer`, of texts; by default as the model
            does.
    """

    max_answer_tokens: int = 1024
    task: Task = "question"
    tokens: TokenCounter | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("task", self.task, Task)
        if self.tokens is not None and getattr(self, "tokenizer", self) is None:
            object.__setattr__(self, "tokenizer", self.tokens)
        if self.tokens is None:
            object.__setattr__(self, "tokens", self.chat.tokens)
        if self.window_tokens is not None and self.window_tokens < 1:
            raise InputError(
                f"max_answer_tokens={self.max_answer_tokens} and the prompt leave no room for texts in the window of "
                f"{self.chat.title}; lower the former, or set a larger window"
            )

    @cached_property
    def prompts(self) -> dict[str, Prompt]:
        """The prompts of the task and of a plain summary."""
        needs = {
            name: ["documents", "words"] + (["question"] if name != "summary" else [])
            for name in (self.task, "summary")
        }
        return {name: prompt(name, "corag/prompts/summaries", needs=fields) for name, fields in needs.items()}

    @property
    def name(self) -> str:
        """Kind and name of the model, such as `ollama/llama3.1:8b`."""
        return self.chat.name

    @cached_property
    def window_tokens(self) -> int | None:
        """The most tokens of texts in one request: what prompt and reply leave of the model's window."""
        window = self.chat.window_tokens
        if window is None:
            return None
        around = max(
            self.chat.count(one.messages(documents="", question="", words="1000")) for one in self.prompts.values()
        )
        return window - around - self.max_answer_tokens

    @property
    def identity(self) -> str:
        """Everything that a summary depends on besides the request."""
        counter = None if self.tokens is None else self.tokens.name
        return json.dumps([self.chat.identity, counter, [one.text for one in self.prompts.values()]])

    def summarize(self, request: SummaryRequest) -> str:
        """Return the model's reply, stripped; empty when it finds nothing that matters.

        Raises:
            SummarizerError: The model gave no whole reply.
            InputError: A text is not valid Unicode, or the prompt longer than the model takes.
        """
        asked = self.prompts[self.task if request.query else "summary"]
        words = max(1, int(request.max_tokens * _WORDS_PER_TOKEN))
        try:
            reply = self.chat.ask(
                asked.messages(documents="\n\n".join(request.texts), question=request.query, words=str(words))
            )
        except ReaderError as error:
            raise SummarizerError(str(error)) from error
        if reply.cut:
            raise SummarizerError(
                f"{self.chat.title} wrote more than {self.max_answer_tokens} tokens; raise max_answer_tokens, or take "
                "another model"
            )
        if not reply.text.strip():
            raise SummarizerError(f"{self.chat.title} sent an empty reply; try it by hand, or take another model")
        return "" if says_nothing(reply.text) else reply.text.strip()


@dataclass(frozen=True, kw_only=True, eq=False)
class OllamaSummarizer(ChatSummarizer, OllamaSettings):
    """Asks a model of an Ollama server; needs `pip install 'corag[ollama]'`.

    For the settings see `ChatSummarizer`, `corag.models.chat.servers.OllamaSettings` and
    `ServerSettings` there.

    Attributes:
        num_ctx: Tokens of the model's context window. Texts beyond it are summarized in parts.
    """

    # Fields of the first base, which has no default here, count last.
    model: str = DEFAULT_OLLAMA_MODEL
    num_ctx: int | None = 8192


@dataclass(frozen=True, kw_only=True, eq=False)
class OpenAISummarizer(ChatSummarizer, OpenAISettings):
    """Asks a model of an OpenAI-compatible server; needs `pip install 'corag[openai]'`.

    For the settings see `ChatSummarizer`, `corag.models.chat.servers.OpenAISettings` and
    `ServerSettings` there.
    """


@dataclass(frozen=True, kw_only=True, eq=False)
class TransformersSummarizer(ChatSummarizer, LocalSettings):
    """Runs a causal language model in this process; needs `pip install 'corag[models]'`.

    For the settings see `ChatSummarizer` and `corag.models.chat.local.LocalSettings`.
    """

    max_concurrent: ClassVar[int] = 1


def says_nothing(reply: str) -> bool:
    """Tell whether a reply says that there is nothing, and nothing else."""
    return re.sub(r"[\W_]+", " ", reply).strip().casefold() == NOTHING.casefold()

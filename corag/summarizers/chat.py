"""Summarizers that ask a language model on a server: `openai`, `ollama`."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from common.checks import check_choice
from corag.errors import InputError, ReaderError, SummarizerError
from corag.models.chat import DEFAULT_OLLAMA_MODEL, Chat, OllamaChat, OpenAIChat
from corag.models.prompts import prompt
from corag.types import SummaryRequest

Task = Literal["question", "statement", "person", "summary"]

NOTHING = "NOTHING RELEVANT"
"""The reply that the prompts ask for if the texts hold nothing relevant."""

# English has about three words to four tokens; models count badly, so they are asked for fewer.
_WORDS_PER_TOKEN = 0.6


@dataclass(kw_only=True, eq=False)
class ChatSummarizer(Chat):
    """Has a language model write the summary; the base of `openai` and `ollama`.

    The tasks are those of EDC2-RAG (sections 4.3 and B: what helps with a question, what bears on a statement, what
    bears on a statement about a person) and of CRAG (section 2.4: what many texts say together); the words are ours,
    in `corag/prompts/summaries`. Each shows the model an example first, as both papers do.

    Attributes:
        max_answer_tokens: Maximum tokens of a reply, which should hold the longest summary that is asked for.
        task: What to look for. A request without a query is always a `summary`.
    """

    max_answer_tokens: int = 1024
    task: Task = "question"

    def __post_init__(self) -> None:
        check_choice("task", self.task, Task)
        needs = {self.task: ["documents", "words", "question"], "summary": ["documents", "words"]}
        self._prompts = {name: prompt(name, "corag/prompts/summaries", needs=needs[name]) for name in needs}
        super().__post_init__()
        if self.window_tokens is not None and self.window_tokens < 1:
            raise InputError(
                f"max_answer_tokens={self.max_answer_tokens} and the prompt leave no room for texts in the window of "
                f"{self.title}; lower the former, or set a larger window"
            )

    @cached_property
    def window_tokens(self) -> int | None:
        """The most tokens of texts in one request: what prompt and reply leave of the model's window."""
        if self.context_window is None:
            return None
        requests = [asked.messages(documents="", question="", words="1000") for asked in self._prompts.values()]
        return self.context_window - max(map(self.count, requests)) - self.max_answer_tokens

    @property
    def identity(self) -> str:
        """Everything that a summary depends on besides the request."""
        return json.dumps([super().identity, self.tokens.name, [asked.text for asked in self._prompts.values()]])

    def summarize(self, request: SummaryRequest) -> str:
        """Return the model's reply, stripped; empty if it finds nothing relevant."""
        words = max(1, int(request.max_tokens * _WORDS_PER_TOKEN))
        messages = self._prompts[self.task if request.query else "summary"].messages(
            documents="\n\n".join(request.texts), question=request.query, words=str(words)
        )
        try:
            reply = self.ask(messages)
        except ReaderError as error:
            raise SummarizerError(str(error)) from error
        if reply.cut:
            raise SummarizerError(
                f"{self.title} wrote more than {self.max_answer_tokens} tokens; raise max_answer_tokens, or use "
                "another model"
            )
        if not reply.text:
            raise SummarizerError(f"{self.title} sent an empty reply; try it by hand, or use another model")
        is_nothing = re.sub(r"[\W_]+", " ", reply.text).strip().casefold() == NOTHING.casefold()
        return "" if is_nothing else reply.text


@dataclass(kw_only=True, eq=False)
class OllamaSummarizer(ChatSummarizer, OllamaChat):
    """Asks an Ollama server; for the settings see `ChatSummarizer` and `corag.models.chat.OllamaChat`.

    Attributes:
        num_ctx: Tokens of the model's context window. Texts beyond it are summarized in parts.
    """

    # Fields of the first base, which has no default here, override those of the second.
    model: str = DEFAULT_OLLAMA_MODEL
    num_ctx: int | None = 8192


@dataclass(kw_only=True, eq=False)
class OpenAISummarizer(ChatSummarizer, OpenAIChat):
    """Asks an OpenAI-compatible server; see `ChatSummarizer` and `corag.models.chat.OpenAIChat`."""

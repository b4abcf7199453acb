"""Readers that ask a language model on a server: `openai`, `ollama`.

This module knows prompts and answers; `corag.models.chat` knows how the models are asked.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from common.checks import check_query
from corag.models.chat import Chat, ChatReply, OllamaChat, OpenAIChat
from corag.models.prompts import Messages, Prompt, prompt
from corag.optional import warn_once
from corag.text.documents import SEPARATOR
from corag.types import Answer

NO_ANSWER = "I don't know"
"""The reply that the shipped prompts ask for if the context does not contain the answer."""

NUMBERED = "numbered_context"
"""The field of a prompt for a context whose parts have citation markers."""

_MARKER = re.compile(r"\[(\d{1,4}(?:\s*[-\u2013,;]\s*\d{1,4})*)\]")
"""What a language model writes to cite parts of the context: `[2]`, `[1, 3]` or `[1-3]`."""
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
"""Code in Markdown, in which a number in brackets is an index."""


@dataclass(kw_only=True, eq=False)
class ChatReader(Chat):
    """Answers with the reply of a language model; the base of `openai` and `ollama`.

    Attributes:
        prompt: What the model is asked: `short`, `sentences`, `cited`, `paper-crag`, or the path of a text file with
            the fields `{question}` and `{context}`, or `{numbered_context}`, in which parts begin with `[1]`, `[2]`,
            ...; see `corag.models.prompts`.
    """

    prompt: str = "short"

    def __post_init__(self) -> None:
        self.template: Prompt = prompt(
            str(self.prompt), "corag/prompts", needs=["question"], one_of=["context", NUMBERED]
        )
        super().__post_init__()

    @property
    def identity(self) -> str:
        """What answers depend on besides question and context."""
        return f"{super().identity} {self.template.text!r}"

    @property
    def window_tokens(self) -> int | None:
        """Maximum tokens of prompt and answer together; None if unknown."""
        return self.context_window

    def prompt_tokens(self, query: str, context: str = "") -> int:
        """Return the tokens of the whole prompt, chat template included; with no context, of what surrounds one."""
        return self.count(self.messages(query, context))

    def answer(self, query: str, context: str) -> Answer:
        """Return the model's reply; see `answer_many`."""
        return self.answer_many([query], [context])[0]

    def answer_many(self, queries: Sequence[str], contexts: Sequence[str]) -> list[Answer]:
        """Return the model's reply to each question, stripped; an empty text if it finds no answer.

        The chunk is the first one that the reply cites.

        Raises:
            InputError: A question is empty, or a prompt longer than the model takes.
            ReaderError: A server gave no whole reply.
        """
        conversations = [self.messages(*pair) for pair in zip(queries, contexts, strict=True)]
        replies = self.ask_many(conversations)
        return [self._answer(reply, context) for reply, context in zip(replies, contexts, strict=True)]

    def stream(self, query: str, context: str) -> Generator[str, None, Answer]:
        """Yield the pieces of the model's reply as they arrive, and return the answer; closing it stops the model."""
        return self._answer((yield from self.stream_reply(self.messages(query, context))), context)

    def messages(self, query: str, context: str) -> Messages:
        """Return what the model is asked; `InputError` for an empty question."""
        check_query(query)
        values = {NUMBERED: numbered(context)} if NUMBERED in self.template.fields else {"context": context}
        return self.template.messages(question=query, **values)

    def standing_alone(self, question: str, turns: Sequence[tuple[str, str]]) -> str:
        """Return a question such that it is understood without the questions and answers before it, oldest first."""
        if not turns:
            return question
        told = "\n".join(f"Question: {asked}\nAnswer: {answer or 'none'}" for asked, answer in turns)
        rewrite = prompt("rewrite", "corag/prompts/chat", needs=["history", "question"])
        messages = rewrite.messages(history=told, question=question)
        if self.context_window is not None and self.count(messages) + self.max_answer_tokens > self.context_window:
            return self.standing_alone(question, list(turns)[1:])  # it is told the last ones that fit
        written = self.ask(messages)
        text = " ".join(written.text.split())
        return question if written.cut or not text else text

    def _answer(self, reply: ChatReply, context: str) -> Answer:
        text = reply.text
        usage: dict[str, Any] = {"prompt_tokens": reply.prompt_tokens, "answer_tokens": reply.answer_tokens}
        if not text:
            warn_once(f"{self.title} sent an empty reply, which counts as no answer; if it often does, try it by hand")
        # Models write a typographic apostrophe, and a full stop.
        if not text or text.rstrip(".").replace("\u2019", "'").casefold() == NO_ANSWER.casefold():
            return Answer("", **usage)
        cited, unknown = citations(text, context) if NUMBERED in self.template.fields else ((), ())
        chunk = cited[0] if cited else None
        usage |= {"citations": cited, "unknown_citations": unknown}
        return Answer(text, chunk=chunk, cut=reply.cut, **usage)


@dataclass(kw_only=True, eq=False)
class OllamaReader(OllamaChat, ChatReader):
    """Asks an Ollama server; for the settings see `ChatReader` and `corag.models.chat.OllamaChat`."""


@dataclass(kw_only=True, eq=False)
class OpenAIReader(OpenAIChat, ChatReader):
    """Asks an OpenAI-compatible server; see `ChatReader` and `corag.models.chat.OpenAIChat`."""


def numbered(context: str) -> str:
    """Return a context whose parts, which empty lines divide, begin with `[1] `, `[2] `, ...

    Chosen sentences of one document are one part.
    """
    parts = enumerate(context.split(SEPARATOR), start=1)
    return SEPARATOR.join(f"[{number}] {part}" if part.strip() else part for number, part in parts)


def citations(reply: str, context: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the parts of a context that a reply cites, and those it cites that are not there.

    They are counted from 0, each once, in the order of the reply.
    """
    num_parts = len(context.split(SEPARATOR))
    marked = ",".join(_MARKER.findall(_CODE.sub("", reply))).replace("\u2013", "-").replace(";", ",")
    ranges = [numbers.split("-") for numbers in marked.split(",") if numbers]
    said = dict.fromkeys(part for ends in ranges for part in range(int(ends[0]) - 1, int(ends[-1])))
    cited = tuple(part for part in said if 0 <= part < num_parts)
    return cited, tuple(part for part in said if part not in cited)

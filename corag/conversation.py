"""Several questions in a row: a language model makes each one stand alone, then it is asked like any other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from corag.budget import AUTO, reader_and_tokens, tokens_setting
from corag.candidates import Retriever, Text
from corag.checks import check_budget, check_query
from corag.errors import InputError
from corag.index import ChunkIndex
from corag.models.prompts import prompt
from corag.readers.chat import ChatReader, without_thoughts
from corag.registry import SELECTORS
from corag.reply import Reply, ask, embedder_of
from corag.selectors.raptor.tree import tree_setting
from corag.types import Reader, TokenCounter

OF_ASK = {"num_candidates", "retrieval", "where", "budget_for"}
"""Settings of `corag.ask` itself; others are those of the selector."""


class Turn(NamedTuple):
    """A question as it was asked, as it was made to stand alone, and its answer."""

    question: str
    alone: str
    answer: str


class Conversation:
    """Questions about the same documents, one after the other; the settings are those of `corag.ask`.

    The turns that the model is told are the last ones whose tokens fit the budget.

    Attributes:
        turns: What was asked and answered so far.

    Raises:
        InputError: The reader asks no language model.
    """

    def __init__(
        self,
        index: ChunkIndex | str | Path | Sequence[Text] | Retriever,
        *,
        reader: str | Reader | None = None,
        budget_tokens: int = 1024,
        embedder: Any = None,
        tokenizer: str | TokenCounter = AUTO,
        method: Any = "corag",
        **settings: Any,
    ) -> None:
        check_budget(budget_tokens)
        made, self._tokens = reader_and_tokens(reader, tokenizer, prompt="cited")
        if not isinstance(made, ChatReader):
            raise InputError(
                "a conversation needs a language model: give reader ollama(model=...) or openai(model=...); without "
                "one, ask single questions"
            )
        self.turns: list[Turn] = []
        self._reader, self._budget = made, budget_tokens
        self._index = ChunkIndex.open(index) if isinstance(index, str | Path) else index
        self._prompt = prompt("rewrite", "corag/prompts/chat", needs=["history", "question"])
        # Built once: an agent and its models are not loaded again for each question.
        of_selector = {name: settings.pop(name) for name in settings.keys() - OF_ASK}
        defaults = {**tokens_setting(self._tokens), **tree_setting(method, self._index)}
        self._settings = {
            **settings,
            "method": SELECTORS.make(method, defaults=defaults, **of_selector),
            "embedder": embedder or embedder_of(self._index),
            "tokenizer": self._tokens,
            "budget_tokens": budget_tokens,
        }

    def ask(self, question: str, *, on_token: Callable[[str], None] | None = None) -> Reply:
        """Return the answer to a question, whose `question` is what the model made of it; errors change nothing."""
        check_query(question)
        alone = self._standing_alone(question)
        reply = ask(alone, self._index, reader=self._reader, on_token=on_token, **self._settings)
        self.turns.append(Turn(question, alone, reply.answer.text if reply.answer else ""))
        return reply

    def clear(self) -> None:
        """Begin anew."""
        self.turns.clear()

    def _standing_alone(self, question: str) -> str:
        told, tokens = list[str](), 0
        for turn in reversed(self.turns):
            told.append(f"Question: {turn.question}\nAnswer: {turn.answer or 'none'}")
            tokens += int(self._tokens.count([told[-1]])[0])
            if tokens > self._budget:
                told.pop()
                break
        if not told:
            return question
        written = self._reader.ask(self._prompt.messages(history="\n".join(reversed(told)), question=question))
        text = " ".join(without_thoughts(written.text).split())
        return question if written.cut or not text else text

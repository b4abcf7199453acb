"""Several questions in a row, each understood from those before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from corag.budget import AUTO, reader_and_tokens, tokens_setting
from corag.candidates import Retriever, Text
from corag.checks import check_budget, check_query
from corag.index import ChunkIndex
from corag.models.chat import MESSAGE_TOKENS
from corag.models.prompts import Prompt, prompt
from corag.naming import Spelling
from corag.readers.chat import ChatReader, without_thoughts
from corag.registry import SELECTORS
from corag.reply import Reply, ask, embedder_of
from corag.selectors.order import PREVIOUS
from corag.selectors.raptor.tree import tree_setting
from corag.text.questions import understood
from corag.types import Reader, Selection, TokenCounter

HISTORY_SHARE = 0.5
"""The most of a budget that what was said before may take."""
MAX_REWRITTEN = 600
"""Characters of a rewritten question; a model that writes more has not understood what it was asked."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A question as it was asked, as it was understood, and its answer."""

    question: str
    understood: str
    answer: str


class Conversation:
    """Questions about the same documents, one after the other; the settings are those of `corag.ask`.

    A language model rewrites a question so that it can be understood alone, and gets the turns before it in its prompt:
    at most half of the budget, the oldest turns are dropped first. For any other reader, a question that refers back
    gets the subject of the one that it refers to.

    Attributes:
        turns: What was asked and answered so far.
    """

    def __init__(
        self,
        index: ChunkIndex | str | Path | Sequence[Text] | Retriever,
        *,
        budget_tokens: int = 1024,
        reader: Spelling | Reader = "minilm-reader",
        embedder: Any = None,
        tokenizer: Spelling | TokenCounter = AUTO,
        **settings: Any,
    ) -> None:
        check_budget(budget_tokens)
        self.turns: list[Turn] = []
        self._index = ChunkIndex.open(index) if isinstance(index, str | Path) else index
        self._embedder, self._budget = embedder or embedder_of(self._index), budget_tokens
        self._reader, self._tokens = reader_and_tokens(reader, tokenizer)
        # Built once: an agent and its models are not loaded again for each question.
        method = settings.get("method", "corag")
        offered = {**tokens_setting(self._tokens), **tree_setting(method, self._index)}
        self._before: Selection | None = None
        self._settings = {**settings, "method": SELECTORS.make(method, defaults=offered)}

    def ask(self, question: str, *, on_token: Callable[[str], None] | None = None) -> Reply:
        """Return the answer to a question, whose `question` is what it was understood as; errors change nothing."""
        check_query(question)
        reader = self._reader
        if isinstance(reader, ChatReader):
            turns = self._recent()
            asked = self._rewritten(question, turns, reader)
            reader = reader.after([(turn.question, turn.answer) for turn in turns])
        else:
            asked = understood(question, [turn.question for turn in self.turns])
        with PREVIOUS.set(self._before):
            reply = ask(
                asked,
                self._index,
                budget_tokens=self._budget,
                reader=reader,
                embedder=self._embedder,
                tokenizer=self._tokens,
                on_token=on_token,
                **self._settings,
            )
        self._before = reply.selection
        self.turns.append(Turn(question, asked, reply.answer.text if reply.found else ""))
        return reply

    def forget(self) -> None:
        """Begin anew."""
        self.turns.clear()
        self._before = None

    def _rewritten(self, question: str, turns: Sequence[Turn], reader: ChatReader) -> str:
        if not turns:
            return question
        history = "\n".join(f"Question: {turn.question}\nAnswer: {turn.answer or 'none'}" for turn in turns)
        written = reader.ask(self._prompt.messages(history=history, question=question))
        text = " ".join(without_thoughts(written.text).split())
        return text if 0 < len(text) <= MAX_REWRITTEN and not written.cut else question

    def _recent(self) -> list[Turn]:
        """Return the last turns that fit their share of the budget, oldest first."""
        remaining, recent = HISTORY_SHARE * self._budget, []
        for turn in reversed(self.turns):
            remaining -= int(sum(self._tokens.count([turn.question, turn.answer]))) + 2 * MESSAGE_TOKENS
            if remaining < 0:
                break
            recent.append(turn)
        return recent[::-1]

    @cached_property
    def _prompt(self) -> Prompt:
        return prompt("rewrite", "corag/prompts/chat", needs=["history", "question"])

"""What of a token budget is left for the context, once the prompt around it is paid for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

from common.checks import check_budget, check_choice
from common.configuration import parse
from corag.errors import InputError
from corag.registry import READERS
from corag.registry import tokens as make_tokens
from corag.types import Candidate, PromptedReader, Reader, Selection, Selector, TokenCounter

AUTO = "auto"
"""The tokenizer of the reader's model."""

BudgetFor = Literal["prompt", "context"]
T = TypeVar("T")


def reader_and_tokens(
    reader: str | Reader | None, tokens: str | TokenCounter = AUTO, **offered: Any
) -> tuple[Reader | None, TokenCounter]:
    """Return a reader and what counts the tokens of its prompts; a reader given by name counts by it, too.

    `auto` is the reader's own counter, or MiniLM's for a reader without a prompt, or none. A reader given by name gets
    what is `offered` of its settings, unless its name has them.
    """
    if isinstance(tokens, str) and parse(tokens).name == AUTO:
        made = None if reader is None else READERS.make(reader, defaults=offered)
        return made, made.tokens if isinstance(made, PromptedReader) else make_tokens()
    counter = make_tokens(tokens)
    return None if reader is None else READERS.make(reader, defaults={"tokenizer": counter, **offered}), counter


def tokens_setting(tokens: TokenCounter) -> dict[str, TokenCounter]:
    """Return the setting `tokenizer` of a selector; none for MiniLM's counter, which all selectors have by default."""
    return {} if tokens is make_tokens() else {"tokenizer": tokens}


def choose_within(budget: int, choose: Callable[[int], T], cost: Callable[[T], int]) -> T | None:
    """Return what `choose` returns for at most a budget of tokens, such that it costs no more; None if nothing does.

    What is put around chosen texts may cost more than is known beforehand: then fewer tokens are asked for.
    """
    left = budget
    while left > 0:
        choice = choose(left)
        if (tokens := cost(choice)) <= budget:
            return choice
        left = min(left - 1, left * budget // tokens)
    return None


class Counts(NamedTuple):
    """The tokens of a prompt: its budget, what that covers, and its own tokens, None for a reader without a prompt.

    `exact` says whether the counter named `tokenizer` counted the context as the reader's model does.
    """

    budget_tokens: int
    budget_for: BudgetFor
    prompt_tokens: int | None
    tokenizer: str
    exact: bool


@dataclass(frozen=True, slots=True)
class Budget:
    """A token budget of the prompts that a reader gets.

    Attributes:
        tokens: The budget.
        reader: Who reads. One without a prompt, such as those that ship, gets the context alone.
        of: What the budget is for: the whole `prompt`, chat template and question included, or the `context` alone.
    """

    tokens: int
    reader: Reader | None = None
    of: BudgetFor = "prompt"

    def __post_init__(self) -> None:
        check_budget(self.tokens)
        check_choice("budget_for", self.of, BudgetFor)

    def for_context(self, query: str) -> int:
        """Return the most tokens that the context of a question may have; `InputError` if there are none."""
        if self.of == "context" or not isinstance(self.reader, PromptedReader):
            return self.tokens
        available = self.tokens - self.reader.prompt_tokens(query)
        if available < 1:
            raise self._too_small(query)
        return available

    def select(self, selector: Selector, query: str, candidates: Sequence[Candidate]) -> Selection:
        """Return a selection whose prompt costs at most the budget; `InputError` if it does not fit the window.

        The tokens of a prompt need not be those of its parts: texts merge where they meet, and a reader may write
        control tokens in another way. If the prompt exceeds the budget, the selector is asked again for fewer tokens.
        """
        available = self.for_context(query)
        selection = choose_within(
            available,
            lambda tokens: selector.select(query, candidates, tokens),
            lambda chosen: available + self.excess(query, chosen.text),
        )
        if selection is None:
            raise self._too_small(query)
        if error := self.beyond_window(query, selection.text):
            raise InputError(error)
        return selection

    def excess(self, query: str, context: str) -> int:
        """Return the tokens of a prompt above the budget; 0 or less for none."""
        prompt = None if self.of == "context" else self.prompt_tokens(query, context)
        return 0 if prompt is None else prompt - self.tokens

    def prompt_tokens(self, query: str, context: str) -> int | None:
        """Return the tokens of the whole prompt; None for a reader without one."""
        return self.reader.prompt_tokens(query, context) if isinstance(self.reader, PromptedReader) else None

    def counts(self, query: str, context: str, tokens: TokenCounter) -> Counts:
        """Return what the prompt costs with a context whose tokens were counted by `tokens`."""
        exact = self.counts_exactly(tokens)
        return Counts(self.tokens, self.of, self.prompt_tokens(query, context), tokens.name, exact)

    def counts_exactly(self, tokens: TokenCounter) -> bool:
        """Return whether a counter can count as the reader's model does."""
        # No model that is prompted has MiniLM's vocabulary.
        return tokens.exact and not (isinstance(self.reader, PromptedReader) and tokens.name == "minilm")

    def beyond_window(self, query: str, context: str) -> str:
        """Return why a prompt leaves no room for an answer in the window of the reader's model; nothing if it does."""
        reader = self.reader
        if isinstance(reader, PromptedReader) and reader.window_tokens is not None:
            prompt, most = reader.prompt_tokens(query, context), reader.window_tokens - reader.max_answer_tokens
            if prompt > most:
                most -= reader.prompt_tokens(query) if self.of == "context" else 0
                return (
                    f"the prompt of {reader.name} has {prompt} tokens by {reader.tokens.name} and the answer up to "
                    f"{reader.max_answer_tokens}, but the model takes {reader.window_tokens} in all; give a budget of "
                    f"at most {max(most, 0)} tokens, or fewer max_answer_tokens"
                )
        return ""

    def _too_small(self, query: str) -> InputError:
        name = "the reader" if self.reader is None else self.reader.name
        return InputError(
            f"the budget of {self.tokens} tokens leaves no room for a context: the prompt of {name} has "
            f"{self.prompt_tokens(query, '')} tokens around it; give a higher budget, a shorter question, or "
            "budget_for=context"
        )

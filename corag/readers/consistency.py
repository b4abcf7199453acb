"""`self-consistency`: several answers of one language model, and the one that most of them agree on.

Wang et al., "Self-consistency improves chain of thought reasoning in language models" (2022).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from corag.checks import check_count
from corag.errors import InputError
from corag.naming import Part, Spelling, parse
from corag.readers.chat import ChatReader
from corag.registry import READERS
from corag.types import Answer, TokenCounter

DEFAULT_TEMPERATURE = 0.7
"""Of the paper's experiments with GPT-3."""

_MARKS = re.compile(r"[^\w\s]|\b(?:a|an|the)\b")


class SelfConsistentReader(Part):
    """Asks a language model several times, each with a seed of its own, and answers what most replies say.

    Answers that differ in case, punctuation and articles alone are one. Of equally frequent ones the first is taken;
    the confidence is the share of the replies that say so.

    Args:
        reader: Reader whose model is asked, by name, such as `ollama(model=llama3.1:8b)`: it must take `temperature`
            and `seed`.
        samples: How often it is asked.
        temperature: Of the sampling, above 0.
        tokenizer: Counts the tokens of prompts, as for the reader itself.
    """

    def __init__(
        self,
        *,
        reader: Spelling,
        samples: int = 5,
        temperature: float = DEFAULT_TEMPERATURE,
        tokenizer: Spelling | TokenCounter | None = None,
    ) -> None:
        check_count("samples", samples, "5 to 20 are usual")
        written = parse(reader)
        takes = READERS.settings(written.name)
        if not {"temperature", "seed"} <= set(takes):
            raise InputError(
                f"reader {written.name!r} takes no temperature and seed, so its answers are all alike; name one that "
                "asks a server: openai(model=...) or ollama(model=...)"
            )
        if not temperature > 0:
            raise InputError(f"temperature must be above 0, got {temperature!r}; 0.5 to 1 are usual")
        first = written.settings.get("seed", 0)
        check_count("seed", first, "0 is usual", least=0)
        given = {"temperature": temperature, **({} if tokenizer is None else {"tokenizer": tokenizer})}
        given |= written.settings
        made = [READERS.make(written.name, **{**given, "seed": first + number}) for number in range(samples)]
        self.readers = [one for one in made if isinstance(one, ChatReader)]
        if not self.readers:
            raise InputError(f"reader {written.name!r} asks no language model; name openai(model=...) or ollama(...)")
        self._first = self.readers[0]
        self.name = f"self-consistency/{self._first.name}"
        self.max_concurrent = self._first.chat.max_concurrent
        self.max_answer_tokens = self._first.max_answer_tokens

    @property
    def identity(self) -> str:
        """What answers depend on besides question and context."""
        return repr([reader.identity for reader in self.readers])

    @property
    def tokens(self) -> TokenCounter:
        """Counts as the model does; see `ChatReader.tokens`."""
        return self._first.tokens

    @property
    def window_tokens(self) -> int | None:
        """The most tokens of prompt and answer together; None where that is not known."""
        return self._first.window_tokens

    def prompt_tokens(self, query: str, context: str = "") -> int:
        """Return the tokens of one prompt; see `ChatReader.prompt_tokens`."""
        return self._first.prompt_tokens(query, context)

    def answer(self, query: str, context: str) -> Answer:
        """Return the most frequent answer; an empty one where most replies find none."""
        return self.answer_many([query], [context])[0]

    def answer_many(self, queries: Sequence[str], contexts: Sequence[str]) -> list[Answer]:
        """Return the most frequent answer to each question; errors as for `ChatReader.answer_many`."""
        said = [reader.answer_many(queries, contexts) for reader in self.readers]
        return [_agreed(answers) for answers in zip(*said, strict=True)]


def _agreed(answers: Sequence[Answer]) -> Answer:
    forms = [" ".join(_MARKS.sub(" ", answer.text.lower()).split()) for answer in answers]
    [(form, number)] = Counter(forms).most_common(1)
    return replace(answers[forms.index(form)], confidence=number / len(answers))

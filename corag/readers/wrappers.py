"""Readers that hold another reader: one with a cache, and one that asks a language model several times."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from common.checks import check_count, check_range
from common.configuration import parse, spelling
from corag.errors import InputError
from corag.memory import LRU, megabytes
from corag.readers.chat import ChatReader
from corag.registry import READERS, Part
from corag.types import Answer, BatchReader, Reader, TokenCounter

_MARKS = re.compile(r"[^\w\s]|\b(?:a|an|the)\b")


class CachedReader:
    """Answers from a cache if methods or budgets give the same context to the same question.

    Args:
        reader: Answers new contexts, together if it has `answer_many`.
        cache_mb: Megabytes of contexts and answers that are kept; 0 keeps none.
    """

    def __init__(self, reader: Reader, *, cache_mb: float = 16) -> None:
        self.name = reader.name
        self._reader = reader
        self._answers: LRU[tuple[str, str], Answer] = LRU(megabytes(cache_mb))

    def __str__(self) -> str:
        return spelling(self._reader)

    def answer(self, query: str, context: str) -> Answer:
        """Return the answer that the context supports."""
        return self.answer_many([query], [context])[0]

    def answer_many(self, queries: Sequence[str], contexts: Sequence[str]) -> list[Answer]:
        """Return the answer to each question from its context."""
        return self._answers.get_many(list(zip(queries, contexts, strict=True)), self._read)

    def _read(self, pairs: Sequence[tuple[str, str]]) -> list[Answer]:
        if isinstance(self._reader, BatchReader):
            queries, contexts = map(list, zip(*pairs, strict=True))
            return self._reader.answer_many(queries, contexts)
        return [self._reader.answer(query, context) for query, context in pairs]


class SelfConsistentReader(Part):
    """Asks a language model several times, each with its own seed, and answers what most replies say.

    Wang et al., "Self-consistency improves chain of thought reasoning in language models" (2022); a baseline of
    EDC2-RAG. Answers that differ in case, punctuation and articles alone are one. Ties go to the first; the confidence
    is the share of the replies that say so.

    Args:
        reader: Reader whose model is asked, such as `ollama(model=llama3.1:8b)`: it must take `temperature` and `seed`.
        samples: How often it is asked.
        temperature: Of the sampling, above 0; by default that of the paper's experiments with GPT-3.
        tokenizer: Counts the tokens of prompts, as for the reader itself.
    """

    def __init__(
        self,
        *,
        reader: str,
        samples: int = 5,
        temperature: float = 0.7,
        tokenizer: str | TokenCounter | None = None,
    ) -> None:
        check_count("samples", samples, "typical: 5-20")
        named = parse(reader)
        check_range("temperature", temperature, 0, 100, "typical: 0.5 to 1")
        settings = {"temperature": temperature, "tokenizer": tokenizer, **named.settings}
        seed = settings.pop("seed", 0)
        check_count("seed", seed, "typical: 0", least=0)
        is_drawn = {"temperature", "seed"} <= set(READERS.parameters(named.name)) and settings["temperature"] != 0
        seeds = range(seed, seed + samples) if is_drawn else ()
        made = [READERS.make(named.name, seed=one, **settings) for one in seeds]
        self.readers = [reader for reader in made if isinstance(reader, ChatReader)]
        if not self.readers:
            raise InputError(
                f"reader {named.name!r} with temperature={settings['temperature']!r} gives the same answer each time; "
                "name a reader that asks a server, openai(model=...) or ollama(model=...), and a temperature above 0"
            )
        self.name = f"self-consistency/{self.readers[0].name}"
        first = self.readers[0]
        self.max_concurrent, self.max_answer_tokens = first.max_concurrent, first.max_answer_tokens
        self.prompt_tokens = first.prompt_tokens

    @property
    def identity(self) -> str:
        """What answers depend on besides question and context."""
        return repr([reader.identity for reader in self.readers])

    @property
    def tokens(self) -> TokenCounter:
        """Counts as the model does; see `ChatReader.tokens`."""
        return self.readers[0].tokens

    @property
    def window_tokens(self) -> int | None:
        """The most tokens of prompt and answer together; None if that is not known."""
        return self.readers[0].window_tokens

    def answer(self, query: str, context: str) -> Answer:
        """Return the most frequent answer; an empty one if most replies find none."""
        return self.answer_many([query], [context])[0]

    def answer_many(self, queries: Sequence[str], contexts: Sequence[str]) -> list[Answer]:
        """Return the most frequent answer to each question; errors as for `ChatReader.answer_many`."""
        replies = [reader.answer_many(queries, contexts) for reader in self.readers]
        return [_majority(answers) for answers in zip(*replies, strict=True)]


def _majority(answers: Sequence[Answer]) -> Answer:
    forms = [" ".join(_MARKS.sub(" ", answer.text.lower()).split()) for answer in answers]
    [(form, number)] = Counter(forms).most_common(1)
    return replace(answers[forms.index(form)], confidence=number / len(answers))

"""Configurations: the whole choice of retrieval and selector that is made for a kind of questions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import get_args

from corag.errors import InputError
from corag.index.search import Retrieval
from corag.naming import Spellings, parse, split_parts
from corag.registry import SELECTORS

ARROW = " > "

DEFAULT = "corag"
"""What is used where nothing is tuned."""

SELECTORS_TO_LABEL = (
    "corag",
    "corag(reranker=minilm-multihop)",
    "corag(reranker=minilm-factoid)",
    "corag(reranker=minilm-longform)",
    "corag(reranker=minilm-softsim)",
    "corag(reranker=bm25)",
    "naive(reranker=minilm-multihop)",
    "naive(reranker=minilm-factoid)",
    "naive(reranker=minilm-softsim)",
    "naive(reranker=bm25)",
    "top-tokens",
    # Named, a reranker shares what it encodes with the others.
    "corag(unit=sentence, reranker=minilm-sentence)",
    "sentence-threshold(reranker=minilm-sentence)",
)
"""Labelled on every kind."""

OF_A_CORPUS = ("vector > top-tokens", "text > corag(reranker=minilm-factoid)", "text > naive(reranker=bm25)")
"""Labelled too where candidates are found in a corpus, by default by vector and text joined."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """A selector, and how its candidates are found; `str` gives `SELECTOR` or `RETRIEVAL > SELECTOR`.

    Attributes:
        selector: As `name(key=value, ...)`.
        retrieval: None for that of the command.
    """

    selector: str
    retrieval: Retrieval | None = None

    @classmethod
    def parse(cls, text: str) -> Configuration:
        """Return the configuration that is spelled so; an unknown retrieval or selector is an `InputError`."""
        first, arrow, second = text.partition(ARROW.strip())
        retrieval, selector = (first.strip(), second.strip()) if arrow else (None, first.strip())
        if retrieval is not None and retrieval not in get_args(Retrieval):
            raise InputError(
                f"configuration {text!r}: retrieval {retrieval!r} is unknown; write SELECTOR, or one of "
                f"{', '.join(get_args(Retrieval))} before it, as in 'text > naive(reranker=bm25)'"
            )
        SELECTORS.builder(selector)
        return cls(parse(selector), retrieval)  # type: ignore[arg-type]  # checked above

    def __str__(self) -> str:
        return self.selector if self.retrieval is None else f"{self.retrieval}{ARROW}{self.selector}"


def to_label(*, from_corpus: bool) -> tuple[Configuration, ...]:
    """Return the configurations that labels are made of; from a corpus, candidates can be found in several ways."""
    return tuple(map(Configuration.parse, SELECTORS_TO_LABEL + (OF_A_CORPUS if from_corpus else ())))


def parse_configurations(texts: Spellings | Iterable[str]) -> tuple[Configuration, ...]:
    """Return the configurations that are spelled, each once."""
    # A comma inside of parentheses divides nothing, before an arrow or behind it.
    parts: Sequence[str] = split_parts(texts) if isinstance(texts, str) else list(texts)  # type: ignore[arg-type]
    return tuple(dict.fromkeys(map(Configuration.parse, parts)))

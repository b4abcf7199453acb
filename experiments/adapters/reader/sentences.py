"""What a selector of sentences leaves of passages, made from gold passages and distractors.

The sentences that hold an answer stay, and beside them some others: of the same passage, and of similar passages those
that share words with the question, as a selector's mistakes do. `corag.text.units` cuts and joins them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from corag.text.chunking import Span
from corag.text.data import Query
from corag.text.units import SENTENCE, UnitChunk, assemble, units
from corag.types import Chunk

MAX_BESIDE = 2
"""Most sentences of a passage beside those that are needed."""
MAX_OTHERS = 3
"""Most other passages that sentences are taken from."""

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Source:
    """A passage, whole or what was chosen of it, and where answers stand in its text."""

    chunk: Chunk
    answers: tuple[Span, ...] = ()

    @property
    def text(self) -> str:
        """Return title and text, as they stand in a prompt."""
        return self.chunk.text


def occurrences(text: str, answers: Sequence[str]) -> tuple[Span, ...]:
    """Return where answers stand in a text, as whole words, whatever their case."""
    found = (re.finditer(rf"(?<!\w){re.escape(answer)}(?!\w)", text, re.IGNORECASE) for answer in answers if answer)
    return tuple(match.span() for matches in found for match in matches)


def sentence_sources(
    query: Query, gold: Sequence[Source], others: Sequence[Source], random: np.random.Generator, *, answered: bool
) -> list[Source]:
    """Return what a selector of sentences might leave: of the gold passages, then of up to three others.

    Args:
        query: The question.
        gold: Its passages, with the places of its answers.
        others: Similar passages without an answer, hardest first.
        random: Draws sentences and passages.
        answered: Whether a sentence with an answer is among them. If not, no sentence holds an answer's words, and a
            gold passage whose title does, or that has no other sentence, is left out.
    """
    words = frozenset(_words(query.question))
    of_gold = [_with_answer(one, words, random) if answered else _without(one, query, words, random) for one in gold]
    left = [one for one in of_gold if one is not None]
    drawn = random.permutation(len(others))[: int(random.integers(0 if answered else 1, MAX_OTHERS + 1))]
    for place in drawn.tolist():
        parts = _sentences(others[place])
        left.append(excerpt(others[place], _likely(parts, words, int(random.integers(1, MAX_BESIDE + 1)), random)))
    return left


def excerpt(source: Source, kept: Collection[Chunk]) -> Source:
    """Return what is left of a passage if only these of its sentences are kept; the passage if they are not units.

    Answers keep their places in the new text, but for those of which a part is gone.
    """
    chosen = sorted((part for part in kept if isinstance(part, UnitChunk)), key=lambda part: part.span)
    if not chosen:
        return source
    text, spans = assemble(chosen)
    found = [place for place in source.answers if place[1] <= chosen[0].body]  # in the title, which is kept
    for start, end in source.answers:
        held = [row for row, part in enumerate(chosen) if part.span[0] < end and start < part.span[1]]
        # Nothing but white space may be missing between the pieces of a long answer.
        gaps = [source.text[chosen[a].span[1] : chosen[b].span[0]] for a, b in pairwise(held)]
        if not held or start < chosen[held[0]].span[0] or end > chosen[held[-1]].span[1] or "".join(gaps).strip():
            continue
        first, last = held[0], held[-1]
        place = (spans[first][0] + start - chosen[first].span[0], spans[last][0] + end - chosen[last].span[0])
        found.append(place)
    return Source(Chunk(source.chunk.id, text, source.chunk.metadata), tuple(found))


def _with_answer(source: Source, words: frozenset[str], random: np.random.Generator) -> Source:
    """Return a gold passage with the sentences of one of its answers, or a likely one, and some others."""
    parts = _sentences(source)
    beside = int(random.integers(0, MAX_BESIDE + 1))
    if source.answers:
        start, end = source.answers[int(random.integers(len(source.answers)))]
        needed = [part for part in parts if part.span[0] < end and start < part.span[1]]
        title = parts[0].body if parts else 0
        if not needed and end > title:
            return source  # the answer stands in the header of a table
    else:
        needed = []
    likely = _likely([part for part in parts if part not in needed], words, beside + (not needed), random)
    short = excerpt(source, [*needed, *likely])
    return short if short.answers or not source.answers else source


def _without(source: Source, query: Query, words: frozenset[str], random: np.random.Generator) -> Source | None:
    """Return a gold passage without any sentence that holds an answer."""
    parts = [
        part
        for part in _sentences(source)
        if not occurrences(part.text, query.answers)
        and not any(part.span[0] < end and start < part.span[1] for start, end in source.answers)
    ]
    if not parts:
        return None
    return excerpt(source, _likely(parts, words, int(random.integers(1, MAX_BESIDE + 1)), random))


def _sentences(source: Source) -> list[UnitChunk]:
    """Return the sentences of a passage; none where it has no words."""
    parts = units(source.chunk, SENTENCE)
    return [part for part in parts if isinstance(part, UnitChunk)]


def _likely(
    parts: Sequence[UnitChunk], words: frozenset[str], number: int, random: np.random.Generator
) -> list[UnitChunk]:
    """Return so many sentences, by the words that they share with the question and by chance."""
    promise = [len(words.intersection(_words(part.text[part.body :]))) + random.uniform(0, 3) for part in parts]
    return [parts[row] for row in np.argsort(-np.array(promise), kind="stable")[:number].tolist()]


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())

"""Training rows of the reader: data folders in, token rows with answer positions out.

A passage is in a row as in a prompt: title, line break, text; several joined by an empty line. WordPiece drops the
white space between them, so their ids are laid side by side. Every epoch draws other windows and distractors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from corag.models.engine import Int64, pad
from corag.models.minilm import pair_row
from corag.readers.span_reader import KINDS
from corag.text.chunking import Span
from corag.text.data import DataFolder, Query
from corag.text.documents import passage
from corag.text.tokens import encode, load_tokenizer, model_folder
from experiments.adapters.config import ReaderTraining
from experiments.adapters.pools import nearest_by_words

_SPAN, _NONE, _YES, _NO = range(len(KINDS))
SIMILAR, HARD = 8, 4
"""Passages that a question might be confused about, and those of them that a distractor is drawn from."""


@dataclass(frozen=True, slots=True)
class TokenPassage:
    """Token ids of a passage and, for a gold one, where its answers are: token spans, end inclusive."""

    ids: Int64
    answers: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadingExample:
    """A question, as token ids without special tokens, with its passages.

    `gold` hold the answer; `others`, hardest first, are similar and do not. `kind` is an index in `KINDS`, `repeat` the
    number of rows per epoch.
    """

    id: str
    question: Int64
    kind: int
    gold: tuple[TokenPassage, ...]
    others: tuple[TokenPassage, ...]
    repeat: int


@dataclass(frozen=True, slots=True)
class ReadingRow:
    """An input of the network, ids and types `[L]` with special tokens, and its target.

    `spans` are right answers as token positions in the row; `kind` is an index in `KINDS`.
    """

    ids: Int64
    types: Int64
    spans: tuple[Span, ...]
    kind: int


def examples(folder: DataFolder, queries: Sequence[Query], repeat: int) -> list[ReadingExample]:
    """Return the examples of questions whose answer is yes, no, or a piece of a gold passage; others are left out."""
    if not queries:
        return []
    tokenizer = load_tokenizer(model_folder() / "tokenizer.json")
    texts = {name: passage(document).text for name, document in folder.documents.items()}
    encoded = dict(zip(texts, encode(tokenizer, list(texts.values()), offsets=True), strict=True))
    ids = {name: np.array(encoding.ids, dtype=np.int64) for name, encoding in encoded.items()}
    questions = [*encode(tokenizer, [query.question for query in queries])]
    made = []
    for query, question, similar in zip(queries, questions, _similar(texts, queries), strict=True):
        gold = tuple(
            TokenPassage(ids[name], _answer_tokens(texts[name], query, encoded[name].offsets))
            for name in query.gold
            if name in texts
        )
        kind = {"yes": _YES, "no": _NO}.get(query.answers[0].lower(), _SPAN) if query.answers else _NONE
        if not gold or kind == _NONE or (kind == _SPAN and not any(part.answers for part in gold)):
            continue
        others = [name for name in similar if kind != _SPAN or not _occurrences(texts[name], query.answers)]
        asked = np.array(question.ids[:64], dtype=np.int64)
        distractors = tuple(TokenPassage(ids[name]) for name in others)
        made.append(ReadingExample(query.id, asked, kind, gold, distractors, repeat))
    return made


def _similar(texts: Mapping[str, str], queries: Sequence[Query]) -> list[list[str]]:
    """Return passages that a question might be confused about, best first: its own pool, or those that BM25 finds."""
    names, similar = list(texts), []
    hits = nearest_by_words(list(texts.values()), [query.question for query in queries], SIMILAR + 4)
    for query, row in zip(queries, hits, strict=True):
        pool = query.candidates or [names[hit] for hit in row]
        similar.append([name for name in pool if name not in query.gold][: max(SIMILAR, len(query.candidates or ()))])
    return similar


def _answer_tokens(text: str, query: Query, offsets: Sequence[Span]) -> tuple[Span, ...]:
    """Return the token spans of the answers in a gold passage: where they are annotated, else wherever they occur."""
    starts = query.extra.get("answer_starts")
    spans = _occurrences(text, query.answers)
    if starts and len(query.gold) == 1:
        # Offsets count in the passage's text, which is at the end, after its title.
        shift = len(text) - len(text.split("\n", 1)[-1])
        annotated = [(shift + at, answer) for at, answer in zip(starts, query.answers, strict=False)]
        spans = [(at, at + len(answer)) for at, answer in annotated if text[at : at + len(answer)] == answer]
    tokens = []
    for start, end in spans:
        inside = [index for index, (a, b) in enumerate(offsets) if a < end and b > start]
        if inside:
            tokens.append((inside[0], inside[-1]))
    return tuple(dict.fromkeys(tokens))


def _occurrences(text: str, answers: Sequence[str]) -> list[Span]:
    """Return where answers are in a text, as whole words, whatever their case."""
    patterns = (rf"(?<!\w){re.escape(answer)}(?!\w)" for answer in answers if answer)
    return [match.span() for pattern in patterns for match in re.finditer(pattern, text, re.IGNORECASE)]


def rows(learning: Sequence[ReadingExample], config: ReaderTraining, seed: Sequence[int]) -> list[ReadingRow]:
    """Return the rows of an epoch; the same seed gives the same rows."""
    random = np.random.default_rng(list(seed))
    made = []
    for example in learning:
        for _ in range(example.repeat):
            parts = list(example.gold)
            if example.others and random.random() < config.distractor:
                parts.append(_draw(example.others, random))
            shuffled = [parts[index] for index in random.permutation(len(parts))]
            made.append(_row(example.question, shuffled, example.kind, config, random))
            if example.others and random.random() < config.unanswerable:
                other = _draw(example.others, random)
                made.append(_row(example.question, [other], _NONE, config, random))
    return made


def _draw(others: Sequence[TokenPassage], random: np.random.Generator) -> TokenPassage:
    return others[int(random.integers(min(HARD, len(others))))]


def _row(
    question: Int64, parts: Sequence[TokenPassage], kind: int, config: ReaderTraining, random: np.random.Generator
) -> ReadingRow:
    """Return a row with these passages, cut to a random length."""
    space = config.max_tokens - len(question) - 3
    if kind in (_YES, _NO):
        # Both sides of a comparison have to be seen: the ends of the passages go.
        share = max(space // len(parts), 1)
        parts = [TokenPassage(part.ids[:share]) for part in parts]
    shifts = np.cumsum([0] + [len(part.ids) for part in parts])
    context = np.concatenate([part.ids for part in parts])
    spans = [
        (start + shift, end + shift)
        for part, shift in zip(parts, shifts.tolist(), strict=False)
        for start, end in part.answers
        if end - start < space
    ]
    if kind in (_SPAN, _NONE):
        low = min(config.min_tokens - len(question) - 3, space)
        space = int(random.integers(max(low, 1), space + 1))
    first = _window_start(len(context), space, spans, random)
    context = context[first : first + space]
    head = len(question) + 2
    inside = tuple(
        (start - first + head, end - first + head)
        for start, end in spans
        if start >= first and end < first + len(context)
    )
    if kind == _SPAN and not inside:
        kind = _NONE
    ids, types = pair_row(question, context)
    return ReadingRow(ids, types, inside, kind)


def _window_start(length: int, space: int, spans: Sequence[Span], random: np.random.Generator) -> int:
    """Return where a window of `space` tokens begins: at random, around one of the spans if there are any."""
    low, high = 0, max(length - space, 0)
    if spans and high:
        start, end = spans[int(random.integers(len(spans)))]
        if end - start < space:
            low, high = max(end + 1 - space, 0), min(start, high)
    return int(random.integers(low, high + 1)) if high > low else low


def batches(made: Sequence[ReadingRow], max_batch_tokens: int, seed: Sequence[int]) -> list[list[ReadingRow]]:
    """Return the rows in batches of like length and about `max_batch_tokens` tokens, in random order."""
    random = np.random.default_rng(list(seed))
    lengths = np.array([len(row.ids) for row in made])
    # A little noise, so that rows of one length meet others in every epoch.
    order = np.argsort(lengths + random.uniform(0, 4, len(made)), kind="stable")
    groups: list[list[ReadingRow]] = [[]]
    longest = 0
    for index in order.tolist():
        longest = max(longest, int(lengths[index]))
        if groups[-1] and (len(groups[-1]) + 1) * longest > max_batch_tokens:
            groups.append([])
            longest = int(lengths[index])
        groups[-1].append(made[index])
    return [groups[i] for i in random.permutation(len(groups))]


def collate(chosen: Sequence[ReadingRow]) -> dict[str, torch.Tensor]:
    """Return rows of like length as tensors: the network's inputs by name, and targets.

    `context` `[B, L]` is true where an answer may be: context and [CLS]. `starts` and `ends` `[B, L]` are true at right
    ones ([CLS] where there is no answer), nowhere in rows of yes and no. `kinds` `[B]` are indices in `KINDS`.
    """
    ids, mask = pad([row.ids for row in chosen])
    types, _ = pad([row.types for row in chosen])
    context = types.astype(bool)
    starts, ends = np.zeros(ids.shape, dtype=bool), np.zeros(ids.shape, dtype=bool)
    for index, row in enumerate(chosen):
        context[index, len(row.ids) - 1] = False
        if row.kind == _NONE:
            starts[index, 0] = ends[index, 0] = True
        for start, end in row.spans:
            starts[index, start] = ends[index, end] = True
    context[:, 0] = True
    kinds = np.array([row.kind for row in chosen], dtype=np.int64)
    arrays = {
        "input_ids": ids, "attention_mask": mask, "token_type_ids": types, "context": context, "starts": starts,
        "ends": ends, "kinds": kinds,
    }  # fmt: skip
    return {name: torch.from_numpy(array) for name, array in arrays.items()}

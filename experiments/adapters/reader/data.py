"""Training rows of the reader: data folders in, token rows with answer positions out.

A passage, or what was chosen of its sentences, stands in a row as in a prompt: title, line break, text; several joined
by an empty line. WordPiece drops the white space between them, so their ids are laid side by side. Every epoch draws
other windows, distractors and sentences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from corag.models.engine import Int64, pad
from corag.optional import require
from corag.readers.span_reader import KINDS, pair_row
from corag.text.chunking import Span
from corag.text.data import DataFolder, Query
from corag.text.documents import passage
from corag.text.tokens import encode, load_tokenizer, model_folder
from experiments.adapters.reader.config import RowSettings
from experiments.adapters.reader.sentences import Source, occurrences, sentence_sources

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_SPAN, _NONE, _YES, _NO = range(len(KINDS))


@dataclass(frozen=True, slots=True)
class Passage:
    """Token ids of a passage and, for a gold one, where its answers stand: token spans, end inclusive.

    `source` is the same in characters.
    """

    ids: Int64
    answers: tuple[Span, ...] = ()
    source: Source | None = None


@dataclass(frozen=True, slots=True)
class Example:
    """A question, as token ids without special tokens, with its passages.

    `gold` hold the answer; `others`, hardest first, are similar and do not. `kind` is an index in `KINDS`, `repeat` the
    number of rows per epoch. `query` is needed for rows of sentences.
    """

    id: str
    question: Int64
    kind: int
    gold: tuple[Passage, ...]
    others: tuple[Passage, ...]
    repeat: int
    query: Query | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """An input of the network, token ids and types `[L]` with special tokens, and its target.

    `spans` are right answers as token positions in the row, none where there is no answer; `kind` is an index in
    `KINDS`.
    """

    ids: Int64
    types: Int64
    spans: tuple[Span, ...]
    kind: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of like length: inputs of the network by name, and targets.

    `context` is true where an answer may be: context and [CLS]. `starts` and `ends` are true at right ones ([CLS] where
    there is no answer), nowhere in rows of yes and no. `kinds` are indices in `KINDS`.
    """

    inputs: Mapping[str, Int64]  # [B, L]
    context: np.ndarray  # [B, L]
    starts: np.ndarray  # [B, L]
    ends: np.ndarray  # [B, L]
    kinds: Int64  # [B]


def examples(folder: DataFolder, queries: Sequence[Query], repeat: int, num_others: int = 8) -> list[Example]:
    """Return the examples of questions whose answer is yes, no, or a piece of a gold passage; others are left out."""
    if not queries:
        return []
    tokenizer = load_tokenizer(model_folder() / "tokenizer.json")
    names = list(folder.documents)
    chunks = {name: passage(document) for name, document in folder.documents.items()}
    texts = {name: chunk.text for name, chunk in chunks.items()}
    encoded = dict(zip(names, encode(tokenizer, list(texts.values()), offsets=True), strict=True))
    ids = {name: np.array(encoding.ids, dtype=np.int64) for name, encoding in encoded.items()}
    questions = encode(tokenizer, [query.question for query in queries])
    found = []
    for query, question, similar in zip(queries, questions, _similar(texts, queries, num_others), strict=True):
        sources = {
            name: Source(chunks[name], _answer_places(texts[name], query, len(query.gold) == 1))
            for name in query.gold
            if name in texts
        }
        gold = tuple(
            Passage(ids[name], _answer_tokens(source.answers, encoded[name].offsets), source)
            for name, source in sources.items()
        )
        kind = {"yes": _YES, "no": _NO}.get(query.answers[0].lower(), _SPAN) if query.answers else _NONE
        if not gold or kind == _NONE or (kind == _SPAN and not any(part.answers for part in gold)):
            continue
        others = tuple(
            Passage(ids[name], source=Source(chunks[name]))
            for name in similar
            if kind != _SPAN or not occurrences(texts[name], query.answers)
        )
        asked = np.array(question.ids[:64], dtype=np.int64)
        found.append(Example(query.id, asked, kind, gold, others, repeat, query))
    return found


def _similar(texts: Mapping[str, str], queries: Sequence[Query], number: int) -> list[list[str]]:
    """Return passages that a question might be confused about, best first: its own pool, or those that BM25 finds."""
    bm25s = require("bm25s", "bm25")
    names = list(texts)
    index = bm25s.BM25()
    index.index(bm25s.tokenize(list(texts.values()), show_progress=False), show_progress=False)
    words = bm25s.tokenize([query.question for query in queries], show_progress=False)
    hits, _ = index.retrieve(words, k=min(number + 4, len(names)), show_progress=False)
    found = []
    for query, row in zip(queries, hits.tolist(), strict=True):
        pool = query.candidates or [names[hit] for hit in row]
        found.append([name for name in pool if name not in query.gold][: max(number, len(query.candidates or ()))])
    return found


def _answer_places(text: str, query: Query, single: bool) -> tuple[Span, ...]:
    """Return where the answers stand in a gold passage: where they are annotated, else wherever they occur."""
    starts = query.extra.get("answer_starts")
    if not (single and starts):
        return occurrences(text, query.answers)
    # Offsets count in the passage's text, which stands at the end, after its title.
    shift = len(text) - len(text.split("\n", 1)[-1])
    return tuple(
        (shift + at, shift + at + len(answer))
        for at, answer in zip(starts, query.answers, strict=False)
        if text[shift + at : shift + at + len(answer)] == answer
    )


def _answer_tokens(places: Sequence[Span], offsets: Sequence[Span]) -> tuple[Span, ...]:
    """Return the token spans, end inclusive, of places in a text whose tokens have these offsets."""
    found = []
    for start, end in places:
        inside = [i for i, (a, b) in enumerate(offsets) if a < end and b > start]
        if inside:
            found.append((inside[0], inside[-1]))
    return tuple(dict.fromkeys(found))


def rows(examples_: Sequence[Example], settings: RowSettings, seed: Sequence[int]) -> list[Row]:
    """Return the rows of an epoch; the same seed gives the same rows."""
    random = np.random.default_rng(list(seed))
    tokenizer = load_tokenizer(model_folder() / "tokenizer.json") if settings.sentences else None
    made = []
    for example in examples_:
        for _ in range(example.repeat):
            # What yes or no follows from is not known by sentence.
            if example.kind == _SPAN and tokenizer and random.random() < settings.sentences:
                made.append(_sentence_row(example, settings, tokenizer, random, answered=True))
            else:
                parts = list(example.gold)
                if example.others and random.random() < settings.distractor:
                    parts.append(_draw(example.others, settings.hard, random))
                shuffled = [parts[i] for i in random.permutation(len(parts))]
                made.append(_row(example.question, shuffled, example.kind, settings, random))
            if not (example.others and random.random() < settings.unanswerable):
                continue
            if example.kind == _SPAN and tokenizer and random.random() < settings.sentences:
                made.append(_sentence_row(example, settings, tokenizer, random, answered=False))
            else:
                other = _draw(example.others, settings.hard, random)
                made.append(_row(example.question, [other], _NONE, settings, random))
    return made


def _sentence_row(
    example: Example, settings: RowSettings, tokenizer: Tokenizer, random: np.random.Generator, *, answered: bool
) -> Row:
    """Return a row with sentences of gold passages, and of others as far as they fit."""
    sources = sources_of(example, settings, random, answered=answered)
    parts: list[Passage] = []
    left = settings.max_tokens - len(example.question) - 3
    for place, encoding in enumerate(encode(tokenizer, [source.text for source in sources], offsets=True)):
        source = sources[place]
        left -= len(encoding.ids)
        if left >= 0 or place < (len(example.gold) if answered else 1):
            answers = _answer_tokens(source.answers, encoding.offsets) if answered else ()
            parts.append(Passage(np.array(encoding.ids, dtype=np.int64), answers, source))
    shuffled = [parts[i] for i in random.permutation(len(parts))]
    return _row(example.question, shuffled, _SPAN if answered else _NONE, settings, random, cut=False)


def sources_of(example: Example, settings: RowSettings, random: np.random.Generator, *, answered: bool) -> list[Source]:
    """Return what a selector of sentences might leave of an example's passages; see `sentence_sources`."""
    assert example.query is not None
    gold, others = (
        [part.source for part in parts if part.source] for parts in (example.gold, example.others[: 2 * settings.hard])
    )
    return sentence_sources(example.query, gold, others, random, answered=answered)


def _draw(others: Sequence[Passage], hard: int, random: np.random.Generator) -> Passage:
    return others[int(random.integers(min(hard, len(others))))]


def _row(
    question: Int64,
    parts: Sequence[Passage],
    kind: int,
    settings: RowSettings,
    random: np.random.Generator,
    *,
    cut: bool = True,
) -> Row:
    """Return a row with these passages; `cut` to a random length, or only where they are too long."""
    room = settings.max_tokens - len(question) - 3
    if kind in (_YES, _NO):
        # Both sides of a comparison have to be seen: the ends of the passages go.
        share = max(room // len(parts), 1)
        parts = [Passage(part.ids[:share]) for part in parts]
    shifts = np.cumsum([0] + [len(part.ids) for part in parts])
    context = np.concatenate([part.ids for part in parts])
    spans = [
        (start + shift, end + shift)
        for part, shift in zip(parts, shifts.tolist(), strict=False)
        for start, end in part.answers
        if end - start < room
    ]
    if cut and kind in (_SPAN, _NONE):
        low = min(settings.min_tokens - len(question) - 3, room)
        room = int(random.integers(max(low, 1), room + 1))
    first = _window_start(len(context), room, spans, random)
    context = context[first : first + room]
    head = len(question) + 2
    inside = tuple(
        (start - first + head, end - first + head)
        for start, end in spans
        if start >= first and end < first + len(context)
    )
    if kind == _SPAN and not inside:
        kind = _NONE
    ids, types = pair_row(question, context)
    return Row(ids, types, inside, kind)


def _window_start(length: int, room: int, spans: Sequence[Span], random: np.random.Generator) -> int:
    """Return where a window of `room` tokens begins: at random, around one of the spans if there are any."""
    low, high = 0, max(length - room, 0)
    if spans and high:
        start, end = spans[int(random.integers(len(spans)))]
        if end - start < room:
            low, high = max(end + 1 - room, 0), min(start, high)
    return int(random.integers(low, high + 1)) if high > low else low


def batches(made: Sequence[Row], max_batch_tokens: int, seed: Sequence[int]) -> list[list[Row]]:
    """Return the rows in batches of like length and about `max_batch_tokens` tokens, in random order."""
    random = np.random.default_rng(list(seed))
    lengths = np.array([len(row.ids) for row in made])
    # A little noise, so that rows of one length meet others in every epoch.
    order = np.argsort(lengths + random.uniform(0, 4, len(made)), kind="stable")
    groups: list[list[Row]] = [[]]
    longest = 0
    for index in order.tolist():
        longest = max(longest, int(lengths[index]))
        if groups[-1] and (len(groups[-1]) + 1) * longest > max_batch_tokens:
            groups.append([])
            longest = int(lengths[index])
        groups[-1].append(made[index])
    return [groups[i] for i in random.permutation(len(groups))]


def collate(chosen: Sequence[Row]) -> Batch:
    """Return rows as arrays."""
    ids, mask = pad([row.ids for row in chosen], 0)
    types, _ = pad([row.types for row in chosen], 0)
    context = types.astype(bool)
    starts, ends = np.zeros(ids.shape, dtype=bool), np.zeros(ids.shape, dtype=bool)
    for index, row in enumerate(chosen):
        context[index, len(row.ids) - 1] = False
        if row.kind == _NONE:
            starts[index, 0] = ends[index, 0] = True
        for start, end in row.spans:
            starts[index, start] = ends[index, end] = True
    context[:, 0] = True
    inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
    kinds = np.array([row.kind for row in chosen], dtype=np.int64)
    return Batch(inputs, context, starts, ends, kinds)

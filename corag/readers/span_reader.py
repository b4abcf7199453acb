"""Reads contexts of any length with a span network: in windows of whole chunks, the best span of all of them.

Letters: L tokens of a window, [CLS] first.
`corag.readers.minilm_reader` loads the network.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from corag.errors import InputError
from corag.models.engine import Engine, Float32, Int64
from corag.models.minilm import pair_row
from corag.readers.context import borders
from corag.text.chunking import Span
from corag.text.documents import SEPARATOR
from corag.text.tokens import encode
from corag.types import Answer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

KINDS = ("span", "none", "yes", "no")
"""Kinds of answers, in the order of the network's outputs after start and end."""
START, END = 0, 1
NUM_OUTPUTS = 2 + len(KINDS)
MIN_ROOM = 32
"""Minimum tokens of context that a window must hold beside the question."""
_SPAN, _NONE, _YES, _NO = range(len(KINDS))
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """How contexts are read.

    Attributes:
        window_tokens: Maximum tokens that the network reads at once: question, context and special tokens.
        max_answer_tokens: Maximum tokens of an answer span.
        slope: With `offset`, maps the margin of a span to the log-odds that it is right.
        offset: See `slope`.
    """

    window_tokens: int = 288
    max_answer_tokens: int = 30
    slope: float = 1.0
    offset: float = 0.0


@dataclass(frozen=True, slots=True)
class SpanReading:
    """The network's reading of a question in a context.

    Attributes:
        span: Characters of the best span; None for a context without any token.
        margin: Logits of the span less those of "no answer"; `-inf` without a span.
        kinds: Probability of each of `KINDS`, in the window that most likely answers, `[4]`.
    """

    span: Span | None
    margin: float
    kinds: tuple[float, ...]


class SpanReader:
    """Questions and contexts in, spans out; `engine` runs the span network."""

    def __init__(self, engine: Engine, tokenizer: Tokenizer, settings: ReaderSettings) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self.settings = settings

    def read(self, queries: Sequence[str], contexts: Sequence[str]) -> list[SpanReading]:
        """Return the reading of each question in its context.

        Raises:
            InputError: A question leaves too little room for a context, or something is not valid Unicode.
        """
        questions = [np.array(encoding.ids, dtype=np.int64) for encoding in encode(self._tokenizer, queries)]
        texts = [*encode(self._tokenizer, contexts, offsets=True)]
        windows: list[tuple[int, int]] = []  # the question, and the first token of its context
        parts: list[NDArray[np.intp]] = []  # of each question: the title or text of the context that each token is in
        ids: list[Int64] = []
        types: list[Int64] = []
        for row, (question, context, text) in enumerate(zip(questions, contexts, texts, strict=True)):
            tokens, starts = np.array(text.ids, dtype=np.int64), [start for start, _ in text.offsets]
            parts.append(np.searchsorted(borders(context), starts, side="right"))
            chunks = np.searchsorted(starts, [match.end() for match in re.finditer(SEPARATOR, context)])
            for start, end in chunk_windows(len(tokens), self._room(question), chunks.tolist()):
                windows.append((row, start))
                pair, pair_types = pair_row(question, tokens[start:end])
                ids.append(pair)
                types.append(pair_types)
        of_windows: dict[int, SpanReading] = {}
        for rows, output in self._engine.run(ids, types):
            for window, logits in zip(rows.tolist(), output, strict=True):
                row, offset = windows[window]
                first, last = len(questions[row]) + 2, len(ids[window]) - 2
                inside = parts[row][offset:][: last - first + 1]
                start, end, margin = best_span(logits, first, last, self.settings.max_answer_tokens, inside)
                offsets, shift = texts[row].offsets, offset - first
                span = offsets[start + shift][0], offsets[end + shift][1]
                of_windows[window] = SpanReading(span, margin, kind_probabilities(logits))
        readings: list[list[SpanReading]] = [[] for _ in questions]
        for window, (row, _) in enumerate(windows):
            readings[row].append(of_windows[window])
        return [_best(of_question) for of_question in readings]

    def _room(self, question: Int64) -> int:
        room = self.settings.window_tokens - len(question) - 3
        if room < MIN_ROOM:
            raise InputError(
                f"the question has {len(question)} tokens and leaves {max(room, 0)} of the reader's window of "
                f"{self.settings.window_tokens} for the context, which needs at least {MIN_ROOM}; shorten the question"
            )
        return room


def chunk_windows(num_tokens: int, size: int, chunks: Sequence[int]) -> list[Span]:
    """Return spans of at most `size` tokens that cover a context; each holds as many whole chunks as fit.

    Windows that overlap by half read 1.7 times as many tokens and answer no better. Only a chunk longer than a window
    is divided, into windows half a window apart.

    Args:
        num_tokens: Tokens of the context.
        size: The most tokens of a window, at least 1.
        chunks: Tokens at which chunks begin, ascending.
    """
    spans: list[Span] = []
    start = 0
    while start < num_tokens:
        end = min(start + size, num_tokens)
        spans.append((start, end))
        if end == num_tokens:
            break
        last = chunks[at - 1] if (at := bisect_right(chunks, end)) else 0
        if last > start:
            spans[-1] = (start, last)
        start = last if last > start else start + max(size // 2, 1)
    return spans


def _best(windows: Sequence[SpanReading]) -> SpanReading:
    """Return the best span of all windows, and the kinds of the window that most likely answers; ties go to earlier."""
    if not windows:
        return SpanReading(None, -np.inf, (0.0, 1.0, 0.0, 0.0))
    surest = min(windows, key=lambda reading: reading.kinds[_NONE])
    return replace(max(windows, key=lambda reading: reading.margin), kinds=surest.kinds)


def to_answer(reading: SpanReading, context: str, settings: ReaderSettings) -> Answer:
    """Return the answer of a reading: yes, no, or its span."""
    if reading.span is None:
        return Answer("", confidence=0.0)
    yes, no = reading.kinds[_YES], reading.kinds[_NO]
    if yes + no > reading.kinds[_SPAN]:
        return Answer("yes" if yes >= no else "no", confidence=max(yes, no))
    start, end = span = with_whole_numbers(context, reading.span)
    odds = settings.slope * reading.margin + settings.offset
    confidence = 0.5 + 0.5 * float(np.tanh(0.5 * odds))
    return Answer(context[start:end], confidence, (span,), chunk=context.count(SEPARATOR, 0, start))


def with_whole_numbers(text: str, span: Span) -> Span:
    """Return a span of a text, widened to the numbers that it cuts: 876 of 1,876 is another number."""
    cut = [at for at in _NUMBER.finditer(text) if any(at.start() < edge < at.end() for edge in span)]
    return min([span[0], *(at.start() for at in cut)]), max([span[1], *(at.end() for at in cut)])


def best_span(
    logits: Float32, first: int, last: int, max_answer_tokens: int, parts: NDArray[np.intp]
) -> tuple[int, int, float]:
    """Return first token, last token and margin of the best span; ties go to the earliest, then the shortest.

    The margin is the logits of start and end less those of [CLS], which means "no answer here".

    Args:
        logits: The network's output, `[L, NUM_OUTPUTS]`.
        first: First token of the context in the window.
        last: Its last token.
        max_answer_tokens: Maximum tokens of a span, at least 1.
        parts: Part of the context that each of its tokens in the window is in, ascending, `[last - first + 1]`; a span
            stays within one part.
    """
    starts, ends = logits[first : last + 1, START], logits[first : last + 1, END]
    width = min(max_answer_tokens, len(starts))
    # Row i, column d: the span from token i over d more tokens.
    padded = np.concatenate([ends, np.full(width - 1, -np.inf, dtype=ends.dtype)])
    scores = starts[:, None] + sliding_window_view(padded, width)
    end_parts = sliding_window_view(np.concatenate([parts, np.full(width - 1, -1)]), width)
    scores = np.where(end_parts == parts[:, None], scores, -np.inf)
    start, more = divmod(int(scores.argmax()), width)
    margin = float(scores[start, more]) - float(logits[0, START] + logits[0, END])
    return first + start, first + start + more, margin


def kind_probabilities(logits: Float32) -> tuple[float, ...]:
    """Return the probability of each of `KINDS`, which [CLS] tells, from the network's output."""
    kinds = logits[0, 2:] - logits[0, 2:].max()
    return tuple(np.exp((kinds - np.log(np.exp(kinds).sum())).astype(np.float64)).tolist())

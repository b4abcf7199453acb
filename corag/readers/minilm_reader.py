"""`minilm-reader`: answers with a span of the context, yes or no, by an adapter on all-MiniLM-L6-v2.

Runs offline with the shipped adapter. Its low-rank updates are merged into the encoder's weights on loading, so reading
costs as much as the plain encoder.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from corag.checks import check_range
from corag.errors import ModelError
from corag.models.cached import CachedEncoder, MiniLMPart
from corag.models.minilm import minilm_encoder
from corag.models.runtime import Placement, current, use_runtime
from corag.models.trained import Adapter, adapted_engine, load_adapter, shipped_adapter
from corag.readers.passages import Passage, closest_chunks, judged, spans_of
from corag.readers.span_reader import KINDS, MIN_ROOM, NUM_OUTPUTS, ReaderSettings, SpanReader, to_answer
from corag.text.documents import SEPARATOR
from corag.text.tokens import load_tokenizer, model_folder
from corag.text.units import assemble
from corag.types import Answer, Chunk, Selection

NAME = "minilm-reader"
FORM = "low-rank-spans"
"""Format of its adapters: low-rank updates and whole tensors of a `SpanNetwork`."""
BEST_TOKENS = 500
"""Tokens of a selection that are read, of the passages closest to the question: two windows. On fifteen sets the F1 of
answers from 400 and from 550 such tokens is that from all of 1,024, and on eight of them from all of 4,096."""


@dataclass(kw_only=True, eq=False)
class MiniLMReader(MiniLMPart):
    """Answers with a span of the context, or with yes or no, and judges which passages answer.

    `identity` is everything that answers depend on besides question and context.

    Attributes:
        adapter: The adapter's folder; by default the shipped one.
        min_confidence: Below this confidence the answer is empty. By default the best span is always given, as in
            SQuAD 1.1.
    """

    name = NAME
    role = "reader"

    adapter: str | Path | None = None
    min_confidence: float = 0.0

    def __post_init__(self) -> None:
        check_range("min_confidence", self.min_confidence, 0, 1, "0 always answers")
        loaded = load_adapter(self.adapter or shipped_adapter(NAME), FORM)
        placement = self._placement()
        self._reader = span_reader(loaded, placement)
        self._runtime = current()
        self.identity = (
            f"{NAME} {loaded.sha256} {placement.values_depend_on} window_tokens={self._reader.settings.window_tokens} "
            f"whole chunks min_confidence={self.min_confidence}"
        )

    def answer(self, query: str, context: str) -> Answer:
        """Return the answer; empty, with confidence 0, for a context without text."""
        return self.answer_many([query], [context])[0]

    def answer_many(self, queries: Sequence[str], contexts: Sequence[str]) -> list[Answer]:
        """Return the answer to each question from its context, read in shared batches.

        Raises:
            InputError: A question fills the window.
        """
        answers: list[Answer] = []
        for context, reading in zip(contexts, self._reader.read(queries, contexts), strict=True):
            answer = to_answer(reading, context, self._reader.settings)
            is_sure = (answer.confidence or 0.0) >= self.min_confidence
            answers.append(answer if is_sure else Answer("", confidence=answer.confidence))
        return answers

    def answer_from(self, question: str, selection: Selection) -> Answer:
        """See `JudgingReader.answer_from`; of a long selection `BEST_TOKENS` are read."""
        places = spans_of(selection)
        kept = closest_chunks(question, selection, self._encoder, BEST_TOKENS) if places else []
        if len(kept) == len(places):
            return self.answer(question, selection.text)
        text, spans = assemble([selection.chunks[index] for index in kept])
        answer = self.answer(question, text)
        for (start, end), index in zip(spans, kept, strict=True):
            if answer.spans and start <= answer.spans[0][0] and answer.spans[0][1] <= end:
                first = places[index][0] - start + answer.spans[0][0]
                span = first, first + len(answer.text)
                return replace(answer, spans=(span,), chunk=selection.text.count(SEPARATOR, 0, first))
        return replace(answer, spans=(), chunk=None)  # yes, no, or in a title

    def judge(
        self, question: str, answer: Answer, selection: Selection, after: Chunk | None = None
    ) -> tuple[Passage, ...]:
        """See `JudgingReader.judge`."""
        return judged(question, answer, selection, self._encoder, after)

    @cached_property
    def _encoder(self) -> CachedEncoder:
        """Encodes passages as rerankers do, so that those of a selection by MiniLM are encoded once."""
        with use_runtime(self._runtime):
            return CachedEncoder(minilm_encoder(self.backend, None, self.device, role="reranker"))


def span_reader(adapter: Adapter, placement: Placement) -> SpanReader:
    """Return a span reader with an adapter's weights; see `MiniLMReader`."""
    engine = adapted_engine(adapter, NUM_OUTPUTS, placement)
    return SpanReader(engine, load_tokenizer(model_folder() / "tokenizer.json"), settings_of(adapter))


def settings_of(adapter: Adapter) -> ReaderSettings:
    """Return an adapter's settings; `ModelError` if they are not those of a reader."""
    values = dict(adapter.config.settings)
    try:
        same_kinds = values.pop("kinds", None) == list(KINDS)
        settings = ReaderSettings(**values)
        valid = same_kinds and 2 * MIN_ROOM <= settings.window_tokens <= 512
        valid = valid and math.isfinite(settings.slope) and math.isfinite(settings.offset)
    except TypeError:
        valid = False
    if not valid:
        raise ModelError(f"the adapter {adapter.config.name!r} has no valid settings of a reader; train it again")
    return settings

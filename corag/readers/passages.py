"""Which of the chosen passages answer a question, and how likely: what is shown in place of a bare span.

A passage is judged by what the reader said about the whole context, by where its span is, and by how close the passage
is to the question in words and in meaning.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import compress
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from corag.models.encoders import TextEncoder, best_cosines, token_cosines, tokens_within
from corag.text.boilerplate import concerns_origin, contents_of
from corag.text.documents import citation
from corag.text.questions import PLAIN, POINTS_BACK, asks_to_explain, definition, is_yes_no, may_concern, stems
from corag.text.units import Span, UnitChunk, assemble, place_in_document, sentences_of, source_of
from corag.types import Answer, Chunk, FloatArray, Reader, Selection

SURE = 0.8
"""Confidence from which on the words of a span are the answer; below, its sentence is marked."""


class Passage(NamedTuple):
    """A chosen passage, and how likely it answers the question.

    Attributes:
        chunk: The passage as it was retrieved; of chosen sentences, the one that they are from.
        probability: That the passage answers the question, in [0, 1].
        telling: Spans of its text that tell the answer: the reader's, or the sentence closest to the question, with the
            next one if that is a question itself.
        words: The reader's span, if it is sure of it; empty if the passage is the answer, as for a question that wants
            yes or no: on four sets of such questions the reader's yes and no are right as often as a guess.
    """

    chunk: Chunk
    probability: float
    telling: tuple[Span, ...]
    words: str = ""


@runtime_checkable
class JudgingReader(Reader, Protocol):
    """A reader that says which passages of a selection answer a question, and how likely."""

    def answer_from(self, question: str, selection: Selection) -> Answer:
        """Return the answer from the passages of a selection that are closest to the question; its spans are in all."""

    def judge(
        self, question: str, answer: Answer, selection: Selection, after: Chunk | None = None
    ) -> tuple[Passage, ...]:
        """Return the passages of a selection, likeliest first; `answer` is what the reader answered from its text.

        A word that points back, at the beginning of the passage with the answer, is to what the passage `after` names.
        """


def judged(
    question: str, answer: Answer, selection: Selection, encoder: TextEncoder, after: Chunk | None = None
) -> tuple[Passage, ...]:
    """Return the passages of a selection, likeliest first; ties go to the earlier; see `JudgingReader`.

    If something is to be defined, passages with a sentence that does so are first: the plainest before others, and
    those at the beginning of a document before those further on.
    Boilerplate answers nothing, unless the question may be about that, nor do passages about another model or error
    than the question names (`may_concern`); if all are, none is likely.
    """
    observed = signals(question, answer, selection, encoder, after)
    log_odds = observed.values @ np.array(WEIGHTS) + OFFSET
    passages: list[tuple[int, Passage]] = []  # each behind how plainly it defines what is asked for
    fits = may_concern(question, list(map(_cited, sources(selection))))
    if not any(fits):
        fits, log_odds = [True] * len(fits), np.minimum(log_odds, 0.0)
    for index, chunk in enumerate(sources(selection)):
        nearest = observed.closest[index]
        if nearest is None or not fits[index]:
            passages.append((0, Passage(chunk, 0.0, ())))
            continue
        marked, words = after_question(chunk, nearest), ""
        plainness, definition_span = definition(question, chunk)
        span = observed.spans[index]
        probability = 0.5 + 0.5 * math.tanh(0.5 * float(log_odds[index]))
        if definition_span is not None:
            marked = (definition_span,)
            probability = max(probability, DEFINED) if plainness >= PLAIN else probability
        elif span is not None and not asks_to_explain(question) and not is_yes_no(question):
            marked = tuple(part for part in sentences_of(chunk) if part[0] <= span[0] < part[1]) or (span,)
            if (answer.confidence or 0.0) >= SURE:
                marked, words = (span,), answer.text
        passages.append((plainness, Passage(chunk, probability, marked, words)))
    return tuple(passage for _, passage in sorted(passages, key=_by_definition))


def _by_definition(judged: tuple[int, Passage]) -> tuple[int, int, float]:
    plainness, passage = judged
    return -plainness, place_in_document(passage.chunk) if plainness else 0, -passage.probability


class Signals(NamedTuple):
    """What is observed of each of P passages.

    Attributes:
        values: Whether the reader's span is in it, and with which log-odds; how much of the question its best sentence
            covers, by late interaction with its tokens in the encoding of the passage; the lead of its cosine over the
            best other one; the share of the question's words that it has, `[P, 5]`.
        spans: Where the reader's span is in its text; None in all but one.
        closest: That sentence; None if it has only boilerplate.
    """

    values: FloatArray
    spans: list[Span | None]
    closest: list[Span | None]


WEIGHTS = (1.171, 0.753, 4.515, 6.644, 2.124)
OFFSET = -4.732
"""Logistic regression on `Signals.values`, by `corag train reader --calibrate`."""
UNRELATED = 0.4
"""Cosine of a passage that competes with no other: a lead over less counts as one over this. The weights are of
retrieved passages; beside a text about something else, a lead of .6 made a wrong passage likely."""
DEFINED = 0.8
"""The least probability of a plain definition of what is asked for."""


def signals(
    question: str, answer: Answer, selection: Selection, encoder: TextEncoder, after: Chunk | None = None
) -> Signals:
    """Return the observations on each passage of a selection, in the order of `sources`; see `JudgingReader.judge`."""
    passages = sources(selection)
    texts = [chunk.text for chunk in passages]
    parts = [
        _about(question, chunk, sentences_of(chunk) if concerns_origin(question) else contents_of(chunk))
        for chunk in passages
    ]
    of_tokens = token_cosines(encoder, encoder.encoded([question])[0], texts)
    by_sentence = [
        np.array([best_cosines(near[tokens_within(starts, [span])]).sum() for span in spans]) / max(1, near.shape[1])
        for (near, starts), spans in zip(of_tokens, parts, strict=True)
    ]
    place = place_of(answer.spans[0], selection) if answer.spans else None
    found = [None if place is None or place[0].id != chunk.id else place[1] for chunk in passages]
    for index, span in enumerate(found):
        # A span may be in the title, which is no sentence.
        if span is not None and _is_in(span, sentences_of(passages[index])) and not _is_in(span, parts[index]):
            found[index] = None
    before = [after if span and POINTS_BACK.match(text) else None for span, text in zip(found, texts, strict=True)]
    texts = [text if first is None else f"{first.text} {text}" for first, text in zip(before, texts, strict=True)]
    vectors = encoder.vectors([question, *texts])
    cosines = vectors[1:] @ vectors[0]
    asked, confidence = stems(question), min(max(answer.confidence or 0.0, 1e-3), 1 - 1e-3)
    log_odds = math.log(confidence / (1 - confidence))
    values = np.zeros((len(passages), len(WEIGHTS)))
    for index, chunk in enumerate(passages):
        held = set(stems(f"{citation(chunk)} {texts[index]}"))
        others = cosines[[other not in (chunk, before[index]) for other in passages]]
        values[index] = (
            found[index] is not None,
            0.0 if found[index] is None else log_odds,
            by_sentence[index].max(initial=0.0),
            cosines[index] - max(others.max(), UNRELATED) if len(others) else 0.0,
            sum(word in held for word in asked) / len(asked) if asked else 1.0,
        )
    closest = [spans[int(near.argmax())] if spans else None for spans, near in zip(parts, by_sentence, strict=True)]
    return Signals(values, found, closest)


def _about(question: str, chunk: Chunk, spans: Sequence[Span]) -> Sequence[Span]:
    """Return the sentences of a passage, or rows of its table, that `may_concern` what is asked; all if none does."""
    fits = may_concern(question, [chunk.text[slice(*span)] for span in spans])
    return list(compress(spans, fits)) or spans


def _cited(chunk: Chunk) -> str:
    return f"{citation(chunk)} {chunk.text}"


def _is_in(span: Span, parts: Sequence[Span]) -> bool:
    return any(start < span[1] and span[0] < end for start, end in parts)


def after_question(chunk: Chunk, sentence: Span) -> tuple[Span, ...]:
    """Return a sentence of a passage; if it is a question, as in a list of frequent ones, with the next sentence."""
    spans = sentences_of(chunk)
    end = spans.index(sentence) + (2 if chunk.text[slice(*sentence)].rstrip().endswith("?") else 1)
    return tuple(spans[spans.index(sentence) : end])


def closest_chunks(question: str, selection: Selection, encoder: TextEncoder, most_tokens: int) -> list[int]:
    """Return which chunks of a selection are from the passages that are closest to a question, in its order.

    Passages are ranked by late interaction of what was chosen of them with the question's tokens, if some `may_concern`
    what the question names these alone; as many are kept as fit `most_tokens` of the encoder together, at least one.
    """
    chosen: dict[str, list[int]] = {}
    for index, chunk in enumerate(selection.chunks):
        chosen.setdefault(source_of(chunk).id, []).append(index)
    passages = sources(selection)
    fits = may_concern(question, list(map(_cited, passages)))
    encoded = token_cosines(encoder, encoder.encoded([question])[0], [chunk.text for chunk in passages])
    found = []  # how close a passage is, its tokens and its chunks
    for (near, starts), indices, fitting in zip(encoded, chosen.values(), fits, strict=True):
        of_units = [chunk.span for chunk in map(selection.chunks.__getitem__, indices) if isinstance(chunk, UnitChunk)]
        inside = near[tokens_within(starts, of_units)] if of_units else near
        if fitting or not any(fits):
            found.append((float(best_cosines(inside).sum()), len(inside), indices))
    kept: list[int] = []
    room = most_tokens
    for _, num_tokens, indices in sorted(found, key=lambda one: -one[0]):
        if not kept or num_tokens <= room:
            kept += indices
            room -= num_tokens
    return sorted(kept)


def sources(selection: Selection) -> list[Chunk]:
    """Return the passages that a selection holds, or holds sentences of, each once, in its order."""
    return list({chunk.id: chunk for chunk in map(source_of, selection.chunks)}.values())


def place_of(span: Span, selection: Selection) -> tuple[Chunk, Span] | None:
    """Return the passage that holds a span of a selection's text, and where in the passage's text it is."""
    for chunk, (start, end) in zip(selection.chunks, spans_of(selection), strict=False):
        if start <= span[0] and span[1] <= end:
            shift = (chunk.span[0] if isinstance(chunk, UnitChunk) else 0) - start
            return source_of(chunk), (span[0] + shift, span[1] + shift)
    return None


def spans_of(selection: Selection) -> tuple[Span, ...]:
    """Return the span of each chunk in the text of a selection; none for a summary."""
    if selection.spans:
        return selection.spans
    text, spans = assemble(selection.chunks)  # a user's own selector may not give spans
    return tuple(spans) if selection.text == text else ()

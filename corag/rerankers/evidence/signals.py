"""How candidates relate to a question and to each other; n candidates, Q question tokens.

Every figure is computed once per chunk or pair of chunks. Ideas: late interaction (Khattab and Zaharia, 2020), the
part of a question that a first passage leaves open (as in multi-hop dense retrieval, Xiong et al., 2021), and
passages whose title another passage names (as in the hyperlink graphs of Asai et al., 2020), without any hyperlinks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from corag.memory import LRU
from corag.models.encoders import Encoded, TextEncoder, best_cosines, cache_capacity, tokens_within, unit
from corag.models.engine import Float32
from corag.text.chunking import sentence_spans
from corag.text.units import Span, UnitChunk
from corag.types import Chunk, FloatArray

SINGLES = (
    "cosine", "sentence", "title", "maxsim", "rare_maxsim", "lexical", "named", "title_words", "title_tokens", "rank",
    "length", "untitled", "two_sentences", "sentences",
)  # fmt: skip
"""What is known of a chunk: its cosine to the question, that of its best sentence, of its title; the mean of the best
cosines of the question's tokens, the same by rarity; the share of the question's words that it holds, by rarity;
whether the question names its title, which share of the title's words, how near the title's tokens are to the
question's; rank by cosine; tokens; whether it has no title; mean of the two best sentences; number of sentences."""

PAIRS = (
    "similar", "link", "link_words", "titles", "rest_vector", "bridge_title", "bridge_start", "gain", "lexical_gain",
    "same_title", "new_link", "link_tokens", "rest",
)  # fmt: skip
"""What is known of an ordered pair of chunks, a then b: their cosine; whether a names the title of b, which share of
the title's words; the cosine of their titles; b's cosine to the part of the question's vector that a does not explain;
that of a's sentences near the question to b's title, to b's first sentence; what they cover of the question together
beyond the better one, by token vectors and by words; whether their titles are the same; whether a names a title that
the question does not; how near b's title tokens are to a's tokens; which share of what a leaves uncovered b covers."""

FLAGS = ("names_many", "length", "names_one")
"""What is known of a question."""

SHARPNESS = 8.0
"""How much more a's sentence nearest to the question counts in a bridge than others: weights exp(8 * cosine)."""


MAX_TITLE = 150
"""Characters; a longer first line is text."""

_WORD = re.compile(r"\w+")
_SENTENCE_END = (".", "!", "?", ":", ";", ",")

Key = tuple[str, tuple[Span, ...]]
"""A text, and which parts of it behind the title count; none for all of it."""


@dataclass(frozen=True, slots=True)
class PassageFeatures:
    """A text as the features see it; T tokens, S sentences.

    Attributes:
        ids: Token ids, `[T]`.
        vector: Its embedding, a unit vector, `[384]`.
        tokens: Unit vectors of its tokens in their context, `[T, 384]`.
        num_title: How many of the tokens are those of the title.
        title_vector: Mean of the title's token states, a unit vector, `[384]`; `vector` without a title.
        sentences: Means of the token states of each sentence of the body, unit vectors, `[S, 384]`, S >= 1.
        title: The title's words in lower case without a qualifier in brackets, empty without a title.
        body: The body's words in lower case, each with a space before and after it.
        is_unit: Whether it is part of a passage, such as a sentence.
        truncated: Whether the text did not fit the encoder's window.
    """

    ids: NDArray[np.int64]
    vector: Float32
    tokens: Float32
    num_title: int
    title_vector: Float32
    sentences: Float32
    title: str
    body: str
    is_unit: bool
    truncated: bool


class PassageReader:
    """Describes texts, each in one pass of the encoder; what does not fit the window is not seen."""

    def __init__(self, encoder: TextEncoder) -> None:
        self._encoder = encoder
        self._cache: LRU[Key, PassageFeatures] = LRU(cache_capacity(), owner=encoder)

    def __call__(self, chunks: Sequence[Chunk]) -> list[PassageFeatures]:
        """Return the features of each chunk.

        Those of units come from the token states of the passage, so the states of "He" know who that is, and no text is
        encoded twice, even if nothing is kept.
        """
        found = self._cache.get_many(list(map(_key, chunks)), self._read)
        # Units behind the encoder's window have no states, and are encoded by themselves.
        unseen = [row for row, passage in enumerate(found) if not passage.body.strip()]
        alone = self._cache.get_many([(chunks[row].text, ()) for row in unseen], self._read)
        for row, passage in zip(unseen, alone, strict=True):
            found[row] = passage
        return found

    def _read(self, keys: list[Key]) -> list[PassageFeatures]:
        texts = list(dict.fromkeys(text for text, _ in keys))
        encoded = dict(zip(texts, self._encoder.encoded(texts), strict=True))
        return [_features(text, chosen, encoded[text]) for text, chosen in keys]


def _features(text: str, chosen: tuple[Span, ...], encoded: Encoded) -> PassageFeatures:
    """Return what the features know of a text; with `chosen`, only of these spans, in order behind the title."""
    title, body = split_title(text)
    title = plain(without_qualifier(title))
    num_title = int((encoded.starts < body).sum())
    parts = chosen or ((body, len(text)),)
    kept = tokens_within(encoded.starts, [(0, body), *parts])
    states = encoded.states[np.concatenate([[True], kept, [True]])]
    vector = unit(states.mean(axis=0))
    spans = [(start + first, start + last) for start, end in parts for first, last in sentence_spans(text[start:end])]
    in_spans = [tokens_within(encoded.starts, [span]) for span in spans]
    sentences = [encoded.tokens[within].mean(axis=0) for within in in_spans if within.any()]
    is_seen = not chosen or kept.sum() > num_title
    return PassageFeatures(
        ids=encoded.ids[kept],
        vector=vector,
        tokens=states[1:-1] / encoded.lengths[kept],
        num_title=num_title,
        title_vector=unit(encoded.tokens[:num_title].mean(axis=0)) if num_title else vector,
        sentences=unit(np.array(sentences)) if sentences else vector[None],
        title=title,
        body=f" {plain(' '.join(text[start:end] for start, end in parts)) if is_seen else ''} ",
        is_unit=bool(chosen),
        truncated=encoded.num_windows > 1 and not chosen,
    )


def _key(chunk: Chunk) -> Key:
    return (chunk.source.text, (*chunk.leads, chunk.span)) if isinstance(chunk, UnitChunk) else (chunk.text, ())


def split_title(text: str) -> tuple[str, int]:
    """Return the title of a text and where its body begins.

    The title is the first line, unless that is all there is, or it is long or ends as a sentence does.
    """
    line, newline, body = text.partition("\n")
    is_title = bool(line.strip()) and len(line) <= MAX_TITLE and not line.rstrip().endswith(_SENTENCE_END)
    if newline and body.strip() and is_title:
        return line.strip(), len(line) + 1
    return "", 0


def without_qualifier(title: str) -> str:
    """Return a title without what stands in brackets behind it, such as a homonym has."""
    return title[: title.rindex("(")] if title.endswith(")") and "(" in title else title


def plain(text: str) -> str:
    """Return the words of a text in lower case, with one space between them."""
    return " ".join(_WORD.findall(text.lower()))


@dataclass(frozen=True, slots=True)
class Signals:
    """All that hypotheses are described by, in single precision, as networks compute.

    Attributes:
        singles: `[n, len(SINGLES)]`.
        pairs: `[n, n, len(PAIRS)]`, zero on the diagonal.
        nearest: Best cosine of each question token in each chunk, in [0, 1], `[n, Q]`.
        held: Whether each chunk holds each question token, `[n, Q]`.
        weights: Of the question's tokens, `[Q]`.
        flags: Of the question, `[len(FLAGS)]`.
        are_units: Whether the chunks are units of passages.
    """

    singles: Float32
    pairs: Float32
    nearest: Float32
    held: Float32
    weights: Float32
    flags: Float32
    are_units: bool = False


def signals(
    query: str, question: Encoded, passages: Sequence[PassageFeatures], rarity: NDArray[np.floating]
) -> Signals:
    """Compare passages, of which there is at least one, with a question, as the encoder reads it, and with each other.

    `rarity` is the inverse document frequency of tokens.
    """
    asked, tokens = f" {plain(query)} ", question.tokens / question.lengths
    weights = rarity[question.ids].astype(np.float64)
    weights = weights / max(float(weights.sum()), 1e-9)
    nearest = np.stack([best_cosines(passage.tokens @ tokens.T) for passage in passages])
    held = np.stack([np.isin(question.ids, passage.ids) for passage in passages]).astype(np.float64)
    sentences = [np.sort(passage.sentences @ question.vector) for passage in passages]
    title_words = [[f" {word} " in asked for word in passage.title.split()] for passage in passages]
    title_tokens = [passage.tokens[: passage.num_title] @ tokens.T for passage in passages]
    of_singles = {
        "cosine": [passage.vector @ question.vector for passage in passages],
        "sentence": [near[-1] for near in sentences],
        "title": [passage.title_vector @ question.vector for passage in passages],
        "maxsim": nearest.sum(axis=1) / max(1, len(tokens)),
        "rare_maxsim": nearest @ weights,
        "lexical": held @ weights,
        "named": [len(passage.title) > 2 and f" {passage.title} " in asked for passage in passages],
        "title_words": [np.mean(of_title or [False]) for of_title in title_words],
        "title_tokens": [cosines.max(axis=1).mean() if cosines.size else 0.0 for cosines in title_tokens],
        "rank": np.zeros(len(passages)),
        "length": [len(passage.ids) / 128 for passage in passages],
        "untitled": [not passage.num_title for passage in passages],
        "two_sentences": [near[-2:].mean() for near in sentences],
        "sentences": [len(near) / 5 for near in sentences],
    }
    singles = np.stack([np.asarray(of_singles[name], dtype=np.float32) for name in SINGLES], axis=1)
    # The vector of a text without tokens is that of the special tokens alone, near many questions.
    empty = [row for row, passage in enumerate(passages) if not len(passage.ids)]
    singles[empty] = 0.0
    ranking = np.argsort(-singles[:, SINGLES.index("cosine")], kind="stable")
    singles[ranking, SINGLES.index("rank")] = np.arange(len(passages)) / 10
    named = singles[:, SINGLES.index("named")]
    vectors = np.stack([passage.vector for passage in passages])
    titles = np.stack([passage.title_vector for passage in passages])
    names = np.array([passage.title for passage in passages])
    bodies = [passage.body for passage in passages]
    link = title_links(names, bodies)
    rest = unit(question.vector - (vectors @ question.vector)[:, None] * vectors)
    bridge_title, bridge_start = _bridges(question, passages, titles)
    left = (1 - nearest) * weights
    of_pairs = {
        "similar": vectors @ vectors.T,
        "link": link,
        "link_words": _title_words(names, bodies),
        "titles": titles @ titles.T,
        "rest_vector": rest @ vectors.T,
        "bridge_title": bridge_title,
        "bridge_start": bridge_start,
        "gain": _gain(nearest, weights),
        "lexical_gain": _gain(held, weights),
        "same_title": (names[:, None] == names) & (names != ""),
        "new_link": link * (1 - named),
        "link_tokens": _nearest_tokens(passages),
        "rest": (left @ nearest.T) / np.maximum(left.sum(axis=1), 1e-9)[:, None],
    }
    pairs = np.stack([of_pairs[name] for name in PAIRS], axis=2).astype(np.float32)
    pairs[range(len(passages)), range(len(passages))] = pairs[empty] = pairs[:, empty] = 0.0
    flags = np.array([named.sum() >= 2, len(question.ids) / 20, named.sum() == 1], dtype=np.float32)
    of_tokens = (nearest.astype(np.float32), held.astype(np.float32), weights.astype(np.float32))
    return Signals(singles, pairs, *of_tokens, flags, are_units=any(passage.is_unit for passage in passages))


def _bridges(question: Encoded, passages: Sequence[PassageFeatures], titles: Float32) -> list[FloatArray]:
    """Return the best weighted cosine of a's sentences to b's title and to b's first sentence, each `[n, n]`."""
    # All sentences together, since products of one by one cost many times as much.
    sentences = np.concatenate([passage.sentences for passage in passages])
    counts = np.array([len(passage.sentences) for passage in passages])
    starts = np.cumsum(counts) - counts
    near = sentences @ question.vector
    nearest = np.repeat(np.maximum.reduceat(near, starts), counts)
    weights = np.exp(SHARPNESS * (near - nearest))[:, None]
    return [np.maximum.reduceat((sentences @ of.T) * weights, starts, axis=0) for of in (titles, sentences[starts])]


def title_links(titles: NDArray[np.str_], bodies: Sequence[str]) -> FloatArray:
    """Return whether body a has title b, another one than its own, `[n, n]`; both as `PassageFeatures` has them."""
    return _of_titles(titles, lambda title: [f" {title} " in body for body in bodies])


def _title_words(titles: NDArray[np.str_], bodies: Sequence[str]) -> FloatArray:
    """Return which share of the words of title b body a has, `[n, n]`, likewise."""
    words = [set(body.split()) for body in bodies]

    def held(title: str) -> list[float]:
        of_title = title.split()
        return [sum(word in of_body for word in of_title) / len(of_title) for of_body in words]

    return _of_titles(titles, held)


def _of_titles(titles: NDArray[np.str_], figure: Callable[[str], Sequence[float]]) -> FloatArray:
    """Return a figure of each passage for each title, `[n, n]`; 0 for its own, and for one of up to two letters."""
    found = np.zeros((len(titles), len(titles)))
    # Units of one passage share its title, and what is said of that.
    for title in {title for title in titles.tolist() if len(title) > 2}:
        same = titles == title
        found[:, same] = np.where(same, 0.0, figure(title))[:, None]
    return found


def _nearest_tokens(passages: Sequence[PassageFeatures]) -> FloatArray:
    """Return how near the tokens of b's title are to those of a, `[n, n]`; 0 where b has no title."""
    titles = [passage.tokens[: passage.num_title] for passage in passages]
    keys = [title.tobytes() for title in titles]
    distinct = {key: title for key, title in zip(keys, titles, strict=True) if key}
    found = np.zeros((len(passages), len(distinct) + 1))  # the last is for passages without a title
    lengths = np.array(list(map(len, distinct.values())), dtype=np.intp)
    stacked = np.concatenate([*distinct.values(), titles[0][:0]])
    for row, passage in enumerate(passages if distinct else ()):
        if len(passage.ids):
            nearest = (stacked @ passage.tokens.T).max(axis=1)
            found[row, :-1] = np.add.reduceat(nearest, np.cumsum(lengths) - lengths) / lengths
    columns = {key: column for column, key in enumerate(distinct)}
    return found[:, [columns.get(key, -1) for key in keys]]


def _gain(covered: FloatArray, weights: FloatArray) -> FloatArray:
    """What two chunks cover of the question together, beyond what the better one covers, `[n, n]`."""
    alone = covered @ weights
    together = np.maximum(covered[:, None], covered[None]) @ weights
    return np.asarray(together - np.maximum(alone[:, None], alone[None]))

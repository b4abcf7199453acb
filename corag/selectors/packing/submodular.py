"""`submodular`: the budget packed with relevance, words of the question, what candidates agree on, and many sources.

Bala, "A diagnostic for budget-constrained multi-hop RAG and when submodular evidence packing improves it" (arXiv
2607.00725), and its public code (github.com/nayanananto/Diagnostic-for-Budget-Constrained-Multi-Hop-RAG); S-RAG has the
coverage alone. The terms are those of Lin and Bilmes, "A class of submodular functions for document summarization"
(2011). The public code compares words; here the embeddings of the candidates do. Letters: N candidates, T words of the
question, G sources.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from corag.checks import check_range
from corag.errors import InputError
from corag.rerankers.evidence.passages import STOP_WORDS
from corag.selectors.base import Choice, fill, unscored
from corag.selectors.packing.embedding import EmbeddingSelector, relevance_and_directions
from corag.selectors.packing.lazy_greedy import lazy_greedy
from corag.selectors.problem import SelectionProblem
from corag.text.units import source_of
from corag.types import Chunk, Order

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of the four terms, each of which is 1 for the set of all candidates, but diversity at most that.

    Attributes:
        relevance: Of the summed similarity to the question.
        coverage: Of the share of the question's words.
        representativeness: Of how much of each candidate's similarity to all others the chosen ones hold, up to
            `saturation` of it.
        diversity: Of the summed square roots of the relevance from each source.
        saturation: Share of a candidate's similarities, in (0, 1].
    """

    relevance: float = 1.0
    coverage: float = 0.5
    representativeness: float = 0.4
    diversity: float = 0.3
    saturation: float = 0.3

    def __post_init__(self) -> None:
        for name in ("relevance", "coverage", "representativeness", "diversity"):
            check_range(name, getattr(self, name), 0, 1000, "0.3 to 1 are usual, 0 leaves the term out")
        check_range("saturation", self.saturation, 1e-6, 1, "0.3 is usual")


class PackingValue:
    """What a set of candidates is worth: a monotone submodular function of a set that grows from the empty one.

    Negative similarities count as 0, without which the sums would not be monotone.

    Args:
        similarities: To the question, `[N]`.
        vectors: Embeddings of the candidates, `[N, D]`, of any length but 0.
        words: Whether each candidate holds each word of the question, `[N, T]`.
        sources: Where each candidate comes from, `[N]`.
        weights: Of the terms.

    Raises:
        InputError: Shapes that do not fit, a number that is not finite, a vector of length 0.
    """

    def __init__(
        self,
        similarities: ArrayLike,
        vectors: ArrayLike,
        words: NDArray[np.bool_],
        sources: Sequence[Hashable],
        weights: Weights | None = None,
    ) -> None:
        relevance, unit = relevance_and_directions(similarities, vectors)
        if len(words) != len(unit) or len(sources) != len(unit):
            raise InputError(f"{len(unit)} vectors come with {len(words)} rows of words and {len(sources)} sources")
        self._weights = weights or Weights()
        relevance = np.maximum(relevance, 0.0)
        self._relevance = relevance / (relevance.sum() or 1.0)
        # Words that no candidate holds cannot be covered.
        self._words = words[:, words.any(axis=0)]
        cosines = np.maximum(unit @ unit.T, 0.0)
        caps = self._weights.saturation * cosines.sum(axis=1)
        self._cosines, self._caps = cosines / (caps.sum() or 1.0), caps / (caps.sum() or 1.0)
        places = {source: place for place, source in enumerate(dict.fromkeys(sources))}
        self._source = np.array([places[source] for source in sources], dtype=np.int64)
        self.value = 0.0
        self._covered = np.zeros(self._words.shape[1], dtype=bool)
        self._held = np.zeros(len(unit))
        self._by_source = np.zeros(len(places))

    def gain(self, item: int) -> float:
        """Return what a candidate would add to the value."""
        weights, source = self._weights, self._by_source[self._source[item]]
        new_words = (self._words[item] & ~self._covered).sum() / max(1, len(self._covered))
        held = np.minimum(self._held + self._cosines[item], self._caps) - np.minimum(self._held, self._caps)
        roots = np.sqrt(source + self._relevance[item]) - np.sqrt(source)
        return float(
            weights.relevance * self._relevance[item]
            + weights.coverage * new_words
            + weights.representativeness * held.sum()
            + weights.diversity * roots
        )

    def add(self, item: int) -> None:
        """Add a candidate to the set."""
        self.value += self.gain(item)
        self._covered |= self._words[item]
        self._held += self._cosines[item]
        self._by_source[self._source[item]] += self._relevance[item]


def words_held(query: str, texts: Sequence[str]) -> NDArray[np.bool_]:
    """Return whether each text holds each word of the question, `[N, T]`; words that say little are left out."""
    asked = list(dict.fromkeys(word for word in _WORD.findall(query.lower()) if word not in STOP_WORDS))
    held = [frozenset(_WORD.findall(text.lower())) for text in texts]
    return np.array([[word in of_text for word in asked] for of_text in held], dtype=bool).reshape(
        len(held), len(asked)
    )


@dataclass(kw_only=True, eq=False)
class Submodular(EmbeddingSelector):
    """Chunks that pack most relevance, words of the question, agreement with others and sources into the budget.

    The set of `lazy_greedy`, or the best single chunk where that is worth more.

    Args:
        relevance: Weight of a term; see `Weights`, as for the next four.
        coverage: Likewise.
        representativeness: Likewise.
        diversity: Likewise.
        saturation: Likewise.

    Other settings: see `EmbeddingSelector`.
    """

    relevance: float = 1.0
    coverage: float = 0.5
    representativeness: float = 0.4
    diversity: float = 0.3
    saturation: float = 0.3
    name = "submodular"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._weights = Weights(self.relevance, self.coverage, self.representativeness, self.diversity, self.saturation)

    def _choose(self, problem: SelectionProblem) -> Choice:
        problem, vectors = self._embedded(problem)
        words = words_held(problem.query, [chunk.text for chunk in problem.chunks])
        sources = [_source(chunk) for chunk in problem.chunks]
        value = PackingValue(problem.relevance, vectors, words, sources, self._weights)
        order, worth, single = packed(value, problem.costs.tolist(), problem.capacity)
        # Where nothing adds anything, one chunk serves a reader better than none.
        order = order or fill(problem.by_relevance, problem.costs, problem.capacity, 1)
        return unscored(problem, order, {"packing_value": worth, "single_is_best": single})


def packed(value: PackingValue, costs: Sequence[int], budget: int) -> tuple[Order, float, bool]:
    """Return the better of the greedy set and the best single candidate, its value, and whether it is the single one.

    Args:
        value: Of the empty set.
        costs: Tokens of each candidate, at least 0.
        budget: The most that the chosen ones may cost together.
    """
    alone = [value.gain(item) if cost <= budget else 0.0 for item, cost in enumerate(costs)]
    order = lazy_greedy(value, costs, budget)
    best = int(np.argmax(alone)) if alone else 0
    if alone and alone[best] > value.value:
        return (best,), alone[best], True
    return tuple(order), value.value, False


def _source(chunk: Chunk) -> str:
    source = source_of(chunk)
    return str(source.metadata.get("document", source.id))

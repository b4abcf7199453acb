"""Sets of relevant chunks that repeat each other little, chosen chunk by chunk: `mmr`, `adagres`, `submodular`.

`mmr`: Carbonell and Goldstein, "The use of MMR, diversity-based reranking for reordering documents and producing
summaries" (1998).

`adagres`: Peng, Wang, Long and Sheng, "AdaGReS: Adaptive greedy context selection via redundancy-aware scoring for
token-budgeted RAG" (arXiv 2512.25052), and their public code (github.com/orderer0001/AdaGReS). A set C of chunks scores

    F(C) = sum of sim(question, c) over C - beta * sum of sim(c, c') over pairs of C

with cosines for sim.

`submodular`: Bala, "A diagnostic for budget-constrained multi-hop RAG and when submodular evidence packing improves it"
(arXiv 2607.00725), and its public code (github.com/nayanananto/Diagnostic-for-Budget-Constrained-Multi-Hop-RAG); S-RAG
has the coverage alone. The terms are those of Lin and Bilmes, "A class of submodular functions for document
summarization" (2011). The public code compares words; here the embeddings of the candidates do. Two chunks together are
worth at most what they are worth alone (diminishing returns). Taking the largest gain per token, and in the end the
better of that set and the best single chunk, is then worth at least (1 - 1/e) / 2 of the best set within the budget
(Khuller, Moss and Naor, "The budgeted maximum coverage problem", 1999; Krause and Guestrin, "A note on the budgeted
maximization of submodular functions", 2005).

Letters: N candidates, D dimensions, T words of the question, G sources.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from corag.checks import check_choice, check_count, check_range
from corag.errors import InputError
from corag.models.cached import CachedEmbedder
from corag.naming import Spelling
from corag.rerankers.evidence.passages import STOP_WORDS
from corag.selectors.base import BudgetedSelector, Choice, fill, unscored
from corag.selectors.problem import SelectionProblem
from corag.text.units import source_of
from corag.types import Chunk, Embedder, FloatArray, Order


def unit_vectors(vectors: ArrayLike) -> FloatArray:
    """Return vectors `[N, D]` scaled to length 1; `InputError` for other shapes and lengths of 0 or not finite."""
    given = np.asarray(vectors, dtype=np.float64)
    if given.ndim != 2:
        raise InputError(f"vectors have the shape {given.shape}; they must be [documents, dimensions]")
    lengths = np.linalg.norm(given, axis=1)
    bad = np.flatnonzero(~(np.isfinite(lengths) & (lengths > 0)))
    if len(bad):
        raise InputError(
            f"vector {bad[0]} has length {lengths[bad[0]]:g}; a cosine needs finite lengths above 0: leave out what "
            "the embedder gives no direction, such as empty texts"
        )
    unit: FloatArray = given / lengths[:, None]
    return unit


def relevance_and_directions(similarities: ArrayLike, vectors: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return similarities `[N]` and unit vectors `[N, D]`.

    Raises:
        InputError: Shapes that do not fit, a number that is not finite, a vector of length 0.
    """
    relevance = np.asarray(similarities, dtype=np.float64)
    unit = unit_vectors(vectors)
    if relevance.shape != unit.shape[:1]:
        raise InputError(
            f"there are {len(unit)} vectors for similarities of the shape {relevance.shape}; give one each"
        )
    if not np.isfinite(relevance).all():
        raise InputError("a similarity is not a finite number; check the embeddings")
    return relevance, unit


@dataclass(kw_only=True, eq=False)
class EmbeddingSelector(BudgetedSelector):
    """A selector that compares candidates with each other.

    Args:
        embedder: Embeds the chunks; name or object. The candidates' similarities should be its cosines; where they are
            no cosines it computes them.
    """

    embedder: Spelling | Embedder = "minilm"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._embedder = CachedEmbedder(self.embedder)

    def _embedded(self, problem: SelectionProblem) -> tuple[SelectionProblem, FloatArray]:
        """Return the problem with cosines to the question, and the candidates' vectors, `[N, D]`."""
        problem = problem.comparable(self._embedder.vectors, only_cosines=True)
        return problem, self._embedder.vectors([chunk.text for chunk in problem.chunks])


def marginal_relevance(
    similarities: ArrayLike,
    vectors: ArrayLike,
    *,
    relevance_weight: float = 0.5,
    costs: NDArray[np.int64] | None = None,
    budget: int | None = None,
    limit: int | None = None,
) -> Order:
    """Return candidates in the order in which maximal marginal relevance takes them.

    Each step takes the candidate with the largest
    `relevance_weight * similarity - (1 - relevance_weight) * largest cosine to one already taken` (the equation of
    section 2); the second term is 0 for the first. Of equal candidates the first in the list.

    Args:
        similarities: To the query, `[N]`.
        vectors: Embeddings of the candidates, `[N, D]`, of any length but 0.
        relevance_weight: lambda of the paper, in [0, 1]; 1 is the ranking by similarity.
        costs: Tokens of each candidate, `[N]`; none for free.
        budget: The most that the taken ones may cost together. A candidate that no longer fits is passed over and
            counts neither for nor against others.
        limit: The most candidates to take.

    Raises:
        InputError: Shapes that do not fit, a number that is not finite, a vector of length 0.
    """
    check_range("relevance_weight", relevance_weight, 0, 1, "0.5 to 0.8 are usual")
    relevance, unit = relevance_and_directions(similarities, vectors)
    prices = np.zeros(len(unit), dtype=np.int64) if costs is None else costs
    left = int(prices.sum()) if budget is None else budget
    redundancy = np.zeros(len(unit))
    open_ones = np.ones(len(unit), dtype=bool)
    taken: list[int] = []
    while limit is None or len(taken) < limit:
        fits = open_ones & (prices <= left)
        if not fits.any():
            break
        scores = relevance_weight * relevance - (1 - relevance_weight) * redundancy
        index = int(np.where(fits, scores, -np.inf).argmax())
        cosines = unit @ unit[index]
        redundancy = np.maximum(redundancy, cosines) if taken else cosines
        open_ones[index] = False
        left -= int(prices[index])
        taken.append(index)
    return tuple(taken)


@dataclass(kw_only=True, eq=False)
class Mmr(EmbeddingSelector):
    """Maximal marginal relevance over the candidates that fit.

    Args:
        relevance_weight: Similarity to the question against novelty; see `marginal_relevance`.
        k: The most chunks to take; None for as many as fit.

    Other settings: see `EmbeddingSelector`.
    """

    relevance_weight: float = 0.5
    k: int | None = None
    name = "mmr"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("relevance_weight", self.relevance_weight, 0, 1, "0.5 to 0.8 are usual")
        if self.k is not None:
            check_count("k", self.k, "3 to 20 are usual, None takes as many as fit")

    def _choose(self, problem: SelectionProblem) -> Choice:
        problem, vectors = self._embedded(problem)
        order = marginal_relevance(
            problem.relevance,
            vectors,
            relevance_weight=self.relevance_weight,
            costs=problem.costs,
            budget=problem.capacity,
            limit=self.k,
        )
        return unscored(problem, order)


Variant = Literal["paper", "code"]


def expected_chunks(costs: NDArray[np.int64], budget: int) -> int:
    """Return how many candidates of mean cost fit the budget, at least 1."""
    mean = float(costs.mean()) if len(costs) else 0.0
    return max(1, int(budget // mean)) if mean > 0 else max(1, len(costs))


def calibrated_beta(similarities: ArrayLike, vectors: ArrayLike, expected: int) -> float:
    """Return the weight of redundancy under which k chunks like the candidates would score 0.

    k chunks of mean relevance r and mean similarity s to each other score `k * r - beta * k * (k - 1) / 2 * s`. That is
    0 for `beta = r / ((k - 1) / 2 * s)`: a small budget, or candidates that repeat each other little, make redundancy
    cost more. Better and less redundant chunks than the candidates' mean still gain.

    Args:
        similarities: To the query, `[N]`.
        vectors: Embeddings of the candidates, `[N, D]`, of any length but 0.
        expected: k; see `expected_chunks`.

    Returns:
        beta; 0 where one chunk is expected, or where candidates are on average not similar to each other or to the
        question: there is then nothing to weigh.

    Raises:
        InputError: Shapes that do not fit, a number that is not finite, a vector of length 0.
    """
    relevance, unit = relevance_and_directions(similarities, vectors)
    if expected < 2 or len(unit) < 2:
        return 0.0
    redundancy = float((unit @ unit.T)[np.triu_indices(len(unit), k=1)].mean())
    return max(0.0, float(relevance.mean()) / ((expected - 1) / 2 * redundancy)) if redundancy > 0 else 0.0


def greedy_set(
    similarities: ArrayLike,
    vectors: ArrayLike,
    beta: float,
    costs: NDArray[np.int64],
    budget: int,
    *,
    stop: bool = True,
) -> Order:
    """Return candidates in the order in which each adds most to the score of those before it.

    Of equal gains the first in the list. A candidate that no longer fits is passed over.

    Args:
        similarities: To the query, `[N]`.
        vectors: Embeddings of the candidates, `[N, D]`, of any length but 0.
        beta: Weight of redundancy, at least 0.
        costs: Tokens of each candidate, `[N]`.
        budget: The most that the chosen ones may cost together.
        stop: Whether it ends where no candidate adds to the score; the first is taken in any case.

    Raises:
        InputError: Shapes that do not fit, a number that is not finite, a vector of length 0.
    """
    gains, unit = relevance_and_directions(similarities, vectors)
    gains, open_ones, left = gains.copy(), np.ones(len(unit), dtype=bool), budget
    taken: list[int] = []
    while (fits := open_ones & (costs <= left)).any():
        index = int(np.where(fits, gains, -np.inf).argmax())
        if stop and taken and gains[index] <= 0:
            break
        gains -= beta * (unit @ unit[index])
        open_ones[index] = False
        left -= int(costs[index])
        taken.append(index)
    return tuple(taken)


def set_score(similarities: FloatArray, vectors: ArrayLike, beta: float, order: Order) -> float:
    """Return F of a set of candidates; arguments as for `greedy_set`."""
    relevance, unit = relevance_and_directions(similarities, vectors)
    chosen = unit[list(order)]
    pairs = (chosen @ chosen.T)[np.triu_indices(len(chosen), k=1)]
    return float(relevance[list(order)].sum() - beta * pairs.sum())


@dataclass(kw_only=True, eq=False)
class AdaGReS(EmbeddingSelector):
    """Chunks that are relevant and repeat each other little, until none adds to the score.

    Args:
        beta: Weight of redundancy, or None: `calibrated_beta` for each question.
        variant: `paper` ends where no chunk adds to the score, often early: a mean chunk adds nothing once half of the
            expected number is chosen. `code` goes on as long as one fits, as the public code goes on to the expected
            number.

    Other settings: see `EmbeddingSelector`.
    """

    beta: float | None = None
    variant: Variant = "paper"
    name = "adagres"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("variant", self.variant, Variant)
        if self.beta is not None:
            check_range("beta", self.beta, 0, 1000, "0.05 to 1 are usual, None finds it for each question")

    def _choose(self, problem: SelectionProblem) -> Choice:
        problem, vectors = self._embedded(problem)
        similarities, costs, budget = problem.relevance, problem.costs, problem.capacity
        expected = expected_chunks(costs, budget)
        beta = calibrated_beta(similarities, vectors, expected) if self.beta is None else self.beta
        order = greedy_set(similarities, vectors, beta, costs, budget, stop=self.variant == "paper")
        trace = {"beta": beta, "expected_chunks": expected, "score": set_score(similarities, vectors, beta, order)}
        return unscored(problem, order, trace)


class SetFunction(Protocol):
    """A monotone submodular function of a set that grows."""

    def gain(self, item: int) -> float:
        """Return what an item would add, at least 0, and never more than when the set was smaller."""

    def add(self, item: int) -> None:
        """Add an item to the set."""


def lazy_greedy(function: SetFunction, costs: Sequence[int], budget: int) -> list[int]:
    """Return items in the order of their gain per token, and add them to the function's set, which is empty before.

    A gain is worked out again only when it would be the largest, since it can only have fallen (Minoux, 1978; Leskovec
    et al., "Cost-effective outbreak detection in networks", 2007). Of equal ratios the first in the list. Ends where no
    item that fits adds anything.

    Args:
        function: What to maximise.
        costs: Of each item, at least 0; a free item comes before all others.
        budget: The most that the items may cost together.
    """
    fitting = [item for item, cost in enumerate(costs) if cost <= budget]
    # The largest ratio that each can still have, and how many items were taken when it was worked out.
    bounds = [(-_ratio(function.gain(item), costs[item]), item, 0) for item in fitting]
    heapq.heapify(bounds)
    taken: list[int] = []
    while bounds:
        bound, item, known = heapq.heappop(bounds)
        if bound == 0:
            break
        if costs[item] > budget:
            continue
        if known < len(taken):
            heapq.heappush(bounds, (-_ratio(function.gain(item), costs[item]), item, len(taken)))
            continue
        function.add(item)
        budget -= costs[item]
        taken.append(item)
    return taken


def _ratio(gain: float, cost: int) -> float:
    if gain <= 0:
        return 0.0
    return gain / cost if cost else float("inf")


_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class TermWeights:
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
        weights: TermWeights | None = None,
    ) -> None:
        relevance, unit = relevance_and_directions(similarities, vectors)
        if len(words) != len(unit) or len(sources) != len(unit):
            raise InputError(f"{len(unit)} vectors come with {len(words)} rows of words and {len(sources)} sources")
        self._weights = weights or TermWeights()
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
        relevance: Weight of a term; see `TermWeights`, as for the next four.
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
        self._weights = TermWeights(
            self.relevance, self.coverage, self.representativeness, self.diversity, self.saturation
        )

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

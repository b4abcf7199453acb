"""Sets of relevant chunks that repeat each other little, chosen chunk by chunk: `mmr`, `adagres`, `submodular`.

`mmr`: Carbonell and Goldstein, "The use of MMR, diversity-based reranking for reordering documents and producing
summaries" (1998).

`adagres`: Peng, Wang, Long and Sheng, "AdaGReS: Adaptive greedy context selection via redundancy-aware scoring for
token-budgeted RAG" (arXiv 2512.25052), and their public code (github.com/orderer0001/AdaGReS). A set C of chunks scores

    F(C) = sum of sim(question, c) over C - beta * sum of sim(c, c') over pairs of C

with cosines for sim.

`submodular`: Bala, "A diagnostic for budget-constrained multi-hop RAG and when submodular evidence packing improves it"
(arXiv 2607.00725), and its public code (github.com/nayanananto/Diagnostic-for-Budget-Constrained-Multi-Hop-RAG). The
terms are those of Lin and Bilmes, "A class of submodular functions for document summarization" (2011). The public code
compares words; here the embeddings of the candidates do. Two chunks together are worth at most what they are worth
alone. Taking the largest gain per token, and in the end the better of that set and the best single chunk, is then worth
at least (1 - 1/e) / 2 of the best set within the budget (Khuller, Moss and Naor, "The budgeted maximum coverage
problem", 1999; Krause and Guestrin, "A note on the budgeted maximization of submodular functions", 2005).

Letters: N candidates, D dimensions, T words of the question, G sources.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from corag.checks import check_choice, check_count, check_range
from corag.errors import InputError
from corag.rerankers.evidence.passages import STOP_WORDS
from corag.selectors.base import Choice, EmbeddingSelector, fill, finite_numbers, unscored
from corag.selectors.problem import SelectionProblem
from corag.text.units import source_of
from corag.types import FloatArray, Order

Int64 = NDArray[np.int64]

_WORD = re.compile(r"\w+")


def unit_vectors(vectors: ArrayLike) -> FloatArray:
    """Return vectors `[N, D]` scaled to length 1; `InputError` for other shapes and lengths of 0 or not finite."""
    given = np.asarray(vectors, dtype=np.float64)
    if given.ndim != 2:
        raise InputError(f"expected vectors of the shape [documents, dimensions], got {given.shape}")
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
    relevance, unit = finite_numbers("similarities", similarities), unit_vectors(vectors)
    if len(relevance) != len(unit):
        raise InputError(f"similarities: expected one for each of {len(unit)} vectors, got {len(relevance)}")
    return relevance, unit


def greedy(gains: Callable[[Sequence[int]], FloatArray], costs: Int64, budget: int, limit: int | None = None) -> Order:
    """Return candidates in the order in which each has the largest gain beside those before it.

    Ties go to the first in the list. A candidate that no longer fits is skipped; one of gain -inf is not chosen.

    Args:
        gains: Returns the gain of each candidate, `[N]`, beside those that are chosen.
        costs: Tokens of each candidate, `[N]`.
        budget: The maximum sum of the chosen costs.
        limit: The most candidates to choose.
    """
    chosen: list[int] = []
    available = np.ones(len(costs), dtype=bool)
    while limit is None or len(chosen) < limit:
        offered = np.where(available & (costs <= budget), gains(chosen), -np.inf)
        if not (offered > -np.inf).any():
            break
        chosen.append(int(offered.argmax()))
        available[chosen[-1]] = False
        budget -= int(costs[chosen[-1]])
    return tuple(chosen)


def marginal_relevance(
    similarities: ArrayLike,
    vectors: ArrayLike,
    costs: Int64,
    budget: int,
    *,
    relevance_weight: float = 0.5,
    limit: int | None = None,
) -> Order:
    """Return candidates in the order in which maximal marginal relevance takes them.

    Each step takes the candidate with the largest
    `relevance_weight * similarity - (1 - relevance_weight) * largest cosine to one already taken` (the equation of
    section 2); the second term is 0 for the first. Ties go to the first in the list.

    Args:
        similarities: To the query, `[N]`.
        vectors: Embeddings of the candidates, `[N, D]`, of any length but 0.
        costs: Tokens of each candidate, `[N]`.
        budget: The maximum sum of the chosen costs. A candidate that no longer fits is skipped and counts neither for
            nor against others.
        relevance_weight: lambda of the paper, in [0, 1]; 1 is the ranking by similarity.
        limit: The most candidates to take.

    Raises:
        InputError: Shapes that do not fit, a number that is not finite, a vector of length 0.
    """
    relevance, unit = relevance_and_directions(similarities, vectors)
    redundancy = np.zeros(len(unit))

    def gains(chosen: Sequence[int]) -> FloatArray:
        if chosen:
            cosines = unit @ unit[chosen[-1]]
            redundancy[:] = np.maximum(redundancy, cosines) if len(chosen) > 1 else cosines
        return relevance_weight * relevance - (1 - relevance_weight) * redundancy

    return greedy(gains, costs, budget, limit)


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
        problem = self._with_cosines(problem)
        order = marginal_relevance(
            problem.relevance,
            self._vectors(problem),
            problem.costs,
            problem.capacity,
            relevance_weight=self.relevance_weight,
            limit=self.k,
        )
        return unscored(problem, order)


Variant = Literal["paper", "code"]


def calibrated_beta(similarities: ArrayLike, vectors: ArrayLike, expected: int) -> float:
    """Return the weight of redundancy under which k chunks like the candidates would score 0.

    k chunks of mean relevance r and mean similarity s to each other score `k * r - beta * k * (k - 1) / 2 * s`. That is
    0 for `beta = r / ((k - 1) / 2 * s)`: a small budget, or candidates that repeat each other little, make redundancy
    cost more. Better and less redundant chunks than the candidates' mean still gain.

    Args:
        similarities: To the query, `[N]`.
        vectors: Embeddings of the candidates, `[N, D]`, of any length but 0.
        expected: k: how many candidates of mean cost fit the budget.

    Returns:
        beta; 0 if one chunk is expected, or if candidates are on average not similar to each other or to the question:
        there is then nothing to weigh.

    Raises:
        InputError: Shapes that do not fit, a number that is not finite, a vector of length 0.
    """
    relevance, unit = relevance_and_directions(similarities, vectors)
    if expected < 2 or len(unit) < 2:
        return 0.0
    redundancy = float((unit @ unit.T)[np.triu_indices(len(unit), k=1)].mean())
    return max(0.0, float(relevance.mean()) / ((expected - 1) / 2 * redundancy)) if redundancy > 0 else 0.0


def greedy_set(
    similarities: ArrayLike, vectors: ArrayLike, beta: float, costs: Int64, budget: int, *, stop: bool = True
) -> Order:
    """Return candidates in the order in which each adds most to the score of those before it.

    Ties go to the first in the list. A candidate that no longer fits is skipped.

    Args:
        similarities: To the query, `[N]`.
        vectors: Embeddings of the candidates, `[N, D]`, of any length but 0.
        beta: Weight of redundancy, at least 0.
        costs: Tokens of each candidate, `[N]`.
        budget: The maximum sum of the chosen costs.
        stop: Whether it ends when no candidate adds to the score; the first is taken in any case.

    Raises:
        InputError: Shapes that do not fit, a number that is not finite, a vector of length 0.
    """
    relevance, unit = relevance_and_directions(similarities, vectors)
    scores = relevance.copy()

    def gains(chosen: Sequence[int]) -> FloatArray:
        if chosen:
            scores[:] -= beta * (unit @ unit[chosen[-1]])
        return np.where(scores > 0, scores, -np.inf) if stop and chosen else scores

    return greedy(gains, costs, budget)


@dataclass(kw_only=True, eq=False)
class AdaGReS(EmbeddingSelector):
    """Chunks that are relevant and repeat each other little, until none adds to the score.

    Args:
        beta: Weight of redundancy, or None: `calibrated_beta` for each question.
        variant: `paper` ends when no chunk adds to the score, often early: a mean chunk adds nothing once half of the
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
        problem = self._with_cosines(problem)
        vectors, costs = self._vectors(problem), problem.costs
        mean_cost = float(costs.mean())
        expected = int(problem.capacity // mean_cost) if mean_cost > 0 else len(costs)
        beta = calibrated_beta(problem.relevance, vectors, expected) if self.beta is None else self.beta
        stop = self.variant == "paper"
        order = greedy_set(problem.relevance, vectors, beta, costs, problem.capacity, stop=stop)
        return unscored(problem, order, {"beta": beta})


class PackingValue:
    """What sets of candidates are worth: a monotone submodular function, 0 for the empty set.

    Each of its four terms is 1 for the set of all candidates, but diversity at most that. Negative similarities count
    as 0, without which the sums would not be monotone.

    Args:
        similarities: To the question, `[N]`.
        vectors: Embeddings of the candidates, `[N, D]`, of any length but 0.
        words: Whether each candidate contains each word of the question, `[N, T]`.
        sources: Where each candidate comes from, `[N]`.
        weights: Of the terms: relevance, the summed similarity to the question; coverage, the share of the question's
            words; representativeness, how much of each candidate's similarity to all others the chosen ones have, up to
            `saturation` of it; diversity, the summed square roots of the relevance from each source.
        saturation: Share of a candidate's similarities, in (0, 1].

    Raises:
        InputError: Shapes that do not fit, a number that is not finite, a vector of length 0.
    """

    def __init__(
        self,
        similarities: ArrayLike,
        vectors: ArrayLike,
        words: NDArray[np.bool_],
        sources: Sequence[Hashable],
        weights: tuple[float, float, float, float],
        saturation: float,
    ) -> None:
        relevance, unit = relevance_and_directions(similarities, vectors)
        relevance = np.maximum(relevance, 0.0)
        self._relevance = relevance / (relevance.sum() or 1.0)
        # Words that no candidate contains cannot be covered.
        self._words = words[:, words.any(axis=0)]
        cosines = np.maximum(unit @ unit.T, 0.0)
        caps = saturation * cosines.sum(axis=1)
        self._cosines, self._caps = cosines / (caps.sum() or 1.0), caps / (caps.sum() or 1.0)
        numbers = {source: number for number, source in enumerate(dict.fromkeys(sources))}
        self._sources = np.array([numbers[source] for source in sources], dtype=np.int64)
        self._weights = weights

    def gains(self, chosen: Sequence[int]) -> FloatArray:
        """Return what each candidate would add to a set, `[N]`, at least 0 and at most what it adds to a subset."""
        chosen = list(chosen)
        missing = ~self._words[chosen].any(axis=0)
        words = (self._words & missing).sum(axis=1) / max(1, self._words.shape[1])
        similar = self._cosines[chosen].sum(axis=0)
        represented = np.minimum(similar + self._cosines, self._caps) - np.minimum(similar, self._caps)
        by_source = np.bincount(self._sources[chosen], self._relevance[chosen], minlength=len(self._sources))
        before = by_source[self._sources]
        roots = np.sqrt(before + self._relevance) - np.sqrt(before)
        terms = (self._relevance, words, represented.sum(axis=1), roots)
        gains: FloatArray = sum(weight * term for weight, term in zip(self._weights, terms, strict=True))
        return gains

    def of(self, chosen: Sequence[int]) -> float:
        """Return the value of a set."""
        chosen = list(chosen)
        words = self._words[chosen].any(axis=0).sum() / max(1, self._words.shape[1])
        represented = np.minimum(self._cosines[chosen].sum(axis=0), self._caps).sum()
        roots = np.sqrt(np.bincount(self._sources[chosen], self._relevance[chosen])).sum()
        terms = (self._relevance[chosen].sum(), words, represented, roots)
        return float(sum(weight * term for weight, term in zip(self._weights, terms, strict=True)))

    def best(self, costs: Int64, budget: int) -> Order:
        """Return the better of the set with the largest gains per token and the best single candidate.

        Args:
            costs: Tokens of each candidate, `[N]`, at least 0; a free one comes before all others.
            budget: The maximum sum of the chosen costs.
        """

        def ratios(chosen: Sequence[int]) -> FloatArray:
            gains = self.gains(chosen)
            free = np.full(len(gains), np.inf)
            return np.where(gains > 0, np.divide(gains, costs, out=free, where=costs > 0), -np.inf)

        order = greedy(ratios, costs, budget)
        if not order:
            return order
        single = int(np.where(costs <= budget, self.gains(()), 0.0).argmax())
        return (single,) if self.of((single,)) > self.of(order) else order


def contained_words(query: str, texts: Sequence[str]) -> NDArray[np.bool_]:
    """Return whether each text contains each word of the question, `[N, T]`; stop words are left out."""
    asked = list(dict.fromkeys(word for word in _WORD.findall(query.lower()) if word not in STOP_WORDS))
    words = [frozenset(_WORD.findall(text.lower())) for text in texts]
    rows = [[word in of_text for word in asked] for of_text in words]
    return np.array(rows, dtype=bool).reshape(len(texts), len(asked))


@dataclass(kw_only=True, eq=False)
class Submodular(EmbeddingSelector):
    """Chunks that pack most relevance, words of the question, agreement with others and sources into the budget.

    The candidates with the most value per token, or the best single one if that is worth more.

    Args:
        relevance: Weight of a term; see `PackingValue`, as for the next four.
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
        for name in ("relevance", "coverage", "representativeness", "diversity"):
            check_range(name, getattr(self, name), 0, 1000, "0.3 to 1 are usual, 0 leaves the term out")
        check_range("saturation", self.saturation, 1e-6, 1, "0.3 is usual")

    def _choose(self, problem: SelectionProblem) -> Choice:
        problem = self._with_cosines(problem)
        words = contained_words(problem.query, [chunk.text for chunk in problem.chunks])
        sources = [str(chunk.metadata.get("document", chunk.id)) for chunk in map(source_of, problem.chunks)]
        weights = (self.relevance, self.coverage, self.representativeness, self.diversity)
        value = PackingValue(problem.relevance, self._vectors(problem), words, sources, weights, self.saturation)
        order = value.best(problem.costs, problem.capacity)
        # If nothing adds anything, one chunk serves a reader better than none.
        order = order or fill(problem.by_relevance, problem.costs, problem.capacity, 1)
        return unscored(problem, order, {"packing_value": value.of(order)})

"""Sets of relevant chunks that repeat each other little, chosen chunk by chunk: `mmr`, `adagres`, `submodular`.

`mmr`: Carbonell and Goldstein, "The use of MMR, diversity-based reranking for reordering documents and producing
summaries" (1998).

`adagres`: Peng, Wang, Long and Sheng, "AdaGReS: Adaptive greedy context selection via redundancy-aware scoring for
token-budgeted RAG" (arXiv 2512.25052), and their public code (github.com/orderer0001/AdaGReS). A set C of chunks scores

    F(C) = sum of sim(question, c) over C - beta * sum of sim(c, c') over pairs of C

with cosines for sim.

`submodular`: Bala, "A diagnostic for budget-constrained multi-hop RAG and when submodular evidence packing improves it"
(arXiv 2607.00725), and its public code (github.com/nayanananto/Diagnostic-for-Budget-Constrained-Multi-Hop-RAG), which
compares words where embeddings are compared here. The terms are those of Lin and Bilmes, "A class of submodular
functions for document summarization" (2011).

Letters: N candidates, D dimensions, T words of the question, G sources. Similarities are to the question, `[N]`;
vectors are embeddings of any length but 0, `[N, D]`; costs are tokens, `[N]`, and a budget is the most that the chosen
costs add up to. Ties go to the first in the list.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from corag.checks import check_count, check_range
from corag.errors import InputError
from corag.rerankers.evidence.passages import STOP_WORDS
from corag.selectors.base import Choice, EmbeddingSelector, checked, fill, unscored
from corag.selectors.problem import SelectionProblem
from corag.text.units import source_of
from corag.types import FloatArray, Order

Int64 = NDArray[np.int64]
Gains = Callable[[Sequence[int]], FloatArray]
"""The gain of each candidate beside those that are chosen, `[N]`; called with the chosen ones as they grow by one."""

_WORD = re.compile(r"\w+")
_OF_TERM = "0.3 to 1 are usual, 0 leaves the term out"


def unit_vectors(vectors: ArrayLike) -> FloatArray:
    """Return vectors `[N, D]` scaled to length 1; `InputError` for other shapes and lengths of 0 or not finite."""
    given = np.asarray(vectors, dtype=np.float64)
    if given.ndim != 2:
        raise InputError(f"expected vectors of the shape [documents, dimensions], got {given.shape}")
    lengths = np.linalg.norm(given, axis=1, keepdims=True)
    if not (np.isfinite(lengths) & (lengths > 0)).all():
        raise InputError("a vector has no finite length above 0; leave out what has no direction, such as empty texts")
    unit: FloatArray = given / lengths
    return unit


def greedy(gains: Gains, costs: Int64, budget: int, limit: int | None = None) -> Order:
    """Return at most `limit` candidates in the order in which each has the largest gain beside those before it.

    A candidate that no longer fits is skipped; one of gain -inf is not chosen.
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
    section 2, whose lambda is `relevance_weight`, in [0, 1]); the second term is 0 for the first.
    """
    relevance, unit = np.asarray(similarities, dtype=np.float64), unit_vectors(vectors)
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
    """

    relevance_weight: float = checked(0.5, check_range, low=0, high=1, hint="0.5 to 0.8 are usual")
    k: int | None = checked(None, check_count, hint="3 to 20 are usual, None takes as many as fit")
    name = "mmr"

    def _choose(self, problem: SelectionProblem) -> Choice:
        problem = self._with_cosines(problem)
        vectors = self._vectors(problem)
        weight = self.relevance_weight
        order = marginal_relevance(
            problem.relevance, vectors, problem.costs, problem.capacity, relevance_weight=weight, limit=self.k
        )
        return unscored(problem, order)


def calibrated_beta(similarities: ArrayLike, vectors: ArrayLike, expected: int) -> float:
    """Return the weight of redundancy under which k = `expected` chunks like the candidates would score 0.

    k chunks of mean relevance r and mean similarity s to each other score `k * r - beta * k * (k - 1) / 2 * s`. That is
    0 for `beta = r / ((k - 1) / 2 * s)`: a small budget, or candidates that repeat each other little, make redundancy
    cost more. Better and less redundant chunks than the candidates' mean still gain.

    It is 0 if one chunk is expected, or if candidates are on average not similar to each other or to the question.
    """
    relevance, unit = np.asarray(similarities, dtype=np.float64), unit_vectors(vectors)
    if expected < 2 or len(unit) < 2:
        return 0.0
    redundancy = float((unit @ unit.T)[np.triu_indices(len(unit), k=1)].mean())
    return max(0.0, float(relevance.mean()) / ((expected - 1) / 2 * redundancy)) if redundancy > 0 else 0.0


def greedy_set(similarities: ArrayLike, vectors: ArrayLike, beta: float, costs: Int64, budget: int) -> Order:
    """Return candidates in the order in which each adds most to the score F of those before it.

    It ends when no candidate adds to the score; the first is taken in any case.
    """
    scores, unit = np.array(similarities, dtype=np.float64), unit_vectors(vectors)

    def gains(chosen: Sequence[int]) -> FloatArray:
        if chosen:
            scores[:] -= beta * (unit @ unit[chosen[-1]])
        return np.where(scores > 0, scores, -np.inf) if chosen else scores

    return greedy(gains, costs, budget)


@dataclass(kw_only=True, eq=False)
class AdaGReS(EmbeddingSelector):
    """Chunks that are relevant and repeat each other little, until none adds to the score.

    Args:
        beta: Weight of redundancy, or None: `calibrated_beta` for each question. A mean chunk then adds nothing once
            half of the expected number is chosen, where the public code goes on to the expected number.
    """

    beta: float | None = checked(None, check_range, low=0, high=1000, hint="0.05 to 1 are usual; None calibrates it")
    name = "adagres"

    def _choose(self, problem: SelectionProblem) -> Choice:
        problem = self._with_cosines(problem)
        vectors = self._vectors(problem)
        costs, mean_cost = problem.costs, float(problem.costs.mean())
        expected = int(problem.capacity // mean_cost) if mean_cost > 0 else len(costs)
        beta = calibrated_beta(problem.relevance, vectors, expected) if self.beta is None else self.beta
        order = greedy_set(problem.relevance, vectors, beta, costs, problem.capacity)
        return unscored(problem, order, {"beta": beta})


def packing_gains(
    similarities: ArrayLike,
    vectors: ArrayLike,
    words: NDArray[np.bool_],
    sources: Sequence[Hashable],
    weights: tuple[float, float, float, float],
    saturation: float,
) -> Gains:
    """Return what candidates add to a set: the gains of a monotone submodular function, 0 for the empty set.

    A gain is at least 0 and at most what the candidate adds to a subset. Each of the four terms is 1 for the set of all
    candidates, but diversity at most that. Negative similarities count as 0, without which the sums would not be
    monotone.

    Args:
        similarities: See above.
        vectors: Likewise.
        words: Whether each candidate contains each word of the question, `[N, T]`.
        sources: Where each candidate comes from, `[N]`.
        weights: Of the terms: relevance, the summed similarity to the question; coverage, the share of the question's
            words; representativeness, how much of each candidate's similarity to all others the chosen ones have, up to
            `saturation` of it; diversity, the summed square roots of the relevance from each source.
        saturation: Share of a candidate's similarities, in (0, 1].
    """
    unit = unit_vectors(vectors)
    relevance = np.maximum(np.asarray(similarities, dtype=np.float64), 0.0)
    relevance = relevance / (relevance.sum() or 1.0)
    # Words that no candidate contains cannot be covered.
    words = words[:, words.any(axis=0)]
    cosines = np.maximum(unit @ unit.T, 0.0)
    caps = saturation * cosines.sum(axis=1)
    cosines, caps = cosines / (caps.sum() or 1.0), caps / (caps.sum() or 1.0)
    source = np.unique([str(name) for name in sources], return_inverse=True)[1]

    def gains(chosen: Sequence[int]) -> FloatArray:
        chosen = list(chosen)
        missing = ~words[chosen].any(axis=0)
        covered = (words & missing).sum(axis=1) / max(1, words.shape[1])
        similar = cosines[chosen].sum(axis=0)
        represented = np.minimum(similar + cosines, caps) - np.minimum(similar, caps)
        before = np.bincount(source[chosen], relevance[chosen], minlength=len(source))[source]
        roots = np.sqrt(before + relevance) - np.sqrt(before)
        terms = (relevance, covered, represented.sum(axis=1), roots)
        total: FloatArray = sum(weight * term for weight, term in zip(weights, terms, strict=True))
        return total

    return gains


def set_value(gains: Gains, chosen: Sequence[int]) -> float:
    """Return the value of a set: the summed gains of its members, each beside those before it."""
    return float(sum(gains(chosen[:count])[index] for count, index in enumerate(chosen)))


def best_set(gains: Gains, costs: Int64, budget: int) -> Order:
    """Return the better of the set with the largest gains per token and the best single candidate.

    For a monotone submodular value that is worth at least (1 - 1/e) / 2 of the best set within the budget (Khuller,
    Moss and Naor, "The budgeted maximum coverage problem", 1999; Krause and Guestrin, "A note on the budgeted
    maximization of submodular functions", 2005). A free candidate comes before all others.
    """

    def ratios(chosen: Sequence[int]) -> FloatArray:
        gained = gains(chosen)
        free = np.full(len(gained), np.inf)
        return np.where(gained > 0, np.divide(gained, costs, out=free, where=costs > 0), -np.inf)

    order = greedy(ratios, costs, budget)
    if not order:
        return order
    single = (int(np.where(costs <= budget, gains(()), 0.0).argmax()),)
    return single if set_value(gains, single) > set_value(gains, order) else order


def contained_words(query: str, texts: Sequence[str]) -> NDArray[np.bool_]:
    """Return whether each text contains each word of the question, `[N, T]`; stop words are left out."""
    asked = list(dict.fromkeys(word for word in _WORD.findall(query.lower()) if word not in STOP_WORDS))
    words = [frozenset(_WORD.findall(text.lower())) for text in texts]
    rows = [[word in of_text for word in asked] for of_text in words]
    return np.array(rows, dtype=bool).reshape(len(texts), len(asked))


@dataclass(kw_only=True, eq=False)
class Submodular(EmbeddingSelector):
    """Chunks that pack most relevance, words of the question, agreement with others and sources into the budget.

    The settings are the weights of the terms and the saturation; see `packing_gains` and `best_set`.
    """

    relevance: float = checked(1.0, check_range, low=0, high=1000, hint=_OF_TERM)
    coverage: float = checked(0.5, check_range, low=0, high=1000, hint=_OF_TERM)
    representativeness: float = checked(0.4, check_range, low=0, high=1000, hint=_OF_TERM)
    diversity: float = checked(0.3, check_range, low=0, high=1000, hint=_OF_TERM)
    saturation: float = checked(0.3, check_range, low=1e-6, high=1, hint="0.3 is usual")
    name = "submodular"

    def _choose(self, problem: SelectionProblem) -> Choice:
        problem = self._with_cosines(problem)
        vectors = self._vectors(problem)
        words = contained_words(problem.query, [chunk.text for chunk in problem.chunks])
        sources = [str(chunk.metadata.get("document", chunk.id)) for chunk in map(source_of, problem.chunks)]
        weights = (self.relevance, self.coverage, self.representativeness, self.diversity)
        gains = packing_gains(problem.relevance, vectors, words, sources, weights, self.saturation)
        order = best_set(gains, problem.costs, problem.capacity)
        # If nothing adds anything, one chunk serves a reader better than none.
        order = order or fill(problem.by_relevance, problem.costs, problem.capacity, 1)
        return unscored(problem, order, {"packing_value": set_value(gains, order)})

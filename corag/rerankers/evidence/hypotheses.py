"""Which sets of chunks could be the evidence of a question, and what is known of each set.

N hypotheses, n candidates. Knows signals, no text and no model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray

from corag.models.engine import Float32
from corag.rerankers.evidence.signals import FLAGS, PAIRS, SINGLES, Signals
from corag.types import FloatArray

MAX_LISTED = 20
"""Up to this many chunks, enumerate all sets of at most four as hypotheses; beyond it, the most promising."""
HEADS = 24
"""One of each pair is among this many of the strongest chunks: the other may be weak by itself."""
CORES = {3: 16, 4: 15, 5: 11}
"""By size: how many of the strongest chunks all sets are made of."""
GROWN = 15
"""How many of the best sets of one size are extended by a chunk, for the next."""
PARTNERS = 30
"""How many of the strongest chunks they are extended by."""
MAX_SIZE = 5
"""No question of the training data has more passages, and few have more sentences."""
SIZES = 4
"""Sizes that features tell apart; larger sets count as of the last."""

Sets = NDArray[np.intp]
"""Sets of one size, the indices of each ascending, `[sets, size]`."""

_CROSSED_SINGLES = ("named", "cosine")
_CROSSED_PAIRS = ("link", "new_link", "rest_vector", "link_tokens", "similar", "titles")
_NUM_CROSSED = len(_CROSSED_SINGLES) + len(_CROSSED_PAIRS) + 2
NUM_FEATURES = 3 * len(SINGLES) + 3 * len(PAIRS) + 4 + SIZES + SIZES * len(FLAGS) + _NUM_CROSSED * len(FLAGS) + 3
"""Features of a set."""


@dataclass(frozen=True, slots=True)
class Hypotheses:
    """Sets of candidates, `[N, n]`, each of which could be the evidence, and how plausible each is, `[N]`.

    The first is the empty set: the evidence is not among the candidates. Its logit is 0.
    """

    members: NDArray[np.bool_]
    logits: FloatArray

    @property
    def sets(self) -> list[tuple[int, ...]]:
        """Indices of the candidates of each, ascending."""
        return [tuple(np.flatnonzero(row).tolist()) for row in self.members]

    def probabilities(self, temperature: float = 1.0) -> FloatArray:
        """Return the probability of each hypothesis, `[N]`."""
        weights = np.exp((self.logits - self.logits.max()) / temperature)
        return np.asarray(weights / weights.sum())


def weigh(signals: Signals, max_size: int, logits: Callable[[Float32], FloatArray]) -> Hypotheses:
    """List the hypotheses of at most `max_size` chunks and weigh their features, `[N, NUM_FEATURES]` to `[N]`.

    Of many chunks not all sets are listed, see `promising`: of 60 about 4,400 sets of up to five.
    """
    num_candidates = len(signals.singles)
    describe = describer(signals)
    found: list[tuple[Sets, FloatArray]] = [(np.zeros((1, 0), dtype=np.intp), np.zeros(1))]
    strength = np.zeros(num_candidates)
    for size in range(1, min(max_size, num_candidates) + 1):
        sets = promising(size, strength, *found[-1])
        found.append((sets, logits(describe(sets))))
        if size <= 2:
            strength = _strength(found, num_candidates)
    return Hypotheses(
        members=np.concatenate([_members(sets, num_candidates) for sets, _ in found]),
        logits=np.concatenate([of_size for _, of_size in found]),
    )


def promising(size: int, strength: FloatArray, smaller: Sets, logits: FloatArray) -> Sets:
    """Return the sets of a size that are hypotheses, each once, in lexical order, `[sets, size]`.

    All sets over the few strongest chunks, by `strength`, `[n]`: by itself for pairs, by itself and in pairs for larger
    sets; and the best `smaller` sets, `[M, size - 1]`, by their `logits`, `[M]`, extended by a chunk.
    """
    num_candidates = len(strength)
    if size == 1 or (num_candidates <= MAX_LISTED and size <= 4):
        return sets_of(size, range(num_candidates))
    if size == 2:
        return extended(smaller[strongest(strength, HEADS)], range(num_candidates), num_candidates)
    core = sets_of(size, strongest(strength, CORES[size]))
    grown = extended(smaller[strongest(logits, GROWN)], strongest(strength, PARTNERS), num_candidates)
    return _distinct(np.concatenate([core, grown]), num_candidates)


def extended(sets: Sets, partners: Sequence[int], num_candidates: int) -> Sets:
    """Return each set with each partner that it does not hold, each result once, in lexical order."""
    longer = np.column_stack([np.repeat(sets, len(partners), axis=0), np.tile(partners, len(sets))])
    longer = longer[(longer[:, :-1] != longer[:, -1:]).all(axis=1)]
    return _distinct(np.sort(longer, axis=1), num_candidates)


def _distinct(sets: Sets, num_candidates: int) -> Sets:
    # One number for each set; 64 bits hold five indices below 6,000.
    numbers = sets @ num_candidates ** np.arange(sets.shape[1])[::-1]
    return np.asarray(sets[np.unique(numbers, return_index=True)[1]])


def strongest(strength: FloatArray, limit: int) -> list[int]:
    """Return the indices of the strongest candidates, ascending; of equals the better-ranked."""
    return sorted(np.argsort(-strength, kind="stable")[:limit].tolist())


def sets_of(size: int, indices: Sequence[int]) -> Sets:
    """Return all sets of a size over ascending indices, `[sets, size]`."""
    return np.asarray(np.array(indices, dtype=np.intp)[_places(size, len(indices))])


@lru_cache(maxsize=256)
def _places(size: int, count: int) -> Sets:
    return np.array(list(combinations(range(count), size)), dtype=np.intp).reshape(-1, size)


def describer(signals: Signals) -> Callable[[Sets], Float32]:
    """Return what describes sets of one size, `[N, NUM_FEATURES]`, with what all sizes need worked out once.

    Of every figure of a chunk the mean, least and largest over the set; of every figure of a pair, in the direction in
    which it is larger, the mean, the largest, and the least that any chunk has with its best partner; what the set
    covers of the question; its size; flags of the question, crossed with the size and with some of the others; whether
    the chunks are units.
    """
    # In single precision, as the network computes: thousands of sets take as long as their bytes.
    figures = signals.singles.astype(np.float32)
    either = np.maximum(signals.pairs, signals.pairs.transpose(1, 0, 2)).astype(np.float32)
    nearest, held = signals.nearest.astype(np.float32), signals.held.astype(np.float32)
    weights, flags = signals.weights.astype(np.float32), signals.flags.astype(np.float32)

    def describe(sets: Sets) -> Float32:
        num_sets, size = sets.shape
        of_singles = _of_singles(figures, sets)
        of_pairs = _of_pairs(either, sets)
        crossed = _crossed(of_singles[0], of_pairs[0], of_pairs[1])
        sizes = np.zeros(SIZES, dtype=np.float32)
        sizes[min(size, SIZES) - 1] = 1.0
        of_size = np.concatenate([sizes, np.outer(sizes, flags).ravel()])
        columns = [
            *of_singles,
            *of_pairs,
            _covered(_largest(nearest, sets), _largest(held, sets), weights),
            np.broadcast_to(of_size, (num_sets, len(of_size))),
            (crossed[:, :, None] * flags).reshape(num_sets, -1),
            crossed[:, -2:],
            np.full((num_sets, 1), signals.are_units, dtype=np.float32),
        ]
        return np.concatenate(columns, axis=1)

    return describe


def _of_singles(singles: Float32, sets: Sets) -> tuple[Float32, Float32, Float32]:
    """Return mean, least and largest of each figure in each set, each `[N, figures]`."""
    # One member of all sets at a time: NumPy reduces a short axis in the middle many times as slowly.
    total = least = most = singles[sets[:, 0]]
    for column in sets.T[1:]:
        member = singles[column]
        total, least, most = total + member, np.minimum(least, member), np.maximum(most, member)
    return total / np.float32(sets.shape[1]), least, most


def _of_pairs(either: Float32, sets: Sets) -> tuple[Float32, Float32, Float32]:
    """Return mean, largest, and least best of the pairs in each set, each `[N, figures]`; zeros for single chunks."""
    num_sets, size = sets.shape
    if size == 1:
        nothing = np.zeros((num_sets, either.shape[2]), dtype=np.float32)
        return nothing, nothing, nothing
    each = {(i, j): either[sets[:, i], sets[:, j]] for i, j in combinations(range(size), 2)}
    best = (reduce(np.maximum, [figures for pair, figures in each.items() if place in pair]) for place in range(size))
    total, most = (reduce(combine, each.values()) for combine in (np.add, np.maximum))
    return total / np.float32(len(each)), most, reduce(np.minimum, best)


def _largest(figures: Float32, sets: Sets) -> Float32:
    """Return the largest of each figure in each set, `[N, figures]`."""
    return reduce(np.maximum, (figures[column] for column in sets.T))


def _covered(nearest: Float32, held: Float32, weights: Float32) -> Float32:
    """Return what sets cover of the question's tokens, `[N, 4]`; zeros for a question without any."""
    if not len(weights):
        return np.zeros((len(nearest), 4), dtype=np.float32)
    # Not by BLAS, which sums some rows in another sequence: a set is described alike whoever stands beside it.
    of_nearest, of_held = (np.einsum("nq,q->n", figures, weights) for figures in (nearest, held))
    return np.stack([of_nearest, nearest.mean(axis=1), of_held, nearest.min(axis=1)], axis=1)


def _crossed(singles: Float32, pairs: Float32, most: Float32) -> Float32:
    """Return the figures that mean something else for another kind of question, `[N, _NUM_CROSSED]`.

    Of means over a set, but for what is largest of its pairs.
    """
    means = [singles[:, SINGLES.index(name)] for name in _CROSSED_SINGLES]
    means += [pairs[:, PAIRS.index(name)] for name in _CROSSED_PAIRS]
    named = means[0]
    # A set that the question names whole and whose chunks name each other is special.
    special = [named * most[:, PAIRS.index(name)] for name in ("new_link", "link")]
    return np.stack([*means, *special], axis=1)


def _members(sets: Sets, num_candidates: int) -> NDArray[np.bool_]:
    members = np.zeros((len(sets), num_candidates), dtype=bool)
    np.put_along_axis(members, sets, True, axis=1)
    return members


def _strength(found: Sequence[tuple[Sets, FloatArray]], num_candidates: int) -> FloatArray:
    """Return the logarithm of the summed weights of each candidate's hypotheses, `[n]`; -inf where it has none."""
    logits = np.concatenate([of_size for _, of_size in found])
    weights = np.exp(logits - logits.max())
    total = np.zeros(num_candidates)
    ends = np.cumsum([0, *(len(sets) for sets, _ in found)])
    for (sets, _), (start, end) in zip(found, pairwise(ends.tolist()), strict=True):
        for column in sets.T:
            np.add.at(total, column, weights[start:end])
    with np.errstate(divide="ignore"):
        return np.log(total)

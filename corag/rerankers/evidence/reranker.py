"""`minilm-evidence`: the probability that a combination of passages, or of sentences, holds the evidence.

Which sets of chunks could be the evidence (hypotheses), and what is known of each; a linear floor, and small networks
that learn what it leaves, give every hypothesis its probability; from these follow the values of orders. Letters: N
hypotheses, n candidates, H hidden units, M members of an ensemble, F features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import chain, combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from corag.errors import ModelError
from corag.models.encoders import MAX_TOKENS, Encoded, EncoderPart
from corag.models.engine import Float32
from corag.models.trained import check_base, load_adapter, shipped_adapter
from corag.rerankers.evidence.signals import (
    FLAGS,
    PAIRS,
    SINGLES,
    PassageFeatures,
    PassageReader,
    Signals,
    signals,
)
from corag.rerankers.scorers import ChunkScorer
from corag.types import Chunk, FloatArray, Order

NAME = "minilm-evidence"
FORM = "evidence-sets"
TENSORS = ("mean", "scale", "linear", "bias", "hidden", "hidden_bias", "output")
"""Of an `Ensemble`."""
CLIP = 8.0
"""Standard deviations beyond which a feature counts as no further out."""

BLOCK = 256
"""Rows, and orders, at a time, so that what is between them is small and stays in the caches of the CPU."""
NEGLIGIBLE = 1e-7
"""Hypotheses less probable than this are left out: thousands of them together change no value by 0.001."""
MAX_LISTED = 20
"""Up to this many chunks, enumerate all sets of at most four as hypotheses; beyond it, the most promising."""
PROMISING = {2: (0, 24, None), 3: (16, 15, 30), 4: (15, 15, 30), 5: (11, 15, 30)}
"""By size: how many of the strongest chunks all sets are made of; how many of the best smaller sets are extended by a
chunk; by how many of the strongest. One of each pair is a strong chunk: the other, any, may be weak by itself."""
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


def weigh(signals: Signals, logits: Callable[[Float32], FloatArray]) -> Hypotheses:
    """List the hypotheses of at most `MAX_SIZE` chunks and weigh their features, `[N, NUM_FEATURES]` to `[N]`.

    Of many chunks not all sets are listed, see `promising`: of 60 about 4,400 sets of up to five.
    """
    num_candidates = len(signals.singles)
    found: list[tuple[Sets, FloatArray]] = [(np.zeros((1, 0), dtype=np.intp), np.zeros(1))]
    strength = np.zeros(num_candidates)
    for size in range(1, min(MAX_SIZE, num_candidates) + 1):
        sets = promising(size, strength, *found[-1])
        found.append((sets, logits(describe(signals, sets))))
        if size == 2:
            strength = _strength(found, num_candidates)
    return Hypotheses(
        members=np.concatenate([(sets[:, :, None] == np.arange(num_candidates)).any(axis=1) for sets, _ in found]),
        logits=np.concatenate([of_size for _, of_size in found]),
    )


def promising(size: int, strength: FloatArray, smaller: Sets, logits: FloatArray) -> Sets:
    """Return the sets of a size that are hypotheses, each once, in lexical order, `[sets, size]`.

    All sets over the few strongest chunks, alone and in pairs, by `strength`, `[n]`, which is known from size 3 on; and
    the best `smaller` sets, `[M, size - 1]`, by their `logits`, `[M]`, extended by a chunk.
    """
    num_candidates = len(strength)
    if size == 1 or (num_candidates <= MAX_LISTED and size <= 4):
        return sets_of(size, num_candidates)
    num_core, num_extended, num_partners = PROMISING[size]
    core, partners = strongest(strength, num_core), strongest(strength, num_partners)
    best = smaller[strongest(logits, num_extended)]
    longer = np.column_stack([np.repeat(best, len(partners), axis=0), np.tile(partners, len(best))])
    longer = longer[(longer[:, :-1] != longer[:, -1:]).all(axis=1)]
    sets = np.concatenate([core[sets_of(size, len(core))], np.sort(longer, axis=1)])
    # One number for each set; 64 bits hold five indices below 6,000.
    numbers = sets @ num_candidates ** np.arange(size)[::-1]
    return np.asarray(sets[np.unique(numbers, return_index=True)[1]])


def strongest(strength: FloatArray, limit: int | None) -> NDArray[np.intp]:
    """Return the indices of the strongest candidates, ascending; of equals the better-ranked."""
    return np.sort(np.argsort(-strength, kind="stable")[:limit])


@lru_cache(maxsize=256)
def sets_of(size: int, count: int) -> Sets:
    """Return all sets of a size over the first `count` indices, in lexical order, `[sets, size]`."""
    return np.array(list(combinations(range(count), size)), dtype=np.intp).reshape(-1, size)


def describe(signals: Signals, sets: Sets) -> Float32:
    """Return the features of sets of one size, `[N, NUM_FEATURES]`.

    Of every figure of a chunk the mean, least and largest over the set; of every figure of a pair, in the direction in
    which it is larger, the mean, the largest, and the least that any chunk has with its best partner; what the set
    covers of the question; its size; flags of the question, crossed with the size and with some of the others; whether
    the chunks are units.
    """
    num_sets, size = sets.shape
    of_singles = _of_singles(signals.singles, sets)
    of_pairs = _of_pairs(np.maximum(signals.pairs, signals.pairs.transpose(1, 0, 2)), sets)
    crossed = _crossed(of_singles[0], of_pairs[0], of_pairs[1])
    sizes = np.zeros(SIZES, dtype=np.float32)
    sizes[min(size, SIZES) - 1] = 1.0
    of_size = np.concatenate([sizes, np.outer(sizes, signals.flags).ravel()])
    columns = [
        *of_singles,
        *of_pairs,
        _covered(signals, sets),
        np.broadcast_to(of_size, (num_sets, len(of_size))),
        (crossed[:, :, None] * signals.flags).reshape(num_sets, -1),
        crossed[:, -2:],
        np.full((num_sets, 1), signals.are_units, dtype=np.float32),
    ]
    return np.concatenate(columns, axis=1)


def _of_singles(singles: Float32, sets: Sets) -> tuple[Float32, Float32, Float32]:
    """Return mean, least and largest of each figure in each set, each `[N, figures]`."""
    # One member of all sets at a time: NumPy reduces a short axis in the middle many times as slowly.
    members = [singles[column] for column in sets.T]
    total, least, most = (reduce(combine, members) for combine in (np.add, np.minimum, np.maximum))
    return total / np.float32(len(members)), least, most


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


def _covered(signals: Signals, sets: Sets) -> Float32:
    """Return what sets cover of the question's tokens, `[N, 4]`; zeros for a question without any."""
    if not len(signals.weights):
        return np.zeros((len(sets), 4), dtype=np.float32)
    tables = (signals.nearest, signals.held)
    nearest, held = (reduce(np.maximum, [table[column] for column in sets.T]) for table in tables)
    # Not by BLAS, which sums some rows in another sequence: a set is described alike whoever stands beside it.
    of_nearest, of_held = (np.einsum("nq,q->n", table, signals.weights) for table in (nearest, held))
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


def _strength(found: Sequence[tuple[Sets, FloatArray]], num_candidates: int) -> FloatArray:
    """Return the logarithm of the summed weights of each candidate's hypotheses, `[n]`; -inf where it has none."""
    most = max(float(logits.max()) for _, logits in found)
    indices = np.concatenate([sets.T.ravel() for sets, _ in found])
    weights = np.concatenate([np.tile(np.exp(logits - most), sets.shape[1]) for sets, logits in found])
    with np.errstate(divide="ignore"):
        return np.log(np.bincount(indices, weights, num_candidates))


class Ensemble:
    """Mean of M networks `linear(x) + output(gelu(hidden(x)))` over standardised features.

    Its tensors: `mean` and `scale`, the standard deviation, of each feature in the training data, `[F]`; `linear`, the
    weights of the linear parts, `[M, F]`, with `bias`, `[M]`; `hidden`, those into the hidden units, `[M, H, F]`, with
    `hidden_bias`, `[M, H]`; and `output`, those out of them, `[M, H]`. `KeyError` if one is missing.
    """

    def __init__(self, tensors: Mapping[str, NDArray[Any]]) -> None:
        mean, scale, linear, bias, hidden, hidden_bias, output = (
            np.asarray(tensors[name], dtype=np.float64) for name in TENSORS
        )
        # The members side by side: one product instead of one for each.
        side_by_side, share = hidden.reshape(-1, len(mean)).T, output.ravel() / len(hidden)
        arrays = (mean, scale, linear.mean(axis=0), side_by_side, hidden_bias.ravel(), share)
        self._arrays = [np.ascontiguousarray(array, dtype=np.float32) for array in arrays]
        self._bias = float(bias.mean())
        self.num_features = len(mean)

    def __call__(self, features: Float32) -> FloatArray:
        """Return the logit of each row, `[N, F]` to `[N]`, computed in fp32."""
        mean, scale, linear, hidden, hidden_bias, output = self._arrays
        logits = np.empty(len(features))
        for start in range(0, len(features), BLOCK):
            rows = slice(start, start + BLOCK)
            x = np.clip((features[rows] - mean) / scale, -CLIP, CLIP)
            logits[rows] = x @ linear + gelu(x @ hidden + hidden_bias) @ output + self._bias
        return logits


def gelu(x: Float32) -> Float32:
    """Gaussian error linear unit in the form with tanh (Hendrycks and Gimpel, 2016)."""
    # NumPy raises to powers forty times as slowly as it multiplies.
    scale = np.sqrt(2 / np.pi)
    inner = (x * x * np.float32(scale * 0.044715) + np.float32(scale)) * x
    return np.asarray((np.tanh(inner) + 1) * x * np.float32(0.5))


class Weights(NamedTuple):
    """Softmax temperature of the probabilities of the hypotheses; a value is sigmoid(slope * utility + offset)."""

    temperature: float
    slope: float
    offset: float


class EvidenceScorer(ChunkScorer):
    """Values orders in [0, 1]: higher with more of the evidence; length costs nothing.

    An order of `passages` without any tokens is worth 0.
    """

    order_matters = False

    def __init__(self, hypotheses: Hypotheses, weights: Weights, passages: Sequence[PassageFeatures] = ()) -> None:
        super().__init__(np.array([passage.truncated for passage in passages], dtype=bool))
        self._blanks = frozenset(row for row, passage in enumerate(passages) if not len(passage.ids))
        probabilities = hypotheses.probabilities(weights.temperature)[1:]
        # The empty hypothesis is first. It says how much any value is worth, and nothing about which is best.
        answerable = float(probabilities.sum())
        probabilities = probabilities / max(answerable, 1e-300)
        kept = probabilities >= NEGLIGIBLE
        self._probabilities = probabilities[kept]
        self._members = hypotheses.members[1:][kept].astype(np.float32)
        self._sizes = self._members.sum(axis=1)
        self._shares = (self._probabilities / self._sizes) @ self._members.astype(np.float64)
        self._slope, self._offset = weights.slope * answerable, weights.offset

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Return one value per order, `[len(orders)]`."""
        self.count_truncated(orders)
        # A steep slope, fitted where nearly all orders are right, would overflow.
        values = np.asarray(1 / (1 + np.exp(-np.clip(self.logits(orders), -500, 500))))
        if self._blanks:
            values[[self._blanks.issuperset(order) for order in orders]] = 0.0
        return values

    def logits(self, orders: Sequence[Order]) -> FloatArray:
        """Return what the values are the sigmoids of, `[len(orders)]`; see `Weights`.

        The utility: how probably an order holds all evidence that candidates do, plus the share of it that it holds.
        """
        utilities = np.zeros(len(orders))
        for start in range(0, len(orders), BLOCK):
            block = orders[start : start + BLOCK]
            chosen = np.zeros((len(block), len(self._shares)))
            rows = np.repeat(np.arange(len(block)), [len(order) for order in block])
            chosen[rows, np.fromiter(chain.from_iterable(block), dtype=np.intp, count=len(rows))] = 1.0
            # How many of its members each order holds: whole numbers, so BLAS is exact.
            held = self._members @ chosen.T.astype(np.float32) == self._sizes[:, None]
            # Not by BLAS, which sums some rows in another sequence: equal sets would differ by a bit.
            utilities[start : start + BLOCK] = np.einsum("n,nb->b", self._probabilities, held)
            utilities[start : start + BLOCK] += np.einsum("bn,n->b", chosen, self._shares)
        return self._slope * utilities + self._offset


@dataclass(kw_only=True, eq=False)
class EvidenceReranker(EncoderPart):
    """Values combinations by how likely they are to hold the evidence for a question; see `corag.rerankers.evidence`.

    A value depends on all candidates, since hypotheses compete. Only single chunks are cut to a window. The values are
    probabilities, so they enter the search of `corag` as they are.

    Attributes:
        adapter: The folder of one that is used in place of the shipped one.

    Raises:
        InputError: Another encoder is named.
        ModelError: The adapter is missing, damaged or of another form, or its parts do not go together.
    """

    name = NAME
    max_tokens = MAX_TOKENS
    gives_probabilities = True

    adapter: str | Path | None = None

    def __post_init__(self) -> None:
        check_base(self.name, self.encoder)
        super().__post_init__()
        folder = self.adapter or shipped_adapter(NAME)
        adapter = load_adapter(folder, FORM)
        try:
            weights = adapter.settings["weights"]
            self._weights = Weights(*(float(weights[name]) for name in Weights._fields))
            self._network = Ensemble(adapter.tensors)
            self._rarity = np.asarray(adapter.tensors["rarity"], dtype=np.float64)
        except (KeyError, TypeError) as error:
            raise ModelError(f"{folder} lacks {error}; copy the adapter again or train it again") from error
        if (num := self._network.num_features) != NUM_FEATURES:
            raise ModelError(f"{folder} wants other features than this release makes ({num}); train it again")
        self._read = PassageReader(self._encoder)

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return the value of each text as if it were the only candidate, `[len(texts)]`."""
        question = self._encoder.question(query)
        passages = self._read([Chunk("text", text) for text in texts])
        return np.array([self._scorer(query, question, [passage])([(0,)])[0] for passage in passages], dtype=np.float64)

    def scorer(self, query: str, chunks: Sequence[Chunk]) -> EvidenceScorer:
        """Return a scoring function over the hypotheses about these chunks, weighed here once."""
        return self._scorer(query, self._encoder.question(query), self._read(chunks))

    def _scorer(self, query: str, question: Encoded, passages: Sequence[PassageFeatures]) -> EvidenceScorer:
        hypotheses = Hypotheses(np.zeros((1, 0), dtype=bool), np.zeros(1))
        if passages:
            hypotheses = weigh(signals(query, question, passages, self._rarity), self._network)
        return EvidenceScorer(hypotheses, self._weights, passages)

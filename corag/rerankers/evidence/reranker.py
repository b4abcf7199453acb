"""`minilm-evidence`: the probability that a combination of passages, or of sentences, holds the evidence.

Which sets of chunks could be the evidence (hypotheses), and what is known of each; a linear floor, and small networks
that learn what it leaves, give every hypothesis its probability; from these follow the values of orders. Letters: N
hypotheses, n candidates, H hidden units, M members of an ensemble, F features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property, lru_cache, reduce
from itertools import chain, combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag.errors import ModelError
from corag.models.encoders import MAX_TOKENS, EncoderPart
from corag.models.engine import Float32
from corag.models.trained import check_base, load_adapter, shipped_adapter
from corag.rerankers.evidence.signals import (
    FLAGS,
    PAIRS,
    SINGLES,
    PassageFeatures,
    PassageReader,
    Signals,
    read_question,
    signals,
)
from corag.rerankers.scorers import ChunkScorer
from corag.types import Chunk, FloatArray, Order

NAME = "minilm-evidence"
FORM = "evidence-sets"
VOCABULARY = 30522
"""Tokens that MiniLM knows."""
CLIP = 8.0
"""Standard deviations beyond which a feature counts as no further out."""

_ROWS = 256
"""Rows at a time, so that what is between them stays in the caches of the CPU."""


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


@dataclass(frozen=True)
class Ensemble:
    """Mean of M networks `linear(x) + output(gelu(hidden(x)))` over standardised features.

    Attributes:
        mean: Of each feature in the training data, `[F]`.
        scale: Its standard deviation, `[F]`.
        linear: Weights of the linear parts, `[M, F]`.
        bias: `[M]`.
        hidden: Weights into the hidden units, `[M, H, F]`.
        hidden_bias: `[M, H]`.
        output: Weights out of them, `[M, H]`.
    """

    mean: FloatArray
    scale: FloatArray
    linear: FloatArray
    bias: FloatArray
    hidden: FloatArray
    hidden_bias: FloatArray
    output: FloatArray

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, NDArray[Any]]) -> Ensemble:
        """Return the network whose tensors are named as the attributes; `KeyError` if one is missing."""
        return cls(**{one.name: np.asarray(tensors[one.name], dtype=np.float64) for one in fields(cls)})

    @cached_property
    def _arrays(self) -> list[Float32]:
        # The members side by side: one product instead of one for each.
        hidden, output = self.hidden.reshape(-1, len(self.mean)).T, self.output.ravel() / len(self.hidden)
        parts = (self.mean, self.scale, self.linear.mean(axis=0), hidden, self.hidden_bias.ravel(), output)
        return [np.ascontiguousarray(part, dtype=np.float32) for part in parts]

    def __call__(self, features: Float32) -> FloatArray:
        """Return the logit of each row, `[N, F]` to `[N]`, computed in fp32."""
        mean, scale, linear, hidden, hidden_bias, output = self._arrays

        def standard(rows: Float32, columns: NDArray[np.bool_]) -> Float32:
            x: Float32 = rows[:, columns] - mean[columns]
            x /= scale[columns]
            return np.minimum(np.maximum(x, -CLIP, out=x), CLIP, out=x)

        logits = np.empty(len(features))
        # Many features are the same for all sets of one size: what they add is worked out once.
        varies = (features != features[:1]).any(axis=0)
        same = standard(features[:1], ~varies)
        hidden_of_same = same @ hidden[~varies] + hidden_bias
        logit_of_same = same @ linear[~varies] + float(self.bias.mean())
        into_hidden, into_logit = hidden[varies], linear[varies]
        for start in range(0, len(features), _ROWS):
            rows = slice(start, start + _ROWS)
            x = standard(features[rows], varies)
            units: Float32 = x @ into_hidden
            units += hidden_of_same
            logits[rows] = x @ into_logit + gelu(units) @ output + logit_of_same
        return logits


def gelu(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Gaussian error linear unit in the form with tanh (Hendrycks and Gimpel, 2016)."""
    # NumPy raises to powers forty times as slowly as it multiplies, and new arrays cost more than the arithmetic.
    found = x * x
    found *= np.float32(np.sqrt(2 / np.pi) * 0.044715)
    found += np.float32(np.sqrt(2 / np.pi))
    found *= x
    np.tanh(found, out=found)
    found += 1
    found *= x
    found *= np.float32(0.5)
    return found


BLOCK = 512
"""Orders valued at a time, so that memory stays small."""
NEGLIGIBLE = 1e-7
"""Hypotheses less probable than this are left out: thousands of them together change no value by 0.001."""
LARGEST_EXPONENT = 500.0


@dataclass(frozen=True)
class Weights:
    """Weights of a value, which is sigmoid(slope * utility + offset).

    Attributes:
        temperature: Softmax temperature of the probabilities of the hypotheses.
        share: Weight of the expected share of the evidence, beside 1 for the probability that it is complete.
    """

    temperature: float = 1.0
    share: float = 1.0
    slope: float = 5.0
    offset: float = -3.0


class EvidenceScorer(ChunkScorer):
    """Values orders in [0, 1]: higher with more of the evidence; length costs nothing.

    `tokens`, `[n]`, are those of each candidate: an order without any is worth 0.

    Attributes:
        answerable: Probability that the evidence is among the candidates.
        probabilities: Of the sets that it could be, if it is, those that are negligible left out.
        shares: Expected share of the evidence that each candidate is, if it is among them, `[n]`.
    """

    order_matters = False

    def __init__(
        self,
        hypotheses: Hypotheses,
        tokens: FloatArray,
        weights: Weights,
        truncated: NDArray[np.bool_],
    ) -> None:
        super().__init__(truncated)
        self._weights = weights
        self._blanks = frozenset(np.flatnonzero(tokens == 0).tolist())
        # The empty hypothesis stands first. It says how much any value is worth, and nothing about which is best.
        probabilities = hypotheses.probabilities(weights.temperature)
        self.answerable = float(probabilities[1:].sum())
        probabilities = probabilities[1:] / max(self.answerable, 1e-300)
        kept = probabilities >= NEGLIGIBLE
        self.probabilities: FloatArray = probabilities[kept]
        self._members = hypotheses.members[1:][kept].astype(np.float32)
        self._sizes = self._members.sum(axis=1)
        self.shares: FloatArray = (self.probabilities / self._sizes) @ self._members.astype(np.float64)

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Return one value per order, `[len(orders)]`."""
        self.count_truncated(orders)
        blocks = [self._utilities(orders[row : row + BLOCK]) for row in range(0, len(orders), BLOCK)]
        utilities = np.concatenate([np.zeros(0), *blocks])
        exponents = self._weights.slope * self.answerable * utilities + self._weights.offset
        values = np.asarray(1 / (1 + np.exp(-np.clip(exponents, -LARGEST_EXPONENT, LARGEST_EXPONENT))))
        if self._blanks:
            values[[self._blanks.issuperset(order) for order in orders]] = 0.0
        return values

    def complete(self, orders: Sequence[Order]) -> FloatArray:
        """Return the probability that each order holds all of the evidence if the candidates do, `[len(orders)]`."""
        # How many of its members each order holds: whole numbers, so BLAS is exact.
        held = self._members @ self._chosen(orders).T.astype(np.float32) == self._sizes[:, None]
        # Not by BLAS, here and below: it sums some rows in another sequence, and equal sets would differ by a bit.
        return np.asarray(np.einsum("n,nb->b", self.probabilities, held))

    def _utilities(self, orders: Sequence[Order]) -> FloatArray:
        shares = np.einsum("bn,n->b", self._chosen(orders), self._weights.share * self.shares)
        return np.asarray(self.complete(orders) + shares)

    def _chosen(self, orders: Sequence[Order]) -> FloatArray:
        chosen = np.zeros((len(orders), len(self.shares)))
        rows = np.repeat(np.arange(len(orders)), [len(order) for order in orders])
        chosen[rows, np.fromiter(chain.from_iterable(orders), dtype=np.intp, count=len(rows))] = 1.0
        return chosen


@dataclass(frozen=True, slots=True)
class EvidenceParts:
    """The trained parts of an evidence reranker.

    Attributes:
        max_size: The most chunks that the evidence may be spread over.
        rarity: Inverse document frequency of each token in the training data, `[VOCABULARY]`.
    """

    name: str
    max_size: int
    network: Ensemble
    rarity: FloatArray
    weights: Weights

    @classmethod
    def load(cls, folder: str | Path) -> EvidenceParts:
        """Read an adapter; `ModelError` if it is missing, damaged, of another form, or made by another release."""
        adapter = load_adapter(folder, FORM)
        settings, tensors = adapter.settings, adapter.tensors
        try:
            parts = cls(
                name=adapter.name,
                max_size=settings["max_size"],
                network=Ensemble.from_tensors(tensors),
                rarity=np.asarray(tensors["rarity"], dtype=np.float64),
                weights=Weights(**settings["weights"]),
            )
            sizes = {"mean": len(parts.network.mean), "rarity": len(parts.rarity)}
        except (KeyError, TypeError) as error:
            raise ModelError(f"{folder} lacks {error}; copy the adapter again or train it again") from error
        if sizes != {"mean": NUM_FEATURES, "rarity": VOCABULARY}:
            raise ModelError(f"{folder} wants other features than this release makes ({sizes}); train it again")
        return parts

    def settings(self) -> dict[str, Any]:
        """Return what an adapter's configuration holds."""
        return {"max_size": self.max_size, "weights": asdict(self.weights)}

    def tensors(self) -> Mapping[str, NDArray[Any]]:
        """Return what an adapter's weights file holds, in half precision where that is precise enough."""
        exact = {"mean", "scale", "bias", "hidden_bias"}
        tensors = {one.name: getattr(self.network, one.name) for one in fields(Ensemble)}
        tensors["rarity"] = self.rarity
        return {name: value.astype(np.float32 if name in exact else np.float16) for name, value in tensors.items()}

    def scorer(self, question: PassageFeatures, passages: Sequence[PassageFeatures]) -> EvidenceScorer:
        """Weigh the hypotheses about candidates."""
        return EvidenceScorer(
            weigh(signals(question, passages, self.rarity), self.max_size, self.network),
            tokens=np.array([len(passage.ids) for passage in passages], dtype=np.float64),
            weights=self.weights,
            truncated=np.array([passage.truncated for passage in passages], dtype=bool),
        )


@dataclass(kw_only=True, eq=False)
class EvidenceReranker(EncoderPart):
    """Values combinations by how likely they are to hold the evidence for a question; see `corag.rerankers.evidence`.

    A value depends on all candidates, since hypotheses compete. Only single chunks are cut to a window. The values are
    probabilities, so they enter the search of `corag` as they are.

    Attributes:
        adapter: Used in place of the shipped one: its folder, or its parts.

    Raises:
        InputError: Another encoder is named.
        ModelError: The adapter is missing, damaged or of another form, or its parts do not go together.
    """

    max_tokens = MAX_TOKENS
    gives_probabilities = True

    adapter: str | Path | EvidenceParts | None = None

    def __post_init__(self) -> None:
        given = self.adapter
        self.parts = given if isinstance(given, EvidenceParts) else EvidenceParts.load(given or shipped_adapter(NAME))
        self.name = self.parts.name
        check_base(self.name, self.encoder)
        super().__post_init__()
        self._read = PassageReader(self._encoder)

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return the value of each text as if it were the only candidate, `[len(texts)]`."""
        question = read_question(self._encoder, query)
        passages = self._read([Chunk("text", text) for text in texts])
        scorers = [self.parts.scorer(question, [passage]) for passage in passages]
        return np.array([scorer([(0,)])[0] for scorer in scorers], dtype=np.float64)

    def scorer(self, query: str, chunks: Sequence[Chunk]) -> EvidenceScorer:
        """Return a scoring function over the hypotheses about these chunks, weighed here once."""
        return self.parts.scorer(read_question(self._encoder, query), self._read(chunks))

"""`minilm-evidence`: the probability that a combination of passages, or of sentences, holds the evidence.

A linear floor, and small networks that learn what it leaves, give every hypothesis its probability; from these follow
the values of orders. Letters: N hypotheses, n candidates, H hidden units, M members of an ensemble, F features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag.errors import ModelError
from corag.models.encoders import MAX_TOKENS, EncoderPart
from corag.models.engine import Float32
from corag.models.trained import load_adapter, shipped_adapter
from corag.rerankers.evidence.hypotheses import NUM_FEATURES, Hypotheses, weigh
from corag.rerankers.evidence.signals import PassageFeatures, PassageReader, read_question, signals
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
        ModelError: The adapter is missing, damaged or of another form, or its parts do not go together.
    """

    max_tokens = MAX_TOKENS
    gives_probabilities = True

    adapter: str | Path | EvidenceParts | None = None

    def __post_init__(self) -> None:
        given = self.adapter
        self.parts = given if isinstance(given, EvidenceParts) else EvidenceParts.load(given or shipped_adapter(NAME))
        self.name = self.parts.name
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

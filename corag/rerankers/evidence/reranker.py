"""`minilm-evidence`: the probability that a combination of passages, or of sentences, holds the evidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag.errors import ModelError
from corag.models.encoders import EncoderPart
from corag.models.engine import Float32
from corag.models.minilm import MAX_TOKENS
from corag.models.trained import load_adapter, shipped_adapter
from corag.rerankers.evidence.hypotheses import NUM_FEATURES, weigh
from corag.rerankers.evidence.network import Ensemble
from corag.rerankers.evidence.passages import PassageFeatures, PassageReader
from corag.rerankers.evidence.signals import PAIRS, SINGLES, QuestionFeatures, Signals, read_question, signals
from corag.rerankers.evidence.values import EvidenceScorer, Weights
from corag.types import Chunk, FloatArray

NAME = "minilm-evidence"
FORM = "evidence-sets"
VOCABULARY = 30522
"""Tokens that MiniLM knows."""


@dataclass(frozen=True, slots=True)
class EvidenceParts:
    """The trained parts of an evidence reranker.

    Attributes:
        max_size: The most chunks that the evidence may be spread over.
        rarity: Inverse document frequency of each token in the training data, `[VOCABULARY]`.
        reading_order: How much each figure of a chunk, then of a pair, says that the first chunk is to be read before
            the second, `[len(SINGLES) + len(PAIRS)]`.
    """

    name: str
    max_size: int
    network: Ensemble
    rarity: FloatArray
    reading_order: FloatArray
    weights: Weights

    @classmethod
    def load(cls, folder: str | Path) -> EvidenceParts:
        """Read an adapter; `ModelError` if it is missing, damaged, of another form, or made by another release."""
        adapter = load_adapter(folder, FORM)
        settings, tensors = adapter.config.settings, adapter.tensors
        try:
            parts = cls(
                name=adapter.config.name,
                max_size=settings["max_size"],
                network=Ensemble.from_tensors(tensors),
                rarity=np.asarray(tensors["rarity"], dtype=np.float64),
                reading_order=np.asarray(tensors["reading_order"], dtype=np.float64),
                weights=Weights(**settings["weights"]),
            )
            sizes = {"mean": len(parts.network.mean), "rarity": len(parts.rarity), "order": len(parts.reading_order)}
        except (KeyError, TypeError) as error:
            raise ModelError(f"{folder} lacks {error}; copy the adapter again or train it again") from error
        if sizes != {"mean": NUM_FEATURES, "rarity": VOCABULARY, "order": len(SINGLES) + len(PAIRS)}:
            raise ModelError(f"{folder} wants other features than this release makes ({sizes}); train it again")
        return parts

    def settings(self) -> dict[str, Any]:
        """Return what an adapter's configuration holds."""
        return {"max_size": self.max_size, "weights": asdict(self.weights)}

    def tensors(self) -> Mapping[str, NDArray[Any]]:
        """Return what an adapter's weights file holds, in half precision where that is precise enough."""
        exact = {"mean", "scale"}
        tensors = {name: getattr(self.network, name) for name in Ensemble.__slots__}
        tensors |= {"rarity": self.rarity, "reading_order": self.reading_order}
        return {name: value.astype(np.float32 if name in exact else np.float16) for name, value in tensors.items()}

    def scorer(
        self,
        question: QuestionFeatures,
        passages: Sequence[PassageFeatures],
        chunks: Sequence[Chunk] = (),
        sources: Sequence[PassageFeatures] = (),
        logits: Callable[[Float32], FloatArray] | None = None,
    ) -> EvidenceScorer:
        """Weigh the hypotheses about candidates, given as to `signals`.

        `logits` is the network where it runs elsewhere, see `Ensemble.on`.
        """
        found = signals(question, passages, chunks, sources)
        return EvidenceScorer(
            weigh(found, self.max_size, logits or self.network),
            tokens=np.array([len(passage.ids) for passage in passages], dtype=np.float64),
            before=reading_order(found, self.reading_order),
            weights=self.weights,
            truncated=np.array([passage.truncated for passage in passages], dtype=bool),
        )


def reading_order(found: Signals, weights: FloatArray) -> FloatArray:
    """Return how surely each chunk is to be read before each other, in [-1, 1] and antisymmetric, `[n, n]`."""
    of_chunks = found.singles @ weights[: len(SINGLES)]
    of_pairs = found.pairs @ weights[len(SINGLES) :]
    return np.asarray(np.tanh((of_chunks[:, None] - of_chunks[None] + of_pairs - of_pairs.T) / 2))


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
        self._logits = self.parts.network.on(self._placement().device)
        super().__post_init__()
        self._read = PassageReader(self._encoder)

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return the value of each text as if it were the only candidate, `[len(texts)]`."""
        question = read_question(self._encoder, query, self.parts.rarity)
        scorers = [self.parts.scorer(question, [passage], logits=self._logits) for passage in self._read(texts)]
        return np.array([scorer([(0,)])[0] for scorer in scorers], dtype=np.float64)

    def scorer(self, query: str, chunks: Sequence[Chunk]) -> EvidenceScorer:
        """Return a scoring function over the hypotheses about these chunks, weighed here once."""
        question = read_question(self._encoder, query, self.parts.rarity)
        passages, sources = self._read.with_sources(chunks)
        return self.parts.scorer(question, passages, chunks, sources, self._logits)

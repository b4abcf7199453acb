"""`minilm-multihop`, `minilm-factoid`, `minilm-longform`, `minilm-sentence`: one form, four adapters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path

import numpy as np

import search
from corag.models.cached import room
from corag.models.minilm import MAX_TOKENS, TextEncoder, encoder_at
from corag.models.runtime import Backend, Precision, place
from corag.models.trained import shipped_adapter
from corag.naming import Part
from corag.rerankers.evidence.parts import EvidenceParts
from corag.rerankers.evidence.passages import PassageReader
from corag.rerankers.evidence.places import places
from corag.rerankers.evidence.signals import read_question
from corag.rerankers.evidence.values import EvidenceScorer
from corag.text.units import UnitChunk
from corag.types import Chunk, FloatArray


class EvidenceReranker(Part):
    """Values combinations by how likely they hold the evidence of a question; see `corag.rerankers.evidence`.

    A value depends on all candidates, since hypotheses compete: there is no `identity` by which to keep values.

    Args:
        shipped: Name of an adapter that ships with the project.
        adapter: Another adapter to use: its folder, or its parts.
        backend: `auto`, `openvino` or `torch`; see `corag.models.runtime`, as for the next.
        precision: `fp32`, `bf16` or `fp16`.
        device: `cpu`, `cuda`, `cuda:N` or `mps`.
        cache_mb: Megabytes of passages that are kept for later queries (600 KB a chunk with its sentences), 0 keeps
            none; by default what `corag.runtime` lets all parts keep together.
        encoder: Used in place of the encoder that backend and precision select.

    Attributes:
        max_tokens: The window *of one chunk*; combinations are never cut.
        gives_probabilities: Its values are probabilities, so they enter the search of `corag` as they are.
        search_policy: The default search policy of `corag` with this reranker. Values that cost microseconds are
            cheaper to compute than to predict with a surrogate: on 70 HotpotQA questions at 384 tokens `beam` reaches a
            utility of 1.724 in 18 ms, `bayesian` 1.691 in 38 ms, `paper` 1.715 in 19 ms.

    Raises:
        ModelError: The adapter is missing, damaged or of another form, or its parts do not go together.
    """

    max_tokens = MAX_TOKENS
    gives_probabilities = True
    search_policy: search.Policy = "beam"

    def __init__(
        self,
        shipped: str = "minilm-multihop",
        *,
        adapter: str | Path | EvidenceParts | None = None,
        backend: Backend = "auto",
        precision: Precision | None = None,
        device: str | None = None,
        cache_mb: float | None = None,
        encoder: TextEncoder | None = None,
    ) -> None:
        if not isinstance(adapter, EvidenceParts):
            adapter = EvidenceParts.load(adapter or shipped_adapter(shipped))
        self.parts = adapter
        self.name = self.parts.name
        self._place = place("reranker", backend=backend, precision=precision, device=device)
        self._logits = self.parts.network.on(self._place.device)
        self._given_encoder = encoder
        self._room = room(cache_mb)

    @cached_property
    def encoder(self) -> TextEncoder:
        """The encoder, loaded when first used."""
        return self._given_encoder or encoder_at(self._place)

    @cached_property
    def _read(self) -> PassageReader:
        return PassageReader(self.encoder, self._room)

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return the value of each text as if it were the only candidate, `[len(texts)]`."""
        question = read_question(self.encoder, query, self.parts.rarity)
        scorers = [self.parts.scorer(question, [passage], self._logits) for passage in self._read(texts)]
        return np.array([scorer([(0,)])[0] for scorer in scorers], dtype=np.float64)

    def scorer(self, query: str, chunks: Sequence[Chunk]) -> EvidenceScorer:
        """Return a scoring function over the hypotheses about these chunks, weighed here once."""
        question = read_question(self.encoder, query, self.parts.rarity)
        if not self.parts.knows_places or not any(isinstance(chunk, UnitChunk) for chunk in chunks):
            return self.parts.scorer(question, self._read.of_chunks(chunks), self._logits)
        passages, sources = self._read.with_sources(chunks)
        return self.parts.scorer(question, passages, self._logits, places(question, chunks, passages, sources))


minilm_multihop = partial(EvidenceReranker, "minilm-multihop")
"""For questions whose evidence is spread over several passages."""
minilm_factoid = partial(EvidenceReranker, "minilm-factoid")
"""For questions that one passage answers in a few words."""
minilm_longform = partial(EvidenceReranker, "minilm-longform")
"""For questions that want an explanation."""
minilm_sentence = partial(EvidenceReranker, "minilm-sentence")
"""For sentences: what supports an answer may be several of one passage, or of several."""

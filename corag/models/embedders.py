"""Embedders: texts to unit vectors, each text once. Heavy libraries are imported when an embedder is built."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.configuration import spelling
from corag.errors import InputError, ModelError
from corag.memory import LRU
from corag.models.checkpoint import BGE_M3, LoadedModel
from corag.models.encoders import (
    CachedEncoder,
    EncoderPart,
    GivenEncoder,
    TextEncoder,
    cache_capacity,
    minilm_encoder,
)
from corag.models.engine import Float32, Rows, run_packed
from corag.models.runtime import current, record_use, use_runtime
from corag.registry import EMBEDDERS
from corag.text.tokens import estimated_tokens
from corag.types import Embedder, FloatArray

_ROUNDING = 0.01
"""How far from 1 the length of a vector in half precision may be."""


def vectors_by(
    embedder: Embedder, texts: Sequence[str], *, unit: bool = False, query: bool = False
) -> NDArray[np.float32]:
    """Return the vectors of texts, `[len(texts), dimension]`; with `unit`, their lengths must be 1.

    With `query` the texts are questions, which an embedder may embed otherwise: by its method `embed_queries`.

    Raises:
        ModelError: The embedder does not return that many finite vectors of its dimension.
    """
    shape = (len(texts), embedder.dimension)
    if not texts:
        return np.zeros(shape, dtype=np.float32)
    try:
        embed = getattr(embedder, "embed_queries", embedder.embed) if query else embedder.embed
        vectors = np.asarray(embed(texts), dtype=np.float32)
        got = f"shape {vectors.shape}"
    except (TypeError, ValueError) as error:  # rows of unequal length, or no numbers
        vectors, got = np.zeros(0, dtype=np.float32), f"no array of numbers ({error})"
    if vectors.shape == shape:
        lengths = np.linalg.norm(vectors, axis=1)
        bad = np.flatnonzero(~np.isfinite(lengths) | (unit & (np.abs(lengths - 1) >= _ROUNDING)))
        if not len(bad):
            return vectors
        got = f"length {lengths[bad[0]]:g} for {texts[bad[0]]!r:.80}"
    raise ModelError(
        f"embedder {embedder.name!r} must return finite unit vectors of shape {shape}, got {got}; check the model, or "
        "normalise its vectors"
    )


class CachedEmbedder:
    """An embedder that embeds each text once while its vector is in the cache; one given by name is built when used.

    With none given, it is MiniLM at the precision of its rerankers, whose states of texts it shares: for texts that
    are read and not stored.
    """

    def __init__(self, embedder: str | Embedder | None = None) -> None:
        # Anything that is neither a name nor an embedder is refused here.
        self._given = embedder if isinstance(embedder, str | None) else EMBEDDERS.make(embedder)
        self._runtime = current()
        self._vectors: LRU[tuple[str, bool], FloatArray] = LRU(cache_capacity())

    @cached_property
    def embedder(self) -> Embedder:
        """The embedder itself."""
        with use_runtime(self._runtime):
            if self._given is not None:
                return EMBEDDERS.make(self._given)
            return EMBEDDERS.make("minilm", defaults={"encoder": CachedEncoder(minilm_encoder(role="reranker"))})

    def __str__(self) -> str:
        return "minilm" if self._given is None else spelling(self._given)

    @property
    def name(self) -> str:
        """The embedder's name."""
        return self.embedder.name

    @property
    def dimension(self) -> int:
        """Numbers of a vector."""
        return self.embedder.dimension

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return unit vectors, `[len(texts), dimension]`."""
        return self.vectors(texts).astype(np.float32)

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return unit vectors of questions, `[len(texts), dimension]`."""
        return self.vectors(texts, query=True).astype(np.float32)

    def vectors(self, texts: Sequence[str], *, query: bool = False) -> FloatArray:
        """Return the same unit vectors in double precision, `[len(texts), dimension]`."""

        def embed(missing: Sequence[tuple[str, bool]]) -> list[FloatArray]:
            vectors = vectors_by(self.embedder, [text for text, _ in missing], query=query)
            # Of its own each, or one that is kept would keep all of its batch.
            return [row.copy() for row in vectors.astype(np.float64)]

        found = self._vectors.get_many([(text, query) for text in texts], embed)
        return np.array(found).reshape(len(texts), self.dimension)


@dataclass(kw_only=True, eq=False)
class EncoderEmbedder(EncoderPart):
    """Unit vectors by an encoder that ships; texts are cut to its window."""

    role = "embedder"

    def __post_init__(self) -> None:
        # Whoever wants vectors again keeps them, which takes a thousandth of the memory of states.
        given = self.encoder
        self._encoder = given if isinstance(given, TextEncoder) else self._named_encoder()
        self.dimension = self._encoder.dimension

    def embed(self, texts: Sequence[str]) -> Float32:
        """Return unit vectors of texts, `[len(texts), dimension]`."""
        return self._encoder.vectors(texts)

    def embed_queries(self, texts: Sequence[str]) -> Float32:
        """Return unit vectors of questions, `[len(texts), dimension]`; see `TextEncoder.question` for long ones."""
        vectors = self._encoder.vectors(texts, query=True)
        for row, ids in enumerate(self._encoder.whole_ids(texts)):
            if len(ids) > self._encoder.max_tokens:
                vectors[row] = self._encoder.question(texts[row]).vector
        return vectors


class MiniLMEmbedder(EncoderEmbedder):
    """all-MiniLM-L6-v2 from its package: offline, 384 dimensions, weights checked against their hash."""

    name = "minilm"

    def __post_init__(self) -> None:
        super().__post_init__()
        if (given := self._encoder.model_name) != "minilm":
            # An index keeps the name, by which questions would be embedded by MiniLM.
            raise InputError(f"embedder 'minilm' does not embed by {given!r}; name the embedder that does, such as e5")


@dataclass(kw_only=True, eq=False)
class E5Embedder(EncoderEmbedder):
    """multilingual-e5-small from its package: offline, 100 languages, 384 dimensions, its file checked by its hash."""

    name = "e5"

    encoder: GivenEncoder = field(default="e5", init=False)


class SentenceTransformerEmbedder(LoadedModel):
    """Any sentence-transformers model."""

    kind = "SentenceTransformer"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.name = str(self.model)
        self.dimension = int(self._model.get_embedding_dimension())
        self.max_tokens = self._model.max_seq_length = int(self._model.max_seq_length or 512)

    def embed(self, texts: Sequence[str]) -> Float32:
        """Return unit vectors, `[len(texts), dimension]`; longer texts than the model's window are cut."""
        return self._embed(texts, self._model.encode_document)

    def embed_queries(self, texts: Sequence[str]) -> Float32:
        """Return unit vectors of questions, with the model's prompt for them, if it has one."""
        return self._embed(texts, self._model.encode_query)

    def _embed(self, texts: Sequence[str], encode: Callable[..., Any]) -> Float32:
        record_use(self.name, self.placement)

        def run(rows: Rows) -> Float32:
            vectors = encode(
                [texts[row] for row in rows],
                batch_size=len(rows),
                normalize_embeddings=True,
                show_progress_bar=False,
                convert_to_tensor=True,
            )
            return np.asarray(vectors.float().cpu().numpy())

        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        lengths = [min(estimated_tokens(text), self.max_tokens) for text in texts]
        for rows, of_batch in run_packed(run, lengths, self.placement.batch_tokens):
            vectors[rows] = of_batch
        return vectors


bge_m3 = partial(SentenceTransformerEmbedder, model=BGE_M3)
"""BAAI/bge-m3, dense vectors: the query embedding of the CORAG paper. They are the first states of the encoder,
normalised (Chen et al. 2024, M3-Embedding, section 3.2)."""

"""Encoders by name, encoders and embedders that run each text once, and the parts that use them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from common.configuration import spelling
from corag.errors import ModelError
from corag.memory import LRU, Capacity, megabytes, shared_capacity
from corag.models.devices import Role
from corag.models.encoders import Encoded, Ids, TextEncoder, encoder_named
from corag.models.engine import Float32
from corag.models.minilm import DIMENSION, minilm_encoder
from corag.models.runtime import Backend, Placement, Precision, current, resolve_device, use_runtime
from corag.registry import EMBEDDERS, ENCODERS, Part
from corag.types import Embedder, FloatArray


def cache_capacity() -> Capacity:
    """Return what all parts that are built under these settings of `corag.runtime` share."""
    return shared_capacity(megabytes(current().cache_mb))


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


class CachedEncoder(TextEncoder):
    """An encoder that runs each text once: those that keep the same encoder's texts share them."""

    def __init__(self, encoder: TextEncoder) -> None:
        self.dimension, self.max_tokens = encoder.dimension, encoder.max_tokens
        self._encoder = encoder
        self._windows: LRU[tuple[str, int, bool], Encoded] = LRU(cache_capacity(), owner=encoder)

    def encoded(self, texts: Sequence[str], window: int = 0, *, query: bool = False) -> list[Encoded]:
        """See `TextEncoder.encoded`."""
        keys = [(text, window, query) for text in texts]
        return self._windows.get_many(
            keys,
            lambda missing: self._encoder.encoded([text for text, _, _ in missing], window, query=query),
        )

    def whole_ids(self, texts: Sequence[str]) -> list[Ids]:
        """See `TextEncoder.whole_ids`."""
        return self._encoder.whole_ids(texts)

    def sentence_embeddings(self, ids: Sequence[Ids], *, query: bool = False) -> Float32:
        """See `TextEncoder.sentence_embeddings`; these are not kept."""
        return self._encoder.sentence_embeddings(ids, query=query)


@dataclass(kw_only=True, eq=False)
class EncoderPart(Part):
    """A part that looks at the states of texts by an encoder.

    Attributes:
        encoder: `minilm`, `e5`, or the folder or hub name of a model; or an encoder, in place of the one that the other
            settings select.
        backend: `auto`, `openvino` or `torch`; see `corag.models.runtime`, as for the next.
        precision: `fp32`, `bf16` or `fp16`.
        device: `cpu`, `cuda`, `cuda:N` or `mps`.

    Raises:
        InputError: A setting does not exist, or not on this machine.
        MissingExtraError: The encoder's package or the backend is not installed.
    """

    role: ClassVar[Role] = "reranker"

    encoder: str | TextEncoder = "minilm"
    backend: Backend = "auto"
    precision: Precision | None = None
    device: str | None = None

    def __post_init__(self) -> None:
        given = self.encoder
        self._encoder = CachedEncoder(encoder_named(given, self._placement())) if isinstance(given, str) else given

    def _placement(self) -> Placement:
        # Models of users run in PyTorch.
        is_user_model = isinstance(self.encoder, str) and self.encoder not in ENCODERS
        backend = "torch" if self.backend == "auto" and is_user_model else self.backend
        return resolve_device(self.role, backend=backend, precision=self.precision, device=self.device)


@dataclass(kw_only=True, eq=False)
class EncoderEmbedder(EncoderPart):
    """Unit vectors by an encoder that ships; texts are cut to its window."""

    role = "embedder"
    dimension = DIMENSION

    def __post_init__(self) -> None:
        # Whoever wants vectors again keeps them, which takes a thousandth of the memory of states.
        given = self.encoder
        self._encoder = encoder_named(given, self._placement()) if isinstance(given, str) else given

    def embed(self, texts: Sequence[str]) -> Float32:
        """Return unit vectors of texts, `[len(texts), 384]`."""
        return self._encoder.vectors(texts)

    def embed_queries(self, texts: Sequence[str]) -> Float32:
        """Return unit vectors of questions, `[len(texts), 384]`; see `TextEncoder.question` for long ones."""
        vectors = [self._encoder.question(text).vector for text in texts]
        return np.array(vectors, dtype=np.float32).reshape(len(texts), self.dimension)


class MiniLMEmbedder(EncoderEmbedder):
    """all-MiniLM-L6-v2 from its package: offline, 384 dimensions, weights checked against their hash."""

    name = "minilm"


@dataclass(kw_only=True, eq=False)
class E5Embedder(EncoderEmbedder):
    """multilingual-e5-small from its package: offline, 100 languages, 384 dimensions, its file checked by its hash."""

    name = "e5"

    encoder: str | TextEncoder = field(default="e5", init=False)

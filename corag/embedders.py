"""Embedders: texts to unit vectors. Heavy libraries are imported when an embedder is built."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from corag import minilm
from corag.errors import ModelError
from corag.optional import require

Float32 = NDArray[np.float32]


class MiniLMEmbedder:
    """all-MiniLM-L6-v2 from its package: offline, 384 dimensions, weights checked against their hash.

    Args:
        backend: `auto`, `openvino` or `torch`; see `corag.minilm`.
    """

    dimension = minilm.DIMENSION

    def __init__(self, *, backend: minilm.Backend = "auto") -> None:
        self.name = "minilm"
        self._encoder = minilm.minilm_encoder(backend)

    def embed(self, texts: Sequence[str]) -> Float32:
        """Return unit vectors, `[len(texts), 384]`; texts are cut to the window of 510 tokens."""
        return self._encoder.sentence_embeddings(self._encoder.tokenize(texts).ids)


class SentenceTransformerEmbedder:
    """Any sentence-transformers model, by hub name or local folder.

    Args:
        model: Name or folder.
        device: `cpu`, `cuda`, ...; by default what sentence-transformers chooses.
        batch_size: Texts per batch.
        trust_remote_code: Whether code that comes with the model may run.
    """

    def __init__(
        self, *, model: str, device: str | None = None, batch_size: int = 32, trust_remote_code: bool = False
    ) -> None:
        library = require("sentence_transformers", "models")
        with _loading(model):
            self._model = library.SentenceTransformer(model, device=device, trust_remote_code=trust_remote_code)
        self.name = model
        self.dimension = int(self._model.get_embedding_dimension())
        self._batch_size = batch_size

    def embed(self, texts: Sequence[str]) -> Float32:
        """Return unit vectors, `[len(texts), dimension]`."""
        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        vectors = self._model.encode(
            list(texts), batch_size=self._batch_size, normalize_embeddings=True, show_progress_bar=False
        )
        return np.asarray(vectors, dtype=np.float32)


class BgeM3Embedder:
    """BAAI/bge-m3, dense vectors, through FlagEmbedding: the query embedding of the CORAG paper.

    Args:
        model: Hub name, or a local folder with the same architecture.
        device: `cpu`, `cuda:0`, ...; by default what FlagEmbedding chooses.
        half: fp16 weights; only where the device computes in fp16.
        batch_size: Texts per batch.
        max_tokens: Longer texts are cut; the model's limit is 8192.
    """

    def __init__(
        self,
        *,
        model: str = "BAAI/bge-m3",
        device: str | None = None,
        half: bool = False,
        batch_size: int = 16,
        max_tokens: int = 8192,
    ) -> None:
        library = require("FlagEmbedding", "bge")
        with _loading(model):
            self._model: Any = library.BGEM3FlagModel(
                model,
                use_fp16=half,
                devices=device,
                batch_size=batch_size,
                query_max_length=max_tokens,
                passage_max_length=max_tokens,
                normalize_embeddings=True,
            )
        self.name = model
        self.dimension = int(self._model.model.model.config.hidden_size)

    def embed(self, texts: Sequence[str]) -> Float32:
        """Return unit vectors, `[len(texts), dimension]` (1024 for BAAI/bge-m3)."""
        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        return cast(Float32, np.asarray(self._model.encode(list(texts))["dense_vecs"], dtype=np.float32))


@contextmanager
def _loading(model: str) -> Iterator[None]:
    """Turn what the libraries raise for missing and damaged models into one error."""
    try:
        yield
    except (OSError, ValueError, require("safetensors", "models").SafetensorError) as error:
        raise ModelError(
            f"the model {model!r} cannot be loaded: {error}. Give a local folder, a name that exists on the "
            "hub with a network at hand, or 'minilm', which needs no download"
        ) from error

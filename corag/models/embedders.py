"""Embedders: texts to unit vectors. Heavy libraries are imported when an embedder is built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from corag.errors import InputError, ModelError
from corag.models import minilm
from corag.models.engine.backends import Backend, Precision, resolve_backend
from corag.models.engine.checkpoint import Checkpoint
from corag.models.engine.engine import Float32
from corag.models.known import BGE_M3, announce
from corag.naming import Part
from corag.optional import require
from corag.text.tokens import encode


class MiniLMEmbedder(Part):
    """all-MiniLM-L6-v2 from its package: offline, 384 dimensions, weights checked against their hash.

    Args:
        backend: `auto`, `openvino` or `torch`; see `corag.models.minilm`.
        encoder: Stands for the encoder of the backend.
    """

    dimension = minilm.DIMENSION

    def __init__(self, *, backend: Backend = "auto", encoder: minilm.TextEncoder | None = None) -> None:
        self.name = "minilm"
        self._encoder = encoder or minilm.minilm_encoder(backend)

    def embed(self, texts: Sequence[str]) -> Float32:
        """Return unit vectors, `[len(texts), 384]`; texts are cut to the window of 510 tokens."""
        return self._encoder.sentence_embeddings(self._encoder.tokenize(texts).ids)


class SentenceTransformerEmbedder(Part):
    """Any sentence-transformers model, by hub name or local folder.

    `device` is by default what sentence-transformers chooses. `trust_remote_code` lets code that comes with the model
    run.
    """

    def __init__(
        self, *, model: str, device: str | None = None, batch_size: int = 32, trust_remote_code: bool = False
    ) -> None:
        library = require("sentence_transformers", "models")
        try:
            self._model = library.SentenceTransformer(model, device=device, trust_remote_code=trust_remote_code)
        except (OSError, ValueError, require("safetensors", "models").SafetensorError) as error:
            raise ModelError(
                f"the model {model!r} cannot be loaded: {error}. Give a local folder (hf download NAME --local-dir "
                "FOLDER makes one where there is a network), a name that exists on the hub with a network at hand, or "
                "'minilm', which needs no download"
            ) from error
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


class BgeM3Embedder(Part):
    """BAAI/bge-m3, dense vectors: the query embedding of the CORAG paper.

    The vector of a text is the first state of the encoder, normalised (Chen et al. 2024, M3-Embedding, section 3.2).

    Args:
        model: Hub name, or a local folder with the same architecture.
        backend: `auto`, `openvino` or `torch`; see `corag.models.engine.backends`.
        precision: `fp32` or `bf16`.
        device: `cpu`, `cuda` or `cuda:N`.
        max_tokens: Longer texts are cut; by default, and at most, what tokenizer and model allow (8192).

    Attributes:
        card: The model's window and licence.

    Raises:
        InputError: A setting does not exist, or not on this machine.
        MissingExtraError: The backend is not installed.
        ModelError: The model is missing, damaged, or no such model.
    """

    def __init__(
        self,
        *,
        model: str | Path = BGE_M3.name,
        backend: Backend = "auto",
        precision: Precision = "fp32",
        device: str = "cpu",
        max_tokens: int | None = None,
    ) -> None:
        runs_on = resolve_backend(backend, device)
        checkpoint = Checkpoint(model, task="texts", weights_revision=BGE_M3.weights_revision)
        window = min(checkpoint.window or BGE_M3.window_tokens, BGE_M3.window_tokens)
        if max_tokens is not None and not 2 < max_tokens <= window:
            raise InputError(f"max_tokens is {max_tokens}; the model {str(model)!r} takes 3 to {window}")
        self.name = str(model)
        self.dimension = checkpoint.width
        self.card = replace(BGE_M3, name=self.name, window_tokens=max_tokens or window)
        announce(self.card)
        self._tokenizer = checkpoint.tokenizer.backend_tokenizer
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(self.card.window_tokens)
        self._takes_types = "token_type_ids" in checkpoint.inputs
        self._engine = checkpoint.engine("bge-m3", runs_on, precision, device)

    def embed(self, texts: Sequence[str]) -> Float32:
        """Return unit vectors, `[len(texts), dimension]`.

        Raises:
            InputError: A text is not valid Unicode.
        """
        encodings = encode(self._tokenizer, texts, special_tokens=True)
        ids = [np.array(encoding.ids, dtype=np.int64) for encoding in encodings]
        types = [np.array(encoding.type_ids, dtype=np.int64) for encoding in encodings]
        vectors = np.zeros((len(ids), self.dimension), dtype=np.float32)
        for batch in self._engine.run(ids, types if self._takes_types else None):
            vectors[batch.rows] = minilm.unit(batch.output[:, 0])
        return vectors

"""Embedders: texts to unit vectors. Heavy libraries are imported when an embedder is built."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from corag.models import minilm
from corag.models.checkpoint import load_model
from corag.models.engine import Float32, Rows, run_packed
from corag.models.known import BGE_M3, announce
from corag.models.runtime import Backend, Precision, record_use, resolve_device
from corag.naming import Part
from corag.text.tokens import estimated_tokens


class MiniLMEmbedder(Part):
    """all-MiniLM-L6-v2 from its package: offline, 384 dimensions, weights checked against their hash.

    Args:
        backend: `auto`, `openvino` or `torch`; see `corag.models.runtime`, as for the next.
        precision: `fp32`, `bf16` or `fp16`.
        device: `cpu`, `cuda`, `cuda:N` or `mps`.
        encoder: Used in place of the encoder that the other settings select.
    """

    dimension = minilm.DIMENSION

    def __init__(
        self,
        *,
        backend: Backend = "auto",
        precision: Precision | None = None,
        device: str | None = None,
        encoder: minilm.TextEncoder | None = None,
    ) -> None:
        self.name = "minilm"
        self._encoder = encoder or minilm.minilm_encoder(backend, precision, device)

    def embed(self, texts: Sequence[str]) -> Float32:
        """Return unit vectors, `[len(texts), 384]`; texts are cut to the window of 510 tokens."""
        return self._encoder.sentence_embeddings(self._encoder.tokenize(texts).ids)


class SentenceTransformerEmbedder(Part):
    """Any sentence-transformers model.

    Args:
        model: Hub name, or a local folder.
        precision: `fp32`, `bf16` or `fp16`; see `corag.models.runtime`, as for the next.
        device: `cpu`, `cuda`, `cuda:N` or `mps`.
        trust_remote_code: Whether code that comes with the model may run.

    Raises:
        InputError: A setting does not exist, or not on this machine.
        MissingExtraError: sentence-transformers is not installed.
        ModelError: The model is missing, damaged, or no such model.
    """

    def __init__(
        self,
        *,
        model: str | Path,
        precision: Precision | None = None,
        device: str | None = None,
        trust_remote_code: bool | None = None,
    ) -> None:
        self._placement = resolve_device(
            "embedder",
            backend="torch",
            precision=precision,
            device=device,
            trust_remote_code=trust_remote_code,
        )
        self.name = str(model)
        is_m3 = self.name == BGE_M3.name
        self._model, _ = load_model(
            "SentenceTransformer", model, self._placement, weights_revision=BGE_M3.weights_revision if is_m3 else None
        )
        if is_m3:
            announce(BGE_M3)
        self.dimension = int(self._model.get_embedding_dimension())
        self.max_tokens = self._model.max_seq_length = int(self._model.max_seq_length or 512)

    def embed(self, texts: Sequence[str]) -> Float32:
        """Return unit vectors, `[len(texts), dimension]`; longer texts than the model's window are cut."""
        record_use(self.name, self._placement)

        def run(rows: Rows) -> Float32:
            vectors = self._model.encode(
                [texts[row] for row in rows],
                batch_size=len(rows),
                normalize_embeddings=True,
                show_progress_bar=False,
                convert_to_tensor=True,
            )
            return np.asarray(vectors.float().cpu().numpy())

        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        lengths = [min(estimated_tokens(text), self.max_tokens) for text in texts]
        for rows, of_batch in run_packed(run, lengths, self._placement.batch_tokens):
            vectors[rows] = of_batch
        return vectors


bge_m3 = partial(SentenceTransformerEmbedder, model=BGE_M3.name)
"""BAAI/bge-m3, dense vectors: the query embedding of the CORAG paper. They are the first states of the encoder,
normalised (Chen et al. 2024, M3-Embedding, section 3.2)."""

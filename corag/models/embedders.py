"""Embedders: texts to unit vectors. Heavy libraries are imported when an embedder is built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from corag.errors import InputError, ModelError
from corag.models import minilm
from corag.models.engine.checkpoint import HOW_TO_TRUST, Checkpoint
from corag.models.engine.engine import Float32, pack, quiet
from corag.models.engine.pytorch import DTYPES, on_device
from corag.models.engine.replicas import Job, Replicas, Rows
from corag.models.known import BGE_M3, announce
from corag.models.ran import ran
from corag.models.runtime import Backend, Place, Precision, place
from corag.naming import Part
from corag.optional import require
from corag.text.tokens import encode, estimated_tokens


class MiniLMEmbedder(Part):
    """all-MiniLM-L6-v2 from its package: offline, 384 dimensions, weights checked against their hash.

    Args:
        backend: `auto`, `openvino` or `torch`; see `corag.models.runtime`, as for the next.
        precision: `fp32`, `bf16` or `fp16`.
        device: `cpu`, `cuda`, `cuda:N`, `mps`, or several.
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
        device: `cpu`, `cuda`, `cuda:N`, `mps`, or several.
        batch_tokens: Maximum tokens of a batch, padding included, by an estimate from the bytes of its texts.
        trust_remote_code: Whether code that comes with the model may run.

    Raises:
        InputError: A setting does not exist, or not on this machine.
        MissingExtraError: sentence-transformers is not installed.
        ModelError: The model is missing, damaged, or no such model.
    """

    def __init__(
        self,
        *,
        model: str,
        precision: Precision | None = None,
        device: str | None = None,
        batch_tokens: int | None = None,
        trust_remote_code: bool | None = None,
    ) -> None:
        where = place(
            "embedder",
            backend="torch",
            precision=precision,
            device=device,
            batch_tokens=batch_tokens,
            trust_remote_code=trust_remote_code,
        )
        self.name = model
        models = [_sentence_transformer(model, where, device) for device in where.devices]
        self.dimension = int(models[0].get_embedding_dimension())
        self._replicas = Replicas(models, ran(model, where))
        self._batch_tokens = where.batch_tokens
        self._window = int(models[0].max_seq_length or 512)

    def embed(self, texts: Sequence[str]) -> Float32:
        """Return unit vectors, `[len(texts), dimension]`.

        Raises:
            ModelError: A single text does not fit the memory of its device.
        """
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        lengths = [min(estimated_tokens(text), self._window) for text in texts]

        def run(model: Any, rows: Rows) -> Float32:
            found = model.encode(
                [texts[row] for row in rows],
                batch_size=len(rows),
                normalize_embeddings=True,
                show_progress_bar=False,
                convert_to_tensor=True,
            )
            return cast(Float32, found.float().cpu().numpy())

        job = Job(run, lambda rows: len(rows) * max(lengths[row] for row in rows))
        for rows, found in self._replicas.run(pack(lengths, self._batch_tokens), job):
            vectors[rows] = found
        return vectors


def _sentence_transformer(model: str, where: Place, device: str) -> Any:
    library, torch = require("sentence_transformers", "models"), require("torch", "models")
    try:
        with quiet():
            loaded = library.SentenceTransformer(
                model,
                device="cpu",
                trust_remote_code=where.trust_remote_code,
                model_kwargs={"dtype": getattr(torch, DTYPES[where.precision])},
            )
    except (OSError, ValueError, require("safetensors", "models").SafetensorError) as error:
        remedy = (
            f"its own code has to run: if you trust it, {HOW_TO_TRUST}"
            if "trust_remote_code" in str(error)
            else "give a local folder (hf download NAME --local-dir FOLDER makes one where there is a network), a name "
            "that exists on the hub with a network at hand, or 'minilm', which needs no download"
        )
        raise ModelError(f"the model {model!r} cannot be loaded; {remedy}: {error}") from error
    return on_device(loaded, device, model)


class BgeM3Embedder(Part):
    """BAAI/bge-m3, dense vectors: the query embedding of the CORAG paper.

    The vector of a text is the first state of the encoder, normalised (Chen et al. 2024, M3-Embedding, section 3.2).

    Args:
        model: Hub name, or a local folder with the same architecture.
        backend: `auto`, `openvino` or `torch`; see `corag.models.runtime`, as for the next.
        precision: `fp32`, `bf16` or `fp16`.
        device: `cpu`, `cuda`, `cuda:N`, `mps`, or several.
        batch_tokens: Maximum tokens of a batch, padding included.
        trust_remote_code: Whether code that comes with the model may run.
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
        precision: Precision | None = None,
        device: str | None = None,
        batch_tokens: int | None = None,
        trust_remote_code: bool | None = None,
        max_tokens: int | None = None,
    ) -> None:
        where = place(
            "embedder",
            backend=backend,
            precision=precision,
            device=device,
            batch_tokens=batch_tokens,
            trust_remote_code=trust_remote_code,
        )
        checkpoint = Checkpoint(
            model,
            task="texts",
            trust_remote_code=where.trust_remote_code,
            weights_revision=BGE_M3.weights_revision,
        )
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
        self._engine = checkpoint.engine("bge-m3", checkpoint.place(where, backend))

    def embed(self, texts: Sequence[str]) -> Float32:
        """Return unit vectors, `[len(texts), dimension]`.

        Raises:
            InputError: A text is not valid Unicode.
        """
        encodings = encode(self._tokenizer, texts, special_tokens=True)
        ids = [np.array(encoding.ids, dtype=np.int64) for encoding in encodings]
        types = [np.array(encoding.type_ids, dtype=np.int64) for encoding in encodings]
        vectors = np.zeros((len(ids), self.dimension), dtype=np.float32)
        for batch in self._engine.run(ids, types if self._takes_types else None, reduction="first"):
            vectors[batch.rows] = minilm.unit(batch.output)
        return vectors

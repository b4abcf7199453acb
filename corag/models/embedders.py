"""Embedders: texts to unit vectors. Heavy libraries are imported when an embedder is built."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from corag.checks import check_count, check_text
from corag.errors import ModelError
from corag.models.checkpoint import BGE_M3, LoadedModel
from corag.models.encoders import unit
from corag.models.engine import Float32, Rows, run_packed
from corag.models.runtime import record_use
from corag.models.servers import OllamaServer, OpenAIServer, Server
from corag.text.tokens import estimated_tokens


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


@dataclass(kw_only=True, eq=False)
class ServerEmbedder(Server):
    """An embedding model on a server; texts go there in requests of `batch`.

    Attributes:
        batch: Maximum texts of a request.
    """

    batch: int = 64

    def __post_init__(self) -> None:
        check_count("batch", self.batch, "typical: 16-256")
        super().__post_init__()

    @property
    def name(self) -> str:
        """Str with the model alone: the same model has the same vectors wherever it runs."""
        return f"{self.package}(model={self.model})"

    @cached_property
    def dimension(self) -> int:
        """Numbers of a vector; the server is asked for one the first time."""
        return int(self._vectors(["dimension"]).shape[1])

    @abstractmethod
    def _request(self, texts: list[str]) -> Sequence[Sequence[float]]:
        """Return the vectors of some texts in their order."""

    def embed(self, texts: Sequence[str]) -> Float32:
        """Return unit vectors, `[len(texts), dimension]`.

        Raises:
            InputError: A text is not valid Unicode.
            ModelError: The server does not answer, lacks the model, or refuses a text, such as one beyond the window.
        """
        blocks = [texts[start : start + self.batch] for start in range(0, len(texts), self.batch)]
        return np.concatenate([np.zeros((0, self.dimension), np.float32), *map(self._vectors, blocks)])

    def _vectors(self, texts: Sequence[str]) -> Float32:
        for text in texts:
            check_text("a text", text)
        try:
            # Servers refuse empty texts.
            vectors = np.asarray(self._request([text or " " for text in texts]), dtype=np.float32)
        except Exception as error:
            raise self._explained(error) from error
        if vectors.ndim != 2 or len(vectors) != len(texts) or not vectors.size:
            raise ModelError(f"{self.title} sent vectors of shape {vectors.shape} for {len(texts)} texts")
        if not np.isfinite(vectors).all():
            raise ModelError(f"{self.title} sent vectors with numbers that are not finite")
        return unit(vectors)


@dataclass(kw_only=True, eq=False)
class OpenAIEmbedder(ServerEmbedder, OpenAIServer):
    """A model such as `text-embedding-3-large` of OpenAI, or of a server with its interface (`/v1/embeddings`).

    See `corag.models.servers.OpenAIServer` for the other settings.
    """

    def _request(self, texts: list[str]) -> Sequence[Sequence[float]]:
        reply = self._client.embeddings.create(model=self.model, input=texts, encoding_format="float")
        return [row.embedding for row in sorted(reply.data, key=lambda row: row.index)]


@dataclass(kw_only=True, eq=False)
class OllamaEmbedder(ServerEmbedder, OllamaServer):
    """A model such as `nomic-embed-text` of an Ollama server; see `corag.models.servers.OllamaServer` for settings."""

    def _request(self, texts: list[str]) -> Sequence[Sequence[float]]:
        return self._client.embed(self.model, texts).embeddings  # type: ignore[no-any-return]

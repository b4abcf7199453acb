"""`minilm-cross`: question and joined chunks read together, by an adapter on all-MiniLM-L6-v2.

Runs offline with the shipped adapter. The text of an order is its chunks joined, so chunks influence each other and
their order matters; each order takes a pass of the network.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from corag.checks import check_choice
from corag.errors import InputError, ModelError
from corag.models.engine import EncoderSource, Engine, Int64, load_engine
from corag.models.minilm import load_bert, weights_sha256
from corag.models.runtime import Backend, Placement, Precision, resolve_device
from corag.models.trained import Adapter, load_adapter, merge, shipped_adapter
from corag.naming import Part
from corag.rerankers.cross_encoder import LOWEST_LOGIT, Output
from corag.rerankers.window import WindowedScorer, WindowSpans
from corag.text.tokens import encode, load_tokenizer, model_folder
from corag.types import Chunk, FloatArray, Order

NAME = "minilm-cross"
FORM = "low-rank-relevance"
"""Format of its adapters: low-rank updates and whole tensors of a `SpanNetwork` with one output."""
WINDOW_TOKENS = 320
"""Tokens of question and text that the network sees at once, special tokens included."""
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
CLS, SEP, NUM_SPECIAL = 101, 102, 3


class MiniLMCross(Part):
    """The probability that a combination of chunks, in its order, is enough to answer; an empty text is worth 0.

    Args:
        adapter: The adapter's folder; by default the shipped one.
        output: `probability`; or `logit`, at least `LOWEST_LOGIT`, for which the paper's c and lambda are meant.
        backend: `auto`, `openvino` or `torch`; see `corag.models.runtime`, as for the next.
        precision: `fp32`, `bf16` or `fp16`.
        device: `cpu`, `cuda`, `cuda:N` or `mps`.

    Attributes:
        identity: Everything that values depend on besides question and texts.
        max_tokens: The window, `WINDOW_TOKENS`.

    Raises:
        InputError: A setting does not exist, or not on this machine.
        MissingExtraError: The encoder's package or the backend is not installed.
        ModelError: The adapter or the encoder is missing or damaged, or they do not match.
    """

    def __init__(
        self,
        *,
        adapter: str | Path | None = None,
        output: Output = "probability",
        backend: Backend = "auto",
        precision: Precision | None = None,
        device: str | None = None,
    ) -> None:
        check_choice("output", output, Output)
        self.name, self.output, self.max_tokens = NAME, output, WINDOW_TOKENS
        folder = shipped_adapter(NAME) if adapter is None else Path(adapter)
        loaded = load_adapter(folder, FORM)
        self._slope, self._offset = _calibration(loaded)
        placement = resolve_device("reranker", backend=backend, precision=precision, device=device)
        self._engine = _engine(folder, loaded.weights_sha256, placement, model_folder())
        self._tokenizer = load_tokenizer(model_folder() / "tokenizer.json")
        self.identity = f"{NAME} {loaded.sha256} {placement.values_depend_on} output={output}"

    @property
    def lowest(self) -> float:
        """The least value of a text, that of an empty one."""
        return LOWEST_LOGIT if self.output == "logit" else 0.0

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return the value of each text, cut to the window, `[len(texts)]`.

        Raises:
            InputError: The question leaves no room for a text.
        """
        question = self.question(query)
        capacity = capacity_beside(question)
        return self.values([(question, [ids[:capacity] for ids in self.tokens(texts)])])[0]

    def scorer(self, query: str, chunks: Sequence[Chunk]) -> MiniLMCrossScorer:
        """Return a scoring function over orders of chunks; see `score`."""
        return MiniLMCrossScorer(self, self.question(query), self.tokens([chunk.text for chunk in chunks]))

    def question(self, query: str) -> Int64:
        """Return the tokens of a question; `InputError` if no text fits beside it."""
        [ids] = self.tokens([query])
        if capacity_beside(ids) < 1:
            raise InputError(
                f"the question has {len(ids)} tokens, which leaves no room for a text in the reranker's window of "
                f"{self.max_tokens} tokens; shorten the question"
            )
        return ids

    def tokens(self, texts: Sequence[str]) -> list[Int64]:
        """Return the token ids of each text, uncut, without special tokens."""
        return [np.array(encoding.ids, dtype=np.int64) for encoding in encode(self._tokenizer, texts)]

    def values(self, requests: Sequence[tuple[Int64, Sequence[Int64]]]) -> list[FloatArray]:
        """Return for each question the value of each of its texts, which fit the window, in shared batches."""
        rows = [(question, text) for question, texts in requests for text in texts]
        logits = np.full(len(rows), -np.inf)
        filled = [number for number, (_, text) in enumerate(rows) if len(text)]
        pairs = [framed(*rows[number]) for number in filled]
        for batch, outputs in self._engine.run(*map(list, zip(*pairs, strict=True))) if pairs else ():
            logits[np.array(filled)[batch]] = self._slope * outputs[:, 0, 0].astype(np.float64) + self._offset
        # The logistic function, written so that no logit overflows.
        values = np.maximum(logits, LOWEST_LOGIT) if self.output == "logit" else 0.5 + 0.5 * np.tanh(0.5 * logits)
        return np.split(values, np.cumsum([len(texts) for _, texts in requests])[:-1])


class MiniLMCrossScorer(WindowedScorer):
    """Scores the joined texts of orders, whose tokens are those of their chunks one after the other."""

    def __init__(self, reranker: MiniLMCross, question: Int64, chunks: Sequence[Int64]) -> None:
        self.reranker = reranker
        self._question = question
        self._chunks = chunks
        super().__init__(capacity_beside(question))

    @staticmethod
    def score_jointly(requests: Sequence[tuple[MiniLMCrossScorer, Sequence[Order]]]) -> list[FloatArray]:
        """Return the values of each scorer's orders, run in shared batches."""
        given = [scorer._pieces(orders) for scorer, orders in requests]
        values = requests[0][0].reranker.values(
            [(scorer._question, texts) for (scorer, _), (texts, _) in zip(requests, given, strict=True)]
        )
        return [spans.pooled(of_rows) for (_, spans), of_rows in zip(given, values, strict=True)]

    def _pieces(self, orders: Sequence[Order]) -> tuple[list[Int64], WindowSpans]:
        empty = np.zeros(0, dtype=np.int64)
        texts = [np.concatenate([empty, *(self._chunks[index] for index in order)]) for order in orders]
        spans = self.spans(orders, list(map(len, texts)))
        return [texts[row][start:end] for row, start, end in spans], spans


def capacity_beside(question: Int64) -> int:
    """Return the most tokens of a text that fit the window beside a question."""
    return WINDOW_TOKENS - NUM_SPECIAL - len(question)


def framed(question: Int64, text: Int64) -> tuple[Int64, Int64]:
    """Return the tokens of `[CLS] question [SEP] text [SEP]` and the segment of each."""
    ids = np.concatenate([[CLS], question, [SEP], text, [SEP]])
    return ids, (np.arange(len(ids)) >= len(question) + 2).astype(np.int64)


def _calibration(adapter: Adapter) -> tuple[float, float]:
    """Return slope and offset of an adapter; `ModelError` if they are not numbers."""
    values = [adapter.config.settings.get(name) for name in ("slope", "offset")]
    if not all(isinstance(value, int | float) and math.isfinite(value) for value in values):
        raise ModelError(f"the adapter {adapter.config.name!r} has no slope and offset; train again")
    slope, offset = (float(value or 0) for value in values)
    return slope, offset


@lru_cache(maxsize=2)
def _engine(folder: Path, sha256: str, placement: Placement, base: Path) -> Engine:
    """Return the network of the adapter in a folder, whose weights have this hash, on the encoder in `base`."""
    parts = f"{weights_sha256()[:8]}-{sha256}"
    return load_engine(EncoderSource(NAME, parts, INPUTS, lambda: load_network(load_adapter(folder, FORM))), placement)


def load_network(adapter: Adapter) -> Any:
    """Return the encoder with an adapter's updates, as a PyTorch module in evaluation mode."""
    from corag.readers.span_network import SpanNetwork

    network = SpanNetwork(load_bert(), 1)
    merge(network, adapter.tensors)
    return network.eval()

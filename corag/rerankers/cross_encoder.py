"""`cross-encoder`: any transformers model that reads question and text together and gives one logit.

The text of an order is its chunks joined, so chunks influence each other and order matters. Question and chunks are
tokenised once; the pair for an order is put together from token ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from corag.engine.backends import Backend, Precision, batch_tokens, load_forward, resolve_backend
from corag.engine.batches import Int64
from corag.engine.checkpoint import Checkpoint
from corag.engine.engine import Engine
from corag.engine.pairs import PairTokenizer, Question
from corag.engine.source import Source
from corag.errors import InputError
from corag.rerankers.scorers import SEPARATOR
from corag.types import Chunk, FloatArray, Order


class CrossEncoder:
    """The model's logit as a probability, in [0, 1]; a text without any token is worth 0.

    Args:
        model: Folder, or name on the hub, of a sequence-classification model with one label.
        backend: `auto`, `openvino` or `torch`; see `corag.engine.backends`.
        precision: `fp32` or `bf16`.
        device: `cpu`, `cuda` or `cuda:N`.
        max_tokens: The window; by default, and at most, what tokenizer and model allow.
        trust_remote_code: Whether code that comes with the model may run.

    Attributes:
        max_tokens: The window: tokens of question and text together, special tokens included. A longer text is cut
            at its end, and counted; a question never is.
        identity: What values depend on besides question and texts; see `corag.rerankers.stored`.

    Raises:
        InputError: A setting does not exist, or not on this machine.
        MissingExtraError: The backend is not installed.
        ModelError: The model is missing, damaged, or no such model.
    """

    def __init__(
        self,
        *,
        model: str | Path,
        backend: Backend = "auto",
        precision: Precision = "fp32",
        device: str = "cpu",
        max_tokens: int | None = None,
        trust_remote_code: bool = False,
    ) -> None:
        self.name = "cross-encoder"
        self.backend = resolve_backend(backend, device)
        checkpoint = Checkpoint(model, trust_remote_code=trust_remote_code)
        self.max_tokens = _window(max_tokens, checkpoint.window, model)
        tokenizer = checkpoint.tokenizer
        self._tokenizer = PairTokenizer(tokenizer.backend_tokenizer, self.max_tokens)
        self.joins_ids = self._tokenizer.joins(SEPARATOR)
        self._takes_types = "token_type_ids" in checkpoint.inputs
        source = Source(self.name, checkpoint.sha256, checkpoint.inputs, checkpoint.load)
        forward = load_forward(source, self.backend, precision, device)
        self._engine = Engine(forward, tokenizer.pad_token_id or 0, batch_tokens(device))
        self.identity = (
            f"{self.name} {checkpoint.sha256} {self.backend} {precision} {device} max_tokens={self.max_tokens}"
        )

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return the value of each text, `[len(texts)]`.

        Raises:
            InputError: The question leaves no room for a text, or something is not valid Unicode.
        """
        return self.values(self._tokenizer.question(query), self.tokenize(texts))

    def scorer(self, query: str, chunks: Sequence[Chunk]) -> CrossEncoderScorer:
        """Return a scoring function that tokenises question and chunks once; see `score`."""
        return CrossEncoderScorer(self, self._tokenizer.question(query), [chunk.text for chunk in chunks])

    def tokenize(self, texts: Sequence[str]) -> list[Int64]:
        """Return the token ids of each text, uncut."""
        return self._tokenizer.tokenize(texts)

    def values(self, question: Question, texts: Sequence[Int64]) -> FloatArray:
        """Return the value of each text, given as token ids, `[len(texts)]`."""
        values = np.zeros(len(texts), dtype=np.float64)
        filled = np.array([row for row, text in enumerate(texts) if len(text)], dtype=np.intp)
        ids, types = question.pairs([texts[row] for row in filled])
        for batch in self._engine.run(ids, types if self._takes_types else None):
            # The logistic function, written so that no logit overflows.
            values[filled[batch.rows]] = 0.5 + 0.5 * np.tanh(0.5 * batch.output[:, 0].astype(np.float64))
        return values


class CrossEncoderScorer:
    """Scores orders from the token ids of their chunks.

    Where the tokenizer gives the joined text other ids than its chunks have side by side, the joined text of each
    order is tokenised instead: slower, equal values.

    Attributes:
        truncated_orders: Orders so far that did not fit the window.
    """

    order_matters = True

    def __init__(self, reranker: CrossEncoder, question: Question, texts: Sequence[str]) -> None:
        self._reranker = reranker
        self._question = question
        self._texts = texts
        self._ids = reranker.tokenize(texts) if reranker.joins_ids else []
        self.truncated_orders: set[Order] = set()

    @property
    def num_truncated(self) -> int:
        """Distinct orders so far that did not fit the window."""
        return len(self.truncated_orders)

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Return one value per order, `[len(orders)]`."""
        joined = self._joined(orders)
        room = self._question.room
        self.truncated_orders.update(order for ids, order in zip(joined, orders, strict=True) if len(ids) > room)
        return self._reranker.values(self._question, joined)

    def _joined(self, orders: Sequence[Order]) -> list[Int64]:
        """Return the token ids of the joined text of each order."""
        if self._reranker.joins_ids:
            return [np.concatenate([self._ids[index] for index in order]) for order in orders]
        return self._reranker.tokenize([SEPARATOR.join(self._texts[index] for index in order) for order in orders])


def _window(wanted: int | None, allowed: int | None, model: str | Path) -> int:
    if wanted is None and allowed is None:
        raise InputError(f"neither the model {str(model)!r} nor its tokenizer says how much it sees; give max_tokens")
    window = allowed if wanted is None else wanted
    assert window is not None
    if window < 1 or (allowed is not None and window > allowed):
        raise InputError(f"max_tokens is {window}; the model {str(model)!r} takes 1 to {allowed or 'any number'}")
    return window

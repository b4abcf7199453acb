"""`minilm-cross`: question and joined chunks read together, by an adapter on all-MiniLM-L6-v2.

Runs offline with the shipped adapter. The text of an order is its chunks joined, so chunks influence each other and
their order matters; each order takes a pass of the network.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from corag.checks import check_choice
from corag.errors import ModelError
from corag.models.cached import MiniLMPart
from corag.models.engine import Int64
from corag.models.minilm import pair_row
from corag.models.trained import Adapter, adapted_engine, load_adapter, shipped_adapter
from corag.rerankers.window import Output, WindowedQuestion, WindowedReranker, as_output, room_beside
from corag.text.tokens import encode, load_tokenizer, model_folder
from corag.types import FloatArray

NAME = "minilm-cross"
FORM = "low-rank-relevance"
"""Format of its adapters: low-rank updates and whole tensors of a `SpanNetwork` with one output."""
WINDOW_TOKENS = 512
"""Tokens of question and text that the network sees at once, special tokens included."""
NUM_SPECIAL = 3


@dataclass(kw_only=True, eq=False)
class MiniLMCross(MiniLMPart, WindowedReranker):
    """The probability that a combination of chunks, in its order, is enough to answer; an empty text is worth 0.

    Attributes:
        adapter: The adapter's folder; by default the shipped one.
        output: `probability`; or `logit`, at least `LOWEST_LOGIT`, for which the paper's c and lambda are meant.

    Raises:
        ModelError: The adapter or the encoder is missing or damaged, or they do not match.
    """

    name = NAME
    max_tokens = WINDOW_TOKENS

    adapter: str | Path | None = None
    output: Output = "probability"

    def __post_init__(self) -> None:
        check_choice("output", self.output, Output)
        loaded = load_adapter(self.adapter or shipped_adapter(NAME), FORM)
        self._slope, self._offset = _calibration(loaded)
        self._engine = adapted_engine(loaded, 1, self._placement())
        self._tokenizer = load_tokenizer(model_folder() / "tokenizer.json")

    def question(self, query: str) -> WindowedQuestion:
        """Return the tokens of a question; `InputError` if no text fits beside it."""
        [ids] = self.read([query])
        return WindowedQuestion(ids, room_beside(len(ids), self.max_tokens, NUM_SPECIAL))

    def read(self, texts: Sequence[str]) -> list[Int64]:
        """Return the token ids of each text, without special tokens."""
        return [np.array(encoding.ids, dtype=np.int64) for encoding in encode(self._tokenizer, texts)]

    def values(self, pairs: Sequence[tuple[Int64, Int64]]) -> FloatArray:
        """Return the value of each pair of question and text."""
        logits = np.full(len(pairs), -np.inf)
        filled = np.array([row for row, (_, text) in enumerate(pairs) if len(text)], dtype=np.intp)
        inputs = [pair_row(*pairs[row]) for row in filled]
        for rows, outputs in self._engine.run([ids for ids, _ in inputs], [segments for _, segments in inputs]):
            logits[filled[rows]] = self._slope * outputs[:, 0, 0].astype(np.float64) + self._offset
        return as_output(logits, self.output)


def _calibration(adapter: Adapter) -> tuple[float, float]:
    slope, offset = (adapter.config.settings.get(name) for name in ("slope", "offset"))
    if not all(isinstance(value, int | float) and math.isfinite(value) for value in (slope, offset)):
        raise ModelError(f"the adapter {adapter.config.name!r} has no slope and offset; train again")
    return slope, offset  # type: ignore[return-value]

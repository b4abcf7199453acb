"""`cross-encoder`: any model of sentence-transformers that reads question and text together and gives one score.

The text of an order is its chunks joined, so chunks influence each other and order matters.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from common.checks import check_choice, check_count
from corag.errors import InputError
from corag.memory import LRU
from corag.models.checkpoint import LoadedModel
from corag.models.encoders import cache_capacity
from corag.models.engine import Float32, Rows, run_packed
from corag.models.runtime import record_use
from corag.optional import require
from corag.rerankers.window import Output, WindowedQuestion, WindowedReranker, as_output, tokens_beside
from corag.text.documents import SEPARATOR
from corag.text.tokens import encode, estimated_tokens
from corag.types import FloatArray


@dataclass(frozen=True, slots=True)
class TokenisedText:
    """A text, and the characters that each of its tokens stands for; a slice of it is the text of some tokens."""

    text: str
    offsets: Sequence[tuple[int, int]]

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, part: slice) -> str:
        start, end, _ = part.indices(len(self.offsets))
        if (start, end) == (0, len(self.offsets)):
            return self.text if self.offsets else ""
        return self.text[self.offsets[start][0] : self.offsets[end - 1][1]]


@dataclass(kw_only=True, eq=False)
class CrossEncoder(LoadedModel, WindowedReranker):
    """The model's logit as a probability, in [0, 1]; an empty text is worth 0.

    With `output=logit` values are the logits as they are, at least `LOWEST_LOGIT`, which is what an empty text is
    worth. They rank texts alike, but the best of several close to 1 stay apart; the paper's c and lambda are for them.

    Attributes:
        max_tokens: The window: tokens of question and text together, special tokens included; by default, and at most,
            what tokenizer and model allow. A question is never cut.
        output: `probability` or `logit`.
    """

    kind = "CrossEncoder"

    max_tokens: int | None = None  # type: ignore[assignment]  # a number once it is built
    output: Output = "probability"

    def __post_init__(self) -> None:
        check_choice("output", self.output, Output)
        super().__post_init__()
        self.name = "cross-encoder" if Path(self.model).is_dir() else str(self.model)
        self.max_tokens = self._limit = _window(self.max_tokens, self._model.max_seq_length, self.model)
        self._model.max_seq_length = self.max_tokens
        # The library switches truncation and padding of its own on and off with every call.
        self._tokenizer = copy.deepcopy(self._model.tokenizer.backend_tokenizer)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._values: LRU[tuple[str, str], float] = LRU(cache_capacity())
        self._num_special = self._tokenizer.num_special_tokens_to_add(is_pair=True)

    def question(self, query: str) -> WindowedQuestion:
        """Return a question with what fits beside it; `InputError` where that is nothing."""
        [whole] = self.join([[query]])
        return WindowedQuestion(query, tokens_beside(len(whole), self._limit, self._num_special))

    def read(self, texts: Sequence[str]) -> Sequence[str]:
        """Return the texts: some tokenizers give a joined text other tokens than its parts."""
        return texts

    def join(self, orders: Sequence[Sequence[str]]) -> list[TokenisedText]:
        """Return the joined texts with their tokens, without special tokens."""
        texts = [SEPARATOR.join(order) for order in orders]
        encodings = encode(self._tokenizer, texts, offsets=True)
        return [TokenisedText(text, encoding.offsets) for text, encoding in zip(texts, encodings, strict=True)]

    def values(self, pairs: Sequence[tuple[str, str]]) -> FloatArray:
        """Return the value of each pair; they are kept, since methods and budgets ask for many of them again."""
        record_use(str(self.model), self.placement)
        return np.array(self._values.get_many(pairs, self._run), dtype=np.float64)

    def _run(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        filled = np.array([row for row, (_, text) in enumerate(pairs) if text.strip()], dtype=np.intp)
        lengths = [min(sum(map(estimated_tokens, pairs[row])), self._limit) for row in filled]
        as_logit = require("torch", "models").nn.Identity()

        def run(rows: Rows) -> Float32:
            batch: Any = self._model.predict(
                [pairs[row] for row in filled[rows]],
                batch_size=len(rows),
                activation_fn=as_logit,
                show_progress_bar=False,
            )
            return np.asarray(batch, dtype=np.float32)

        logits = np.full(len(pairs), -np.inf)
        for rows, of_batch in run_packed(run, lengths, self.placement.batch_tokens):
            logits[filled[rows]] = of_batch
        values: list[float] = as_output(logits, self.output).tolist()
        return values


def _window(wanted: int | None, allowed: int | None, model: str | Path) -> int:
    window = allowed if wanted is None else wanted
    if window is None:
        raise InputError(f"neither the model {str(model)!r} nor its tokenizer says how much it sees; give max_tokens")
    check_count(f"max_tokens of the model {str(model)!r}", window, most=allowed)
    return window

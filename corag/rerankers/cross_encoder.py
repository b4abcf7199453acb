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

from corag.checks import check_choice
from corag.errors import InputError, ModelError
from corag.memory import LRU
from corag.models.cached import cache_capacity
from corag.models.checkpoint import HOW_TO_TRUST, check_path, load_model
from corag.models.engine import Float32, Rows, run_packed
from corag.models.known import KNOWN_RERANKERS, ModelCard, announce
from corag.models.runtime import Precision, record_use, resolve_device
from corag.optional import require
from corag.rerankers.window import Output, WindowedQuestion, WindowedReranker, as_output, room_beside
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


class CrossEncoder(WindowedReranker):
    """The model's logit as a probability, in [0, 1]; an empty text is worth 0.

    With `output=logit` values are the logits as they are, at least `LOWEST_LOGIT`, which is what an empty text is
    worth. They rank texts alike, but the best of several close to 1 stay apart; the paper's c and lambda are for them.

    Args:
        model: Folder, or name on the hub, of a cross-encoder that gives one score.
        precision: `fp32`, `bf16` or `fp16`; see `corag.models.runtime`, as for the next.
        device: `cpu`, `cuda`, `cuda:N` or `mps`.
        max_tokens: The window; by default, and at most, what tokenizer and model allow.
        trust_remote_code: Whether code that comes with the model may run.
        output: `probability` or `logit`.

    Attributes:
        card: The model's window and licence; of an unknown model, only what its files say.
        max_tokens: The window: tokens of question and text together, special tokens included. A question is never cut.

    Raises:
        InputError: A setting does not exist, or not on this machine.
        MissingExtraError: sentence-transformers is not installed.
        ModelError: The model is missing, damaged, or no such model.
    """

    def __init__(
        self,
        *,
        model: str | Path,
        precision: Precision | None = None,
        device: str | None = None,
        max_tokens: int | None = None,
        trust_remote_code: bool | None = None,
        output: Output = "probability",
    ) -> None:
        check_choice("output", output, Output)
        check_path(model)
        self.output = output
        settings = {"precision": precision, "device": device, "trust_remote_code": trust_remote_code}
        self.placement = resolve_device("reranker", backend="torch", **settings)
        known = KNOWN_RERANKERS.get(str(model))
        if known is not None and known.needs_own_code and not self.placement.trust_remote_code:
            raise ModelError(
                f"the model {known.name!r} runs only with code of {known.source}, which was written for transformers 4 "
                f"and may not run with 5; to try it, {HOW_TO_TRUST}"
            )
        self._model = load_model("CrossEncoder", model, self.placement)
        self.name = "cross-encoder" if Path(model).is_dir() else str(model)
        allowed = [window for window in (self._model.max_seq_length, known and known.window_tokens) if window]
        self.max_tokens = _window(max_tokens, min(allowed, default=None), model)
        self._model.max_seq_length = self.max_tokens
        self.card = known or ModelCard(str(model), min(allowed, default=self.max_tokens))
        announce(self.card)
        # The library switches truncation and padding of its own on and off with every call.
        self._tokenizer = copy.deepcopy(self._model.tokenizer.backend_tokenizer)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._values: LRU[tuple[str, str], float] = LRU(cache_capacity())
        self._num_special = self._tokenizer.num_special_tokens_to_add(is_pair=True)

    def question(self, query: str) -> WindowedQuestion:
        """Return a question with what fits beside it; `InputError` where that is nothing."""
        [whole] = self.join([[query]])
        return WindowedQuestion(query, room_beside(len(whole), self.max_tokens, self._num_special))

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
        record_use(self.card.name, self.placement)
        return np.array(self._values.get_many(pairs, self._run), dtype=np.float64)

    def _run(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        filled = np.array([row for row, (_, text) in enumerate(pairs) if text.strip()], dtype=np.intp)
        lengths = [min(sum(map(estimated_tokens, pairs[row])), self.max_tokens) for row in filled]
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
    if window < 1 or (allowed is not None and window > allowed):
        raise InputError(f"max_tokens is {window}; the model {str(model)!r} takes 1 to {allowed or 'any number'}")
    return window

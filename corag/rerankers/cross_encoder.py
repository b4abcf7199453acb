"""`cross-encoder`: any model of sentence-transformers that reads question and text together and gives one score.

The text of an order is its chunks joined, so chunks influence each other and order matters.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from corag.checks import check_choice
from corag.errors import InputError, ModelError
from corag.memory import LRU
from corag.models.cached import cache_capacity
from corag.models.checkpoint import HOW_TO_TRUST, load_model
from corag.models.engine import Float32, Rows, run_packed
from corag.models.known import KNOWN_RERANKERS, ModelCard, announce
from corag.models.runtime import Precision, record_use, resolve_device
from corag.naming import Part
from corag.optional import require
from corag.rerankers.window import WindowedScorer
from corag.text.documents import SEPARATOR
from corag.text.tokens import encode, estimated_tokens
from corag.types import Chunk, FloatArray, Order

Output = Literal["probability", "logit"]
Offsets = Sequence[tuple[int, int]]
"""The characters that each token of a text stands for."""

_KIND = "cross-encoder"
LOWEST_LOGIT = -53 * math.log(2)
"""What an empty text is worth as a logit, -36.7, and the least that any text is: the probability 0 has none, and below
this one no probability can be told from 0 beside 1 in double precision."""


class FittedQuestion(NamedTuple):
    """A question, and the most tokens of a text that fit the window beside it."""

    text: str
    capacity: int


class CrossEncoder(Part):
    """The model's logit as a probability, in [0, 1]; an empty text is worth 0.

    With `output=logit` values are the logits as they are, at least `LOWEST_LOGIT`, which is what an empty text is
    worth. They rank texts alike, but the best of several close to 1 stay apart; the paper's c and lambda are for them.

    Args:
        model: Folder, or name on the hub, of a cross-encoder that gives one score.
        precision: `fp32`, `bf16` or `fp16`; see `corag.models.runtime`, as for the next.
        device: `cpu`, `cuda`, `cuda:N` or `mps`.
        batch_tokens: Maximum tokens of a batch, padding included, by an estimate from the bytes of its texts.
        max_tokens: The window; by default, and at most, what tokenizer and model allow.
        trust_remote_code: Whether code that comes with the model may run.
        output: `probability` or `logit`.

    Attributes:
        name: The model's name on the hub; `cross-encoder` for a folder.
        placement: Where and how it runs.
        card: The model's window and licence; of an unknown model, only what its files say.
        max_tokens: The window: tokens of question and text together, special tokens included. A question is never
            cut; see `corag.rerankers.window` for texts.

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
        batch_tokens: int | None = None,
        max_tokens: int | None = None,
        trust_remote_code: bool | None = None,
        output: Output = "probability",
    ) -> None:
        check_choice("output", output, Output)
        self.output = output
        self.placement = resolve_device(
            "reranker",
            backend="torch",
            precision=precision,
            device=device,
            batch_tokens=batch_tokens,
            trust_remote_code=trust_remote_code,
        )
        known = KNOWN_RERANKERS.get(str(model))
        if known is not None and known.needs_own_code and not self.placement.trust_remote_code:
            raise ModelError(
                f"the model {known.name!r} runs only with code from its repository; if you trust "
                f"that code, see {known.source}, {HOW_TO_TRUST}"
            )
        self._model = load_model("CrossEncoder", model, self.placement)
        self.name = _KIND if Path(model).is_dir() else str(model)
        allowed = [window for window in (self._model.max_seq_length, known and known.window_tokens) if window]
        self.max_tokens = _window(max_tokens, min(allowed, default=None), model)
        self._model.max_seq_length = self.max_tokens
        self.card = known or ModelCard(str(model), min(allowed, default=self.max_tokens))
        announce(self.card)
        # The library switches truncation and padding of its own on and off with every call.
        self._tokenizer = copy.deepcopy(self._model.tokenizer.backend_tokenizer)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._values: LRU[tuple[str, str], float] = LRU(cache_capacity(), kind="values")
        self._num_special = self._tokenizer.num_special_tokens_to_add(is_pair=True)

    @property
    def lowest(self) -> float:
        """The least value of a text, that of an empty one."""
        return LOWEST_LOGIT if self.output == "logit" else 0.0

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return the value of each text, cut to the window, `[len(texts)]`.

        Raises:
            InputError: The question leaves no room for a text, or something is not valid Unicode.
        """
        question = self.question(query)
        whole = question.capacity
        cut = [
            _part(text, of_text, 0, min(len(of_text), whole))
            for text, of_text in zip(texts, self.offsets(texts), strict=True)
        ]
        return self.values([(question, cut)])[0]

    def scorer(self, query: str, chunks: Sequence[Chunk]) -> CrossEncoderScorer:
        """Return a scoring function over orders of chunks; see `score`."""
        return CrossEncoderScorer(self, self.question(query), [chunk.text for chunk in chunks])

    def question(self, query: str) -> FittedQuestion:
        """Return a question with what fits beside it; `InputError` where that is nothing."""
        (tokens,) = map(len, self.offsets([query]))
        capacity = self.max_tokens - tokens - self._num_special
        if capacity < 1:
            raise InputError(
                f"the question has {tokens} tokens, which leaves no room for a text in the reranker's window of "
                f"{self.max_tokens} tokens; shorten the question"
            )
        return FittedQuestion(query, capacity)

    def offsets(self, texts: Sequence[str]) -> list[Offsets]:
        """Return the characters of each token of each text, without special tokens."""
        return [encoding.offsets for encoding in encode(self._tokenizer, texts, offsets=True)]

    def values(self, requests: Sequence[tuple[FittedQuestion, Sequence[str]]]) -> list[FloatArray]:
        """Return for each question the value of each of its texts, which fit the window, in shared batches.

        Values are kept: the methods and budgets of an evaluation ask for many of them again.
        """
        record_use(self.card.name, self.placement)
        pairs = [(question.text, text) for question, texts in requests for text in texts]
        values = np.array(self._values.get_many(pairs, self._run), dtype=np.float64)
        return np.split(values, np.cumsum([len(texts) for _, texts in requests])[:-1])

    def _run(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        filled = [row for row, (_, text) in enumerate(pairs) if text.strip()]
        lengths = [min(sum(map(estimated_tokens, pairs[row])), self.max_tokens) for row in filled]
        as_logit = require("torch", "models").nn.Identity()

        def run(rows: Rows) -> Float32:
            batch: Any = self._model.predict(
                [pairs[filled[row]] for row in rows],
                batch_size=len(rows),
                activation_fn=as_logit,
                show_progress_bar=False,
            )
            return np.asarray(batch, dtype=np.float32)

        values = np.full(len(pairs), self.lowest)
        for rows, of_batch in run_packed(run, lengths, self.placement.batch_tokens):
            logits = of_batch.astype(np.float64)
            # The logistic function, written so that no logit overflows.
            logistic = 0.5 + 0.5 * np.tanh(0.5 * logits)
            values[np.array(filled)[rows]] = np.maximum(logits, self.lowest) if self.output == "logit" else logistic
        return values.tolist()


class CrossEncoderScorer(WindowedScorer):
    """Scores the joined texts of orders."""

    def __init__(self, reranker: CrossEncoder, question: FittedQuestion, texts: Sequence[str]) -> None:
        self.reranker = reranker
        self._question = question
        self._texts = texts
        super().__init__(question.capacity)

    @staticmethod
    def score_jointly(requests: Sequence[tuple[CrossEncoderScorer, Sequence[Order]]]) -> list[FloatArray]:
        """Return the values of each scorer's orders, run in shared batches."""
        given = [scorer._pieces(orders) for scorer, orders in requests]
        values = requests[0][0].reranker.values(
            [(scorer._question, texts) for (scorer, _), (texts, _) in zip(requests, given, strict=True)]
        )
        return [spans.pooled(of_rows) for (_, spans), of_rows in zip(given, values, strict=True)]

    def _pieces(self, orders: Sequence[Order]) -> tuple[list[str], Any]:
        """Return the joined texts of orders, those longer than the window in pieces that fit, and their spans."""
        texts = [SEPARATOR.join(self._texts[index] for index in order) for order in orders]
        # Counted of the joined text: some tokenizers give it other tokens than its parts.
        offsets = self.reranker.offsets(texts)
        spans = self.spans(orders, list(map(len, offsets)))
        return [_part(texts[row], offsets[row], start, end) for row, start, end in spans], spans


def _part(text: str, offsets: Offsets, start: int, end: int) -> str:
    """Return the text of some of its tokens, all of it for all of them; empty if it has none."""
    if not offsets:
        return ""
    return text if (start, end) == (0, len(offsets)) else text[offsets[start][0] : offsets[end - 1][1]]


def _window(wanted: int | None, allowed: int | None, model: str | Path) -> int:
    window = allowed if wanted is None else wanted
    if window is None:
        raise InputError(f"neither the model {str(model)!r} nor its tokenizer says how much it sees; give max_tokens")
    if window < 1 or (allowed is not None and window > allowed):
        raise InputError(f"max_tokens is {window}; the model {str(model)!r} takes 1 to {allowed or 'any number'}")
    return window

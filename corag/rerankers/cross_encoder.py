"""`cross-encoder`: any transformers model that reads question and text together and gives one logit.

The text of an order is its chunks joined, so chunks influence each other and order matters. Question and chunks are
tokenised once; the input for an order is assembled from token ids.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from corag.checks import check_choice
from corag.errors import InputError, ModelError
from corag.models.engine.checkpoint import HOW_TO_TRUST, Checkpoint
from corag.models.engine.engine import Int64
from corag.models.engine.pairs import PairTemplate, PairTokenizer
from corag.models.known import KNOWN_RERANKERS, ModelCard, announce
from corag.models.runtime import Backend, Precision, place
from corag.naming import Part
from corag.rerankers.window import Window, WindowedScorer
from corag.text.documents import SEPARATOR
from corag.types import Chunk, FloatArray, Order

Output = Literal["probability", "logit"]

_KIND = "cross-encoder"
LOWEST_LOGIT = -53 * math.log(2)
"""What a text without any token is worth as a logit, -36.7, and the least that any text is: the probability 0 has none,
and below this one no probability can be told from 0 beside 1 in double precision."""


class CrossEncoder(Part):
    """The model's logit as a probability, in [0, 1]; a text without any token is worth 0.

    With `output=logit` values are the logits as they are, at least `LOWEST_LOGIT`, which is what a text without any
    token is worth. They rank texts alike, but the best of several close to 1 stay apart; the paper's c and lambda are
    for them.

    Args:
        model: Folder, or name on the hub, of a sequence-classification model with one label.
        backend: `auto`, `openvino` or `torch`; see `corag.models.runtime`, as for the next.
        precision: `fp32`, `bf16` or `fp16`.
        device: `cpu`, `cuda`, `cuda:N`, `mps`, or several.
        batch_tokens: Maximum tokens of a batch, padding included.
        max_tokens: The window; by default, and at most, what tokenizer and model allow.
        trust_remote_code: Whether code that comes with the model may run.
        output: `probability` or `logit`.

    Attributes:
        name: The model's name on the hub; `cross-encoder` for a folder.
        place: Where and how it runs.
        card: The model's window, licence and scale of values; of an unknown model, only what its files say.
        max_tokens: The window: tokens of question and text together, special tokens included. A question is never
            cut; see `corag.rerankers.window` for texts.
        identity: Everything that values depend on besides question and texts; see `corag.rerankers.cached`.

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
        precision: Precision | None = None,
        device: str | None = None,
        batch_tokens: int | None = None,
        max_tokens: int | None = None,
        trust_remote_code: bool | None = None,
        output: Output = "probability",
    ) -> None:
        check_choice("output", output, Output)
        self.output = output
        where = place(
            "reranker",
            backend=backend,
            precision=precision,
            device=device,
            batch_tokens=batch_tokens,
            trust_remote_code=trust_remote_code,
        )
        known = KNOWN_RERANKERS.get(str(model))
        if known is not None and known.needs_own_code and not where.trust_remote_code:
            raise ModelError(
                f"the model {known.name!r} runs only with code from its repository; if you trust "
                f"that code, see {known.source}, {HOW_TO_TRUST}"
            )
        checkpoint = Checkpoint(model, trust_remote_code=where.trust_remote_code)
        self.name = _KIND if Path(model).is_dir() else str(model)
        self.place = checkpoint.place(where, backend)
        allowed = [window for window in (checkpoint.window, known and known.window_tokens) if window]
        self.max_tokens = _window(max_tokens, min(allowed, default=None), model)
        self.card = known or ModelCard(str(model), min(allowed, default=self.max_tokens))
        announce(self.card)
        self._tokenizer = PairTokenizer(checkpoint.tokenizer.backend_tokenizer, self.max_tokens)
        self.joins_ids = self._tokenizer.joins(SEPARATOR)
        self._takes_types = "token_type_ids" in checkpoint.inputs
        self._engine = checkpoint.engine(_KIND, self.place)
        # Values of probabilities were kept under this text before there were logits.
        as_logits = " output=logit" if output == "logit" else ""
        self.identity = (
            f"{_KIND} {checkpoint.sha256} {self.place.values_depend_on} max_tokens={self.max_tokens}{as_logits}"
        )

    @property
    def lowest(self) -> float:
        """The least value of a text, that of one without any token."""
        return LOWEST_LOGIT if self.output == "logit" else 0.0

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return the value of each text, `[len(texts)]`.

        Raises:
            InputError: The question leaves no room for a text, or something is not valid Unicode.
        """
        return self.values([(self.question(query), self.tokenize(texts))])[0]

    def scorer(self, query: str, chunks: Sequence[Chunk]) -> CrossEncoderScorer:
        """Return a scoring function that tokenises question and chunks once; see `score`."""
        return CrossEncoderScorer(self, self.question(query), [chunk.text for chunk in chunks])

    def question(self, query: str) -> PairTemplate:
        """Return what all pairs with a question share; `InputError` where it leaves no room for a text."""
        return self._tokenizer.question(query)

    def tokenize(self, texts: Sequence[str]) -> list[Int64]:
        """Return the token ids of each text, uncut."""
        return self._tokenizer.tokenize(texts)

    def values(self, requests: Sequence[tuple[PairTemplate, Sequence[Int64]]]) -> list[FloatArray]:
        """Return for each question the value of each of its texts, given as token ids, in shared batches."""
        ids: list[Int64] = []
        types: list[Int64] = []
        for question, texts in requests:
            of_question = question.pairs(texts)
            ids += of_question[0]
            types += of_question[1]
        filled = np.flatnonzero([len(text) for _, texts in requests for text in texts])
        values = np.full(len(ids), self.lowest)
        of_filled = [types[row] for row in filled] if self._takes_types else None
        for batch in self._engine.run([ids[row] for row in filled], of_filled):
            logits = batch.output[:, 0].astype(np.float64)
            # The logistic function, written so that no logit overflows.
            of_batch = np.maximum(logits, self.lowest) if self.output == "logit" else 0.5 + 0.5 * np.tanh(0.5 * logits)
            values[filled[batch.rows]] = of_batch
        return np.split(values, np.cumsum([len(texts) for _, texts in requests])[:-1])


class CrossEncoderScorer(WindowedScorer):
    """Scores orders from the token ids of their chunks.

    Some tokenizers give the joined text other ids than its chunks side by side. Then the joined text of each order is
    tokenised: slower, with equal values. The lengths in `window` are then approximate: under `forbid`, an order that
    fits by these lengths but is in fact longer gets the lowest value and does not reach the model.
    """

    def __init__(self, reranker: CrossEncoder, question: PairTemplate, texts: Sequence[str]) -> None:
        self.reranker = reranker
        self._question = question
        self._texts = texts
        self._ids = reranker.tokenize(texts)
        separator_tokens = 0 if reranker.joins_ids else len(reranker.tokenize([SEPARATOR])[0])
        lengths = np.array([len(ids) for ids in self._ids], dtype=np.int64) + separator_tokens
        super().__init__(Window(question.room, lengths, separator_tokens))

    @staticmethod
    def score_jointly(requests: Sequence[tuple[CrossEncoderScorer, Sequence[Order]]]) -> list[FloatArray]:
        """Return the values of each scorer's orders, run in shared batches."""
        given = [scorer.rows(orders, scorer._joined(orders)) for scorer, orders in requests]
        asked = [(scorer._question, rows.ids) for (scorer, _), rows in zip(requests, given, strict=True)]
        values = requests[0][0].reranker.values(asked)
        lowest = requests[0][0].reranker.lowest
        return [rows.pooled(of_rows, lowest) for rows, of_rows in zip(given, values, strict=True)]

    def _joined(self, orders: Sequence[Order]) -> list[Int64]:
        """Return the token ids of the joined text of each order."""
        if self.reranker.joins_ids:
            return [np.concatenate([self._ids[index] for index in order]) for order in orders]
        return self.reranker.tokenize([SEPARATOR.join(self._texts[index] for index in order) for order in orders])


def _window(wanted: int | None, allowed: int | None, model: str | Path) -> int:
    window = allowed if wanted is None else wanted
    if window is None:
        raise InputError(f"neither the model {str(model)!r} nor its tokenizer says how much it sees; give max_tokens")
    if window < 1 or (allowed is not None and window > allowed):
        raise InputError(f"max_tokens is {window}; the model {str(model)!r} takes 1 to {allowed or 'any number'}")
    return window

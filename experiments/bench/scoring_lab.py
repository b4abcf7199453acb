"""A model, the demo's questions, and rerankers that leave out parts of the scoring engine, to be compared with it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np

import corag
from corag.errors import InputError, MissingExtraError
from corag.models.engine.backends import Backend, Precision, batch_tokens, load_forward
from corag.models.engine.checkpoint import Checkpoint
from corag.models.engine.engine import Engine, Forward, Int64, Source, pad, quiet
from corag.models.engine.pairs import PairTokenizer, Question
from corag.optional import require
from corag.rerankers.scorers import CachedScorer, JoinedTextScorer, score_together
from corag.text.chunking import ChunkConfig, chunk_document
from corag.text.documents import SEPARATOR, Document
from corag.text.tokens import model_folder, token_counter
from corag.types import Candidate, Chunk, FloatArray, Order, Reranker, Scorer
from experiments import demo

CHUNK_TOKENS, NUM_CANDIDATES, BUDGET_TOKENS = 100, 10, 256
Asked = tuple[str, list[Candidate]]
"""A question with its candidates."""
Pairs = tuple[list[Int64], list[Int64]]
"""Token ids and token types of question-text pairs."""


@dataclass(frozen=True)
class Way:
    """A way to score; by default the texts of each expansion are joined, tokenised and run as one batch.

    Attributes:
        from_ids: Put pairs together from token ids instead of tokenising every joined text.
        by_length: Fill batches with rows of like lengths instead of one batch for each call of the search.
        backend: What runs the model.
        precision: Of its products.
        memo: Remember values over the settings of a sweep.
        shared: Search the questions of a sweep in lock-step, so that they share batches.
        prefilter: Share of an expansion that is scored after a surrogate ranked it; below 1 selections may differ.
    """

    from_ids: bool = False
    by_length: bool = False
    backend: Backend = "torch"
    precision: Precision = "fp32"
    memo: bool = False
    shared: bool = False
    prefilter: float = 1.0


def questions() -> Iterator[Asked]:
    """Yield the demo's questions with candidates: the topic of the evidence from its start, then those that follow."""
    content = demo.load()
    tokens = token_counter()
    documents = [Document(row["id"], row["text"], row["title"]) for row in content.documents]
    place = {document.id: index for index, document in enumerate(documents)}
    chunks: dict[str, list[Chunk]] = {}
    for query in content.queries:
        found: list[Chunk] = []
        for document in documents[place[query["topics"][0]] :] + documents:
            if document.id not in chunks:
                chunks[document.id] = chunk_document(document, tokens, ChunkConfig(CHUNK_TOKENS))
            found += chunks[document.id]
            if len(found) >= NUM_CANDIDATES:
                break
        yield query["question"], [Candidate(chunk, 1 / rank) for rank, chunk in enumerate(found[:NUM_CANDIDATES], 1)]


def make_model(folder: Path) -> Path:
    """Save MiniLM with a seeded head of one label, and its tokenizer, in the layout of a hub checkpoint."""
    torch, transformers = require("torch", "models"), require("transformers", "models")
    source = model_folder()
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(0)
        settings = {"num_labels": 1, "local_files_only": True}
        transformers.BertForSequenceClassification.from_pretrained(source, **settings).save_pretrained(folder)
    for file in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        shutil.copy(source / file, folder / file)
    return folder


class Lab:
    """A checkpoint with its forward functions, each loaded once, and the rerankers made of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkpoint = Checkpoint(folder)
        window = self.checkpoint.window
        assert window is not None
        self.tokenizer = PairTokenizer(self.checkpoint.tokenizer.backend_tokenizer, window)
        self.pad_token = self.checkpoint.tokenizer.pad_token_id
        self._forwards: dict[tuple[Backend, Precision, str], Forward] = {}
        self._engines: dict[tuple[Backend, Precision], Reranker] = {}

    def forward(self, backend: Backend, precision: Precision, device: str = "cpu") -> Forward:
        """Return the bare model."""
        key = (backend, precision, device)
        if key not in self._forwards:
            checkpoint = self.checkpoint
            source = Source("cross-encoder", checkpoint.sha256, checkpoint.inputs, checkpoint.load)
            self._forwards[key] = load_forward(source, backend, precision, device)
        return self._forwards[key]

    def runs(self) -> list[tuple[Backend, Precision, str]]:
        """Return the backends, precisions and devices that this machine has."""
        torch = require("torch", "models")
        places: list[tuple[Backend, str]] = [("torch", "cpu"), ("openvino", "cpu")]
        if torch.cuda.is_available():
            places.append(("torch", "cuda"))
        keys = [(backend, precision, device) for backend, device in places for precision in get_args(Precision)]
        return [key for key in keys if self._is_there(*key)]

    def _is_there(self, backend: Backend, precision: Precision, device: str) -> bool:
        try:
            self.forward(backend, precision, device)
        except (InputError, MissingExtraError):
            return False
        return True

    def reranker(self, way: Way) -> Reranker:
        """Return what scores in a way, without its memory."""
        if not (way.from_ids and way.by_length):
            return Plain(self, way)
        key = (way.backend, way.precision)
        if key not in self._engines:
            settings = {"model": self.folder, "backend": way.backend, "precision": way.precision}
            self._engines[key] = corag.reranker("cross-encoder", **settings)
        return self._engines[key]

    def logits(self, engine: Engine, pairs: Pairs) -> FloatArray:
        """Return the logits of pairs, in batches of like lengths, `[len(pairs)]`."""
        ids, types = pairs
        found = np.zeros(len(ids))
        for batch in engine.run(ids, types if "token_type_ids" in self.checkpoint.inputs else None):
            found[batch.rows] = batch.output[:, 0]
        return found


class Plain:
    """A cross-encoder without some of what `corag.reranker("cross-encoder")` does; its values are the same."""

    name = "plain"

    def __init__(self, lab: Lab, way: Way) -> None:
        self.lab, self.way = lab, way
        self._forward = lab.forward(way.backend, way.precision)
        self._engine = Engine(self._forward, lab.pad_token, batch_tokens("cpu"))

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return the value of each text, `[len(texts)]`."""
        return self.values([(self.lab.tokenizer.question(query), self.lab.tokenizer.tokenize(texts))])

    def scorer(self, query: str, chunks: Sequence[Chunk]) -> PlainScorer:
        """Return a scoring function."""
        return PlainScorer(self, query, [chunk.text for chunk in chunks])

    def values(self, requests: Sequence[tuple[Question, Sequence[Int64]]]) -> FloatArray:
        """Return the values of all texts of all questions."""
        pairs = [question.pairs(texts) for question, texts in requests]
        ids, types = ([row for pair in pairs for row in pair[part]] for part in (0, 1))
        if self.way.by_length:
            logits = self.lab.logits(self._engine, (ids, types))
        else:
            tokens, mask = pad(ids, self.lab.pad_token)
            inputs = {"input_ids": tokens, "attention_mask": mask}
            if "token_type_ids" in self.lab.checkpoint.inputs:
                inputs["token_type_ids"] = pad(types, 0)[0]
            logits = self._forward(inputs)[:, 0].astype(np.float64)
        return 0.5 + 0.5 * np.tanh(0.5 * logits)


class PlainScorer:
    """Scores orders from token ids or joined texts, as `Way` says; scorers of one `reranker` share batches."""

    order_matters = True
    num_truncated = 0

    def __init__(self, reranker: Plain, query: str, texts: Sequence[str]) -> None:
        self.reranker = reranker
        self._tokenizer = reranker.lab.tokenizer
        self._query, self._texts = query, texts
        self._question = self._tokenizer.question(query)
        self._ids = self._tokenizer.tokenize(texts) if reranker.way.from_ids else []

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Return one value per order, `[len(orders)]`."""
        return self.score_jointly([(self, orders)])[0]

    @staticmethod
    def score_jointly(requests: Sequence[tuple[PlainScorer, Sequence[Order]]]) -> list[FloatArray]:
        """Return the values of each scorer's orders, run together."""
        asked = [scorer._request(orders) for scorer, orders in requests]
        values = requests[0][0].reranker.values(asked)
        return np.split(values, np.cumsum([len(texts) for _, texts in asked])[:-1])

    def _request(self, orders: Sequence[Order]) -> tuple[Question, list[Int64]]:
        if self._ids:
            return self._question, [np.concatenate([self._ids[index] for index in order]) for order in orders]
        texts = [SEPARATOR.join(self._texts[index] for index in order) for order in orders]
        return self._tokenizer.question(self._query), self._tokenizer.tokenize(texts)


class FlagEmbeddingReranker:
    """FlagEmbedding's `FlagReranker` on the joined texts of one expansion at a time, with its defaults.

    These are 128 pairs a batch and 512 tokens a pair. It runs the first batch twice, to see whether it fits the memory.
    """

    name = "FlagReranker"

    def __init__(self, folder: Path) -> None:
        flag = require("FlagEmbedding", "bge")
        with quiet():
            self._model = flag.FlagReranker(str(folder), use_fp16=False, devices="cpu", batch_size=128, max_length=512)

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return the value of each text, `[len(texts)]`."""
        return np.atleast_1d(np.array(self._model.compute_score([(query, text) for text in texts], normalize=True)))

    def scorer(self, query: str, chunks: Sequence[Chunk]) -> Scorer:
        """Return a scoring function that joins the texts of each order."""
        return JoinedTextScorer(self, query, chunks)


class _Memo(CachedScorer):
    """Values of one question, whose searches share batches with those of other questions."""

    reranker: Reranker
    score_jointly = staticmethod(score_together)


class Remembering:
    """A reranker that keeps the values of each question for the next search of it."""

    def __init__(self, reranker: Reranker) -> None:
        self.name = reranker.name
        self._reranker = reranker
        self._memos: dict[str, _Memo] = {}

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return the value of each text, `[len(texts)]`."""
        return self._reranker.score(query, texts)

    def scorer(self, query: str, chunks: Sequence[Chunk]) -> Scorer:
        """Return the one scoring function of a question."""
        if query not in self._memos:
            memo = _Memo(self._reranker.scorer(query, chunks), self.name, [chunk.id for chunk in chunks])
            memo.reranker = self
            memo.window = None  # budgets of this benchmark are far below it
            self._memos[query] = memo
        return self._memos[query]

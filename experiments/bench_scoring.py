"""How fast orders are scored: against the bare encoder, and end to end against scoring as peers do it.

The cross-encoder is MiniLM's encoder with a random head: its values mean nothing, its work is that of a real one.
The passages and questions are the demo's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np

import search
from corag.engine.backends import batch_tokens, load_forward
from corag.engine.checkpoint import Checkpoint
from corag.engine.source import Forward, Source, quiet
from corag.errors import InputError
from corag.minilm import model_folder
from corag.optional import require
from corag.rerankers.bm25 import Bm25
from corag.rerankers.cross_encoder import CrossEncoder
from corag.rerankers.scorers import JoinedTextScorer, MemoScorer
from corag.selectors.base import Problem
from corag.text import ChunkConfig, Document, chunk_document
from corag.tokens import token_counter
from corag.types import Candidate, Chunk, FloatArray, Order, Reranker, ScoreOrders
from experiments import demo
from experiments.bench import interleaved_medians

NUM_QUESTIONS, NUM_CANDIDATES, CHUNK_TOKENS, BUDGET_TOKENS = 3, 12, 64, 256
NUM_ORDERS = 300
ONE_SEARCH = (search.SearchConfig(exploration=0.3),)
SWEEP = tuple(search.SearchConfig(iterations=n, exploration=c) for n in (5, 10) for c in (0.3, 2.4))
"""What a question is searched with when labels for the agent are made, cut short."""


def bench_scoring(rounds: int) -> list[dict[str, Any]]:
    """Time the scoring engine.

    Returns:
        Rows of three parts. `engine`: tokens per second of the cross-encoder's scorer on real orders, and of the bare
        encoder on batches of the same lengths without padding. `search`: seconds to search some questions, one factor
        at a time and together, against FlagReranker; `same_selections` counts the questions where the order is the
        same. `sweep`: the same under several settings of the search, where values are asked for again.
    """
    with TemporaryDirectory() as folder:
        model = save_cross_encoder(Path(folder))
        problems = demo_problems()
        return [
            *_engine_rows(model, problems, rounds),
            *_search_rows(model, problems, rounds),
        ]


def save_cross_encoder(folder: Path) -> Path:
    """Save MiniLM's encoder with a seeded random head as a cross-encoder."""
    torch, transformers = require("torch", "models"), require("transformers", "models")
    with quiet():
        model = transformers.BertForSequenceClassification.from_pretrained(model_folder(), num_labels=1)
        head = np.random.default_rng(0).normal(0, 0.2, (1, model.config.hidden_size))
        with torch.no_grad():
            model.classifier.weight.copy_(torch.from_numpy(head))
            model.classifier.bias.zero_()
        model.save_pretrained(folder)
        transformers.AutoTokenizer.from_pretrained(model_folder()).save_pretrained(folder)
    return folder


def demo_problems() -> list[Problem]:
    """Return questions of the demo, each with the chunks that BM25 ranks first."""
    data, tokens = demo.load(), token_counter()
    chunks = [
        chunk
        for document in data.documents
        for chunk in chunk_document(Document(document["id"], document["text"]), tokens, ChunkConfig(CHUNK_TOKENS))
    ]
    return [_problem(row["question"], chunks) for row in data.queries[:NUM_QUESTIONS]]


def _problem(question: str, chunks: Sequence[Chunk]) -> Problem:
    values = Bm25().scorer(question, chunks)([(index,) for index in range(len(chunks))])
    best = np.argsort(-values, kind="stable")[:NUM_CANDIDATES]
    return Problem(question, [Candidate(chunks[index], float(values[index])) for index in best], token_counter())


# The engine against the bare encoder


def _engine_rows(model: Path, problems: Sequence[Problem], rounds: int) -> list[dict[str, Any]]:
    rows = []
    for precision in ("fp32", "bf16"):
        try:
            reranker = CrossEncoder(model=model, precision=precision)
        except InputError:
            continue  # this CPU has no bf16
        problem, orders = problems[0], _random_orders(len(problems[0].chunks))
        lengths = _pair_lengths(reranker, problem, orders)
        batches = _perfect_batches(lengths)
        checkpoint = Checkpoint(model)
        source = Source(reranker.name, checkpoint.sha256, checkpoint.inputs, checkpoint.load)
        forward = load_forward(source, reranker.backend, precision)
        settings: dict[str, Callable[[], object]] = {
            "bare encoder, perfect batches": partial(_run_bare, forward, batches),
            "engine": partial(_run_engine, reranker, problem, orders),
        }
        tokens = {"bare encoder, perfect batches": sum(batch.size for batch in batches), "engine": int(lengths.sum())}
        seconds = interleaved_medians(settings, lambda run: run(), rounds)
        rates = {name: tokens[name] / seconds[name] for name in settings}
        rows += [
            {
                "part": "engine",
                "setting": f"{name}, {reranker.backend} {precision}",
                "seconds": seconds[name],
                "tokens_per_s": rate,
                "share_of_bare": rate / rates["bare encoder, perfect batches"],
            }
            for name, rate in rates.items()
        ]
    return rows


def _random_orders(num_chunks: int) -> list[Order]:
    generator = np.random.default_rng(0)
    sizes = generator.integers(1, 5, NUM_ORDERS)
    return [tuple(generator.permutation(num_chunks)[:size].tolist()) for size in sizes]


def _pair_lengths(reranker: CrossEncoder, problem: Problem, orders: Sequence[Order]) -> np.ndarray:
    """Return the tokens of question and text of each order, special tokens included."""
    alone = np.array([len(ids) for ids in reranker.tokenize([chunk.text for chunk in problem.chunks])])
    others = len(reranker.tokenize([problem.query])[0]) + 3  # [CLS], and [SEP] after the question and after the text
    return np.minimum([alone[list(order)].sum() + others for order in orders], reranker.max_tokens)


def _perfect_batches(lengths: np.ndarray) -> list[np.ndarray]:
    """Return token ids in batches as full as the engine's may be, of rows that all have their mean length."""
    ordered = np.sort(lengths)[::-1]
    batches, start = [], 0
    while start < len(ordered):
        size = max(1, batch_tokens("cpu") // int(ordered[start]))
        group = ordered[start : start + size]
        batches.append(np.full((len(group), round(group.mean())), 2003, dtype=np.int64))
        start += size
    return batches


def _run_engine(reranker: Reranker, problem: Problem, orders: Sequence[Order]) -> None:
    reranker.scorer(problem.query, problem.chunks)(orders)


def _run_bare(forward: Forward, batches: Sequence[np.ndarray]) -> None:
    for ids in batches:
        forward({"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)})


# Whole searches against FlagReranker


class FlagScores:
    """Joined texts scored by `FlagReranker.compute_score`, as peers do it for every expansion.

    FlagReranker tries out whether its first batch fits the memory and then scores it again, so expansions of up to 128
    orders are computed twice. That is part of what is compared with.

    Args:
        model: Folder of the cross-encoder.
        forward: Runs the model in place of PyTorch, everything else being the same.
    """

    def __init__(self, model: Path, forward: Forward | None = None) -> None:
        self.name = "flag"
        with quiet():
            self._flag: Any = require("FlagEmbedding", "bge").FlagReranker(str(model), use_fp16=False, devices="cpu")
        if forward is not None:
            self._flag.model = _in_place_of_torch(forward)

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return the value of each text, `[len(texts)]`."""
        return np.array(self._flag.compute_score([(query, text) for text in texts], normalize=True))

    def scorer(self, query: str, chunks: Sequence[Chunk]) -> JoinedTextScorer:
        """Return a scoring function that joins and tokenises the texts of every order."""
        return JoinedTextScorer(self, query, chunks)


def _in_place_of_torch(forward: Forward) -> Any:
    """Return a PyTorch module whose work is done by `forward`."""
    torch = require("torch", "models")

    class Module(torch.nn.Module):
        def forward(self, return_dict: bool, **inputs: Any) -> SimpleNamespace:
            logits = forward({name: tensor.numpy() for name, tensor in inputs.items()})
            return SimpleNamespace(logits=torch.from_numpy(logits))

    return Module()


@dataclass(frozen=True)
class _Way:
    """A way to score: a reranker, with or without a memory of values."""

    reranker: Reranker
    memo: bool = False

    def search(self, problem: Problem, configs: Sequence[search.SearchConfig]) -> list[Order]:
        scorer: ScoreOrders = self.reranker.scorer(problem.query, problem.chunks)
        if self.memo:
            scorer = MemoScorer(scorer, self.reranker.name, [chunk.id for chunk in problem.chunks])
        return [search.search(problem.costs, scorer, BUDGET_TOKENS, config).order for config in configs]


def _search_rows(model: Path, problems: Sequence[Problem], rounds: int) -> list[dict[str, Any]]:
    fast = CrossEncoder(model=model)
    checkpoint = Checkpoint(model)
    source = Source(fast.name, checkpoint.sha256, checkpoint.inputs, checkpoint.load)
    baseline = FlagScores(model)
    ways = {
        "FlagReranker, torch fp32": _Way(baseline),
        f"backend: {fast.backend} fp32": _Way(FlagScores(model, load_forward(source, fast.backend))),
        "batches and token ids: torch fp32": _Way(CrossEncoder(model=model, backend="torch")),
        f"together: {fast.backend} fp32": _Way(fast, memo=True),
    }
    swept = {
        "FlagReranker, torch fp32": _Way(baseline),
        "memo: FlagReranker, torch fp32": _Way(baseline, memo=True),
        f"together: {fast.backend} fp32": _Way(fast, memo=True),
    }
    try:
        low = _Way(CrossEncoder(model=model, precision="bf16"), memo=True)
    except InputError:
        pass  # this CPU has no bf16
    else:
        ways[f"together: {fast.backend} bf16"] = swept[f"together: {fast.backend} bf16"] = low
    return [
        *_compared("search", ways, problems, ONE_SEARCH, rounds),
        *_compared("sweep", swept, problems[:1], SWEEP, rounds),
    ]


def _compared(
    part: str,
    ways: dict[str, _Way],
    problems: Sequence[Problem],
    configs: Sequence[search.SearchConfig],
    rounds: int,
) -> list[dict[str, Any]]:
    """Return a row for each way; the first is what the others are compared with."""
    found: dict[str, list[list[Order]]] = {}

    def run(name: str) -> None:
        found[name] = [ways[name].search(problem, configs) for problem in problems]

    seconds = interleaved_medians({name: name for name in ways}, run, rounds)
    first = next(iter(ways))
    return [
        {
            "part": part,
            "setting": name,
            "seconds": seconds[name],
            "speedup": seconds[first] / seconds[name],
            "same_selections": sum(ours == theirs for ours, theirs in zip(found[name], found[first], strict=True)),
            "questions": len(problems),
        }
        for name in ways
    ]

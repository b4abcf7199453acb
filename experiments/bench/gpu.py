"""What CORAG does on a GPU, in at most nine minutes: parity with the CPU, speed, searches, trainings, memory.

Questions and passages are made unless a data folder is named; the cross-encoder is of base size with random weights.
Needs no index, tracker or network. On a CPU it measures the CPU.
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np

import agent
import corag
import search
from corag.models.minilm import load_bert, minilm_encoder
from corag.models.runtime import Precision, place
from corag.optional import require
from corag.rerankers.evidence.passages import PassageReader
from corag.rerankers.evidence.reranker import EvidenceReranker
from corag.rerankers.evidence.signals import read_question, signals
from corag.selectors.problem import SelectionProblem
from corag.text.data import DataFolder, Query
from corag.text.documents import SEPARATOR, passage
from corag.text.tokens import load_tokenizer, model_folder
from corag.types import Candidate, Chunk, FloatArray, Order
from experiments.adapters.config import EvidenceSource, FitSettings, ValueTraining
from experiments.adapters.value_fit import ValueExample, fit_networks, hypothesise
from experiments.agents.train import placed
from experiments.bench.harness import Timing, perfect_batches, run_batches, save_cross_encoder

SECONDS = 540.0
SHIPPED = (
    "minilm-cosine", "minilm-maxsim", "minilm-softsim", "minilm-multihop", "minilm-factoid", "minilm-longform",
    "minilm-sentence",
)  # fmt: skip
BUDGET_TOKENS = 512
SEED = 0
ROUNDS = 3
TITLE = "on a device: parity with fp32 on the CPU, tokens and orders a second, trainings"
COLUMNS = {
    "stage": "stage", "setting": "setting", "precision": "precision", "largest_difference": "largest difference",
    "rank_correlation": "rank corr.", "seconds": "seconds", "per_s": "a second", "unit": "of", "gpu_peak_gb": "GPU, GB",
    "error": "error",
}  # fmt: skip


@dataclass(frozen=True)
class Workload:
    """How much is measured.

    Attributes:
        questions: Questions that a reader answers.
        candidates: Candidates of each.
        compared: Questions whose values are compared with the CPU's; a reranker head learns from six times as many.
        searched: Questions that are searched by each policy.
        texts: Texts that are run for the tokens a second.
        shape: Shape of the cross-encoder.
        rows: Questions that the agent learns from.
        epochs: Epochs of each training.
    """

    questions: int = 200
    candidates: int = 20
    compared: int = 10
    searched: int = 5
    texts: int = 2000
    shape: tuple[tuple[str, int], ...] = (
        ("num_hidden_layers", 12), ("hidden_size", 768), ("intermediate_size", 3072), ("num_attention_heads", 12)
    )  # fmt: skip
    rows: int = 4000
    epochs: int = 30


SMALL = Workload(
    questions=2, candidates=4, compared=1, searched=1, texts=6, rows=100, epochs=1,
    shape=(("num_hidden_layers", 2), ("hidden_size", 32), ("intermediate_size", 64), ("num_attention_heads", 1)),
)  # fmt: skip


@dataclass(frozen=True)
class World:
    """What is measured with: questions with their candidates, a cross-encoder, and the device."""

    workload: Workload
    queries: Sequence[Query]
    pools: Sequence[Sequence[Candidate]]
    cross_encoder: str
    device: str
    timing: Timing
    ends: float

    @property
    def texts(self) -> list[str]:
        """Texts of the candidates, again and again as far as they are needed."""
        distinct = [candidate.chunk.text for pool in self.pools for candidate in pool]
        return (distinct * -(-self.workload.texts // len(distinct)))[: self.workload.texts]

    @property
    def precisions(self) -> tuple[Precision, ...]:
        """The precisions that are worth measuring on the device."""
        return ("fp32", "bf16") if self.device == "cpu" else ("fp32", "bf16", "fp16")


Rows = Iterator[dict[str, Any]]


def bench_gpu(timing: Timing, *, data: str = "", small: bool = False, seconds: float = SECONDS) -> list[dict[str, Any]]:
    """Run the stages and return the lines of the table; what raises, or comes too late, says so in its line.

    Args:
        timing: Rounds of each timed setting.
        data: Data folder whose questions have candidates; empty for made ones.
        small: Measure little, to try it out.
        seconds: No row is begun after so many.
    """
    workload = SMALL if small else Workload()
    with tempfile.TemporaryDirectory() as scratch:
        folder = str(save_cross_encoder(Path(scratch), **dict(workload.shape)))
        queries, pools = _read(workload, data) if data else _made(workload)
        device = place("reranker").device
        world = World(workload, queries, pools, folder, device, timing, time.monotonic() + seconds)
        return [row for stage in STAGES for row in _stage(stage, world)]


def _stage(stage: Callable[[World], Rows], world: World) -> Rows:
    name = stage.__name__.replace("_", " ")
    try:
        with _memory(world.device) as memory:
            for row in stage(world):
                yield {"stage": name, **row}
                if time.monotonic() > world.ends:
                    yield {"stage": name, "error": "no time was left"}
                    return
        yield {"stage": name, "setting": "memory", **memory}
    except Exception as error:  # noqa: BLE001 - a stage that fails leaves the others their time
        yield {"stage": name, "error": f"{type(error).__name__}: {error}"}


@contextmanager
def _memory(device: str) -> Iterator[dict[str, float]]:
    """Yield a dictionary that holds at the end the most memory that the GPU, and the process so far, had."""
    peaks: dict[str, float] = {}
    cuda = require("torch", "models").cuda if device.startswith("cuda") else None
    if cuda:
        cuda.empty_cache()
        cuda.reset_peak_memory_stats(device)
    yield peaks
    if cuda:
        peaks["gpu_peak_gb"] = cuda.max_memory_allocated(device) / 1e9
    # Kilobytes on Linux.
    peaks["process_peak_gb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def _made(workload: Workload) -> tuple[list[Query], list[list[Candidate]]]:
    """Return questions that name words of their evidence, among passages of drawn words."""
    rng = np.random.default_rng(SEED)
    known = sorted(load_tokenizer(model_folder() / "tokenizer.json").get_vocab())
    words = np.array([word for word in known if word.isascii() and word.isalpha() and len(word) > 3])
    chances = 1 / (np.arange(len(words)) + 20.0)
    queries, pools = [], []
    for number in range(max(workload.questions, 6 * workload.compared)):
        texts = [rng.choice(words, 80, p=chances / chances.sum()) for _ in range(workload.candidates)]
        gold = rng.choice(workload.candidates, 2, replace=False).tolist()
        asked = f"What of {' '.join(' '.join(texts[row][5:9]) for row in gold)}?"
        chunks = [
            Chunk(f"q{number}-{row}", f"{' '.join(text[:2]).title()}\n{' '.join(text).capitalize()}.")
            for row, text in enumerate(texts)
        ]
        ids = tuple(chunk.id for chunk in chunks)
        evidence = tuple(ids[row] for row in gold)
        queries.append(Query(f"q{number}", asked, (str(texts[gold[0]][10]),), evidence, "train", ids, {}))
        pools.append([Candidate(chunk, 1 - row / workload.candidates) for row, chunk in enumerate(chunks)])
    return queries, pools


def _read(workload: Workload, data: str) -> tuple[list[Query], list[list[Candidate]]]:
    folder = DataFolder.open(data)
    queries = [query for query in folder.queries if query.candidates]
    queries = queries[: max(workload.questions, 6 * workload.compared)]
    pools = [
        [
            Candidate(passage(folder.documents[name]), 1 - row / workload.candidates)
            for row, name in enumerate((query.candidates or ())[: workload.candidates])
        ]
        for query in queries
    ]
    return queries, pools


def parity(world: World) -> Rows:
    """Compare vectors, values and answers on the device with those in fp32 on the CPU, both through PyTorch."""
    asked = list(zip(world.queries, world.pools, strict=True))[: world.workload.compared]
    texts = world.texts[: 10 * world.workload.compared]

    def embed(**where: Any) -> FloatArray:
        return np.asarray(corag.embedder("minilm", **where).embed(texts), dtype=np.float64)

    def values(name: str, settings: dict[str, str], **where: Any) -> FloatArray:
        reranker = corag.reranker(name, **settings, **where)
        return np.array([_values(reranker, query, pool) for query, pool in asked])

    compared: dict[str, Callable[..., FloatArray]] = {"minilm embedder": embed}
    compared |= {name: partial(values, name, {}) for name in SHIPPED}
    compared["cross-encoder"] = partial(values, "cross-encoder", {"model": world.cross_encoder})
    for name, run in compared.items():
        backend = {} if name == "cross-encoder" else {"backend": "torch"}
        exact = run(device="cpu", precision="fp32", **backend)
        for precision in world.precisions:
            result = run(device=world.device, precision=precision, **backend)
            ranks = [np.argsort(np.argsort(one, axis=1), axis=1) for one in (result, exact)]
            yield {
                "setting": name,
                "precision": precision,
                "largest_difference": float(np.abs(result - exact).max()),
                "rank_correlation": float(np.mean([np.corrcoef(*pair)[0, 1] for pair in zip(*ranks, strict=True)])),
            }
    queries = [query.question for query, _ in asked]
    contexts = [SEPARATOR.join(candidate.chunk.text for candidate in pool[:4]) for _, pool in asked]
    answers = {
        device: cast(Any, corag.reader("minilm-reader", backend="torch", device=device)).answer_many(queries, contexts)
        for device in dict.fromkeys(("cpu", world.device))
    }
    pairs = list(zip(answers["cpu"], answers[world.device], strict=True))
    difference = max(abs(one.confidence - other.confidence) for one, other in pairs)
    yield {"setting": "minilm-reader", "precision": "fp32", "largest_difference": difference}


def _values(reranker: Any, query: Query, pool: Sequence[Candidate]) -> FloatArray:
    singles: list[Order] = [(row,) for row in range(len(pool))]
    pairs: list[Order] = [(row, row + 1) for row in range(len(pool) - 1)]
    return np.asarray(reranker.scorer(query.question, [one.chunk for one in pool])([*singles, *pairs]))


def speed(world: World) -> Rows:
    """Measure tokens a second of encoder, reader and cross-encoder, and of the bare models without padding."""
    torch, texts, at = require("torch", "models"), world.texts, {"device": world.device}
    lengths = [len(ids) + 2 for ids in minilm_encoder("torch", "fp32", world.device).tokenize(texts).ids]
    asked = world.queries[: world.workload.questions]
    contexts = [SEPARATOR.join(one.chunk.text for one in pool[:4]) for pool in world.pools[: len(asked)]]
    read = int(corag.tokens("minilm").count(contexts).sum())
    load = require("transformers", "models").AutoModelForSequenceClassification.from_pretrained
    batches = perfect_batches(lengths, place("reranker").batch_tokens)
    tensors = [{name: torch.from_numpy(rows).to(world.device) for name, rows in batch.items()} for batch in batches]
    for precision in world.precisions:
        embedder = corag.embedder("minilm", backend="torch", precision=precision, **at)
        reader: Any = corag.reader("minilm-reader", backend="torch", precision=precision, **at)
        reranker = corag.reranker("cross-encoder", model=world.cross_encoder, precision=precision, **at)
        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
        bare = {
            "bare minilm": load_bert().to(world.device, dtype),
            "bare cross-encoder": load(world.cross_encoder, local_files_only=True).to(world.device, dtype).eval(),
        }
        questions = [query.question for query in asked]
        runs: dict[str, tuple[int, Callable[[], Any]]] = {
            "minilm embedder": (sum(lengths), partial(embedder.embed, texts)),
            "minilm-reader": (read, partial(reader.answer_many, questions, contexts)),
            "cross-encoder": (sum(lengths), partial(reranker.score, questions[0], texts)),
            **{name: (sum(lengths), partial(run_batches, module, tensors)) for name, module in bare.items()},
        }
        for _, run in runs.values():
            run()
        seconds, _ = world.timing.run({name: run for name, (_, run) in runs.items()})
        for name, (tokens, _) in runs.items():
            spent = seconds[name]
            yield {
                "setting": name, "precision": precision, "seconds": spent, "per_s": tokens / spent, "unit": "tokens"
            }  # fmt: skip


def orders(world: World) -> Rows:
    """Search by every policy with a reranker that reads joined texts, and with one that values parts."""
    counter = corag.tokens("minilm")
    asked = list(zip(world.queries, world.pools, strict=True))[: world.workload.searched]
    for name, settings in (("cross-encoder", {"model": world.cross_encoder}), ("minilm-multihop", {})):
        reranker = corag.reranker(name, **settings)
        for policy in get_args(search.Policy):
            config, scored, started = search.SearchConfig(policy=policy, max_scored=100), 0, time.perf_counter()
            for query, pool in asked:
                problem = SelectionProblem(query.question, list(pool), counter, BUDGET_TOKENS)
                result = search.search(problem.costs, problem.scorer(reranker), problem.capacity, config)
                scored += result.num_scored
            spent = time.perf_counter() - started
            yield {"setting": f"{name}, {policy}", "seconds": spent, "per_s": scored / spent, "unit": "orders"}


def train_agent(world: World) -> Rows:
    """Train agents of the paper's size on made labels, in which directions of the features say what is best."""
    rows, dimension, num_rerankers = world.workload.rows, 384, 6
    config = agent.AgentConfig(
        feature_dim=dimension,
        configurations=tuple(f"reranker-{number}" for number in range(num_rerankers)),
        fallback=agent.Fallback("reranker-0", 1, 0.0, 0.0),
        ranges=agent.Ranges(iterations=(1, 32), exploration=(0.0, 3.0), cost_weight=(0.0, 0.5)),
        embedder="minilm",
    )
    rng = np.random.default_rng(SEED)
    features = rng.normal(size=(rows, dimension)) / dimension**0.5
    quality = features @ rng.normal(size=(dimension, num_rerankers))
    settings = np.stack([rng.integers(1, 33, rows), rng.uniform(0, 3, rows), rng.uniform(0, 0.5, rows)], axis=1)
    table = agent.TrainingTable(
        features=features.astype(np.float32),
        label=quality.argmax(axis=1),
        settings=settings.astype(np.float32),
        weight=np.ones(rows, dtype=np.float32),
        quality=quality.astype(np.float32),
        ids=tuple(f"q{row}" for row in range(rows)),
    )
    for device in dict.fromkeys((world.device, "cpu")):
        with corag.runtime(device=device), tempfile.TemporaryDirectory() as out:
            training = placed(agent.TrainConfig(epochs=world.workload.epochs, logger="none"))
            started = time.perf_counter()
            agent.fit(table, None, config, training, Path(out))
            spent = time.perf_counter() - started
        yield {"setting": device, "seconds": spent, "per_s": rows * training.epochs / spent, "unit": "questions"}


def train_value(world: World) -> Rows:
    """Describe the questions' candidates on the device, and fit a network that weighs sets of them."""
    reranker = EvidenceReranker(backend="torch")
    read = PassageReader(reranker.encoder)
    settings = FitSettings(epochs=max(1, world.workload.epochs // 2))
    started, tables = time.perf_counter(), []
    for query, pool in list(zip(world.queries, world.pools, strict=True))[: 6 * world.workload.compared]:
        question = read_question(reranker.encoder, query.question, reranker.parts.rarity)
        ids = [candidate.chunk.id for candidate in pool]
        gold = tuple(sorted(ids.index(name) for name in query.gold if name in ids))
        passages = read([candidate.chunk.text for candidate in pool])
        example = ValueExample(query.id, signals(question, passages), (gold,) if gold else ())
        if (table := hypothesise(example, reranker.parts.max_size, settings)) is not None:
            tables.append(table)
    spent = time.perf_counter() - started
    yield {"setting": "features", "seconds": spent, "per_s": len(tables) / spent, "unit": "questions"}
    for device in dict.fromkeys((world.device, "cpu")):
        with tempfile.TemporaryDirectory() as out:
            sources = (EvidenceSource("none"),)
            config = ValueTraining(name="bench", out=out, sources=sources, fit=settings, logger="none", quiet=True)
            started = time.perf_counter()
            fit_networks(tables, np.ones((len(tables), 1)), [SEED], config, "bench", device)
            spent = time.perf_counter() - started
        done = len(tables) * settings.epochs
        yield {"setting": device, "seconds": spent, "per_s": done / spent, "unit": "questions"}


STAGES: tuple[Callable[[World], Rows], ...] = (parity, speed, orders, train_agent, train_value)

"""Benchmarks of CORAG itself: the search core, a selection, a device; a table and a JSON file for each.

`search`: the core's own time. `selection`: latency and throughput, cold and warm, beside sentence-transformers' cosine
of the same question and candidates with the same weights, which chooses nothing. Cold: nothing is known of the question
or of its candidates; warm: the same question again. `gpu`: each reranker's parity with fp32 on the CPU, its speed and
memory, in at most nine minutes and without network; with `--device cpu` it measures the CPU.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Literal, get_args

import numpy as np

import corag
import search
from common.checks import check_budget, check_count
from common.configuration import split_parts
from common.storage import write_atomically
from corag.cli.console import print_table
from corag.errors import DataError
from corag.memory import clear_caches, used_bytes
from corag.models.runtime import Precision as Precision
from corag.models.runtime import Runtime, hardware_of, in_runtime, resolve_device
from corag.optional import require
from corag.registry import RERANKERS, SELECTORS
from corag.text.chunking import DEFAULT_BUDGET, ChunkConfig, chunk_document
from corag.text.data import DataFolder
from corag.text.documents import Document, passage
from corag.text.tokens import model_folder
from corag.types import Candidate
from experiments import demo
from experiments.run.journal import versions
from search import Order, SearchConfig
from search.types import FloatArray

Part = Literal["search", "selection", "gpu"]
Clock = Literal["wall", "cpu"]
CLOCKS: dict[Clock, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}

PooledQuestion = tuple[str, Sequence[Candidate]]
"""A question with its candidates."""
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class BenchConfig(Runtime):
    """Measure a part of CORAG.

    Attributes:
        part: `search`: time of the search core. `selection`: latency and throughput of selectors, cold and warm, beside
            sentence-transformers' cosine. `gpu`: parity with the CPU, speed and memory on `--device`, in at most nine
            minutes.
        rounds: Interleaved runs of each timed setting; the median counts.
        clock: `wall` time, or `cpu` time of all threads together for a shared machine, best with one thread.
        questions: Questions of `selection` and `gpu`.
        data: Data folder whose questions have candidates, for `selection` and `gpu`; by default the demo.
        methods: Selectors for `selection`, or rerankers for `gpu`, separated by commas; by default those that ship.
        budget: Token budget; `selection` only.
        out: Folder for `bench-<part>.json`.
    """

    part: Part
    rounds: int = 3
    clock: Clock = "wall"
    questions: int = 20
    data: str | None = None
    methods: str | tuple[str, ...] = ""
    budget: int = DEFAULT_BUDGET
    out: str = "runs/bench"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_budget(self.budget)
        for name in ("rounds", "questions"):
            check_count(name, getattr(self, name), "leave it out for the default")
        for method in split_parts(self.methods):
            (RERANKERS if self.part == "gpu" else SELECTORS).check(method)

    def timed(self, run: Callable[[], Any]) -> tuple[float, Any]:
        """Return the seconds of a run, and what it returned."""
        now = CLOCKS[self.clock]
        started = now()
        result = run()
        return now() - started, result


@in_runtime
def bench(config: BenchConfig) -> dict[str, Any]:
    """Run a benchmark, print its table, and write its JSON file."""
    Path(config.out).mkdir(parents=True, exist_ok=True)
    measure, title = BENCHMARKS[config.part]
    rows = measure(config)
    hardware = hardware_of(resolve_device("reranker").device)
    result = {"settings": asdict(config), "hardware": hardware, "versions": versions(), "rows": rows}
    columns = list(dict.fromkeys(name for row in rows for name in row))
    cells = [
        [f"{cell:.3f}" if isinstance(cell := row.get(name, "-"), float) else str(cell) for name in columns]
        for row in rows
    ]
    print_table(columns, cells, title)
    write_atomically(Path(config.out) / f"bench-{config.part}.json", json.dumps(result, indent=2) + "\n")
    return result


def pooled_questions(data: str | None, number: int) -> list[PooledQuestion]:
    """Return questions with their candidates: of a data folder, or of the demo 20 chunks from the evidence's topic on.

    `DataError` if no question has candidates.
    """
    if data is not None:
        folder = DataFolder.open(data)
        queries = [query for query in folder.queries if query.candidates][:number]
        if not queries:
            raise DataError(f"no question of {data} has a list of candidates; give a folder whose questions have")
        return [
            (one.question, [Candidate(passage(folder.documents[n])) for n in one.candidates or ()]) for one in queries
        ]
    content, counter = demo.load(), corag.tokens()
    documents = [Document(row["id"], row["text"], row["title"]) for row in content.documents]
    chunks = [chunk for one in documents for chunk in chunk_document(one, counter, ChunkConfig(128))]
    topics = [chunk.metadata["document"] for chunk in chunks]
    starts = [topics.index(query["topics"][0]) for query in content.queries[:number]]
    pools = [[Candidate(chunk, 1 / rank) for rank, chunk in enumerate(chunks[at : at + 20], 1)] for at in starts]
    return [(query["question"], pool) for query, pool in zip(content.queries, pools, strict=False)]


# The search core.

NUM_CHUNKS, CHUNK_TOKENS, BUDGET_TOKENS = 50, 100, 1024


def measure_search(config: BenchConfig) -> Rows:
    """Time the tree at two sizes, and every policy at 80 scored orders."""
    tree, capped = SearchConfig(policy="paper"), SearchConfig(iterations=1000, max_scored=80)
    settings = {f"paper, {number} iterations": replace(tree, iterations=number) for number in (10, 400)}
    settings |= {f"{policy}, 80 orders": replace(capped, policy=policy) for policy in get_args(search.Policy)}
    costs, rows = np.full(NUM_CHUNKS, CHUNK_TOKENS), []
    for name, one in settings.items():
        runs = [
            config.timed(partial(search.search, costs, _free_scorer, BUDGET_TOKENS, one)) for _ in range(config.rounds)
        ]
        ms, orders = 1e3 * median(seconds for seconds, _ in runs), runs[0][1].num_scored
        rows.append({"setting": name, "orders": orders, "ms": ms, "us_per_order": 1e3 * ms / orders})
    return rows


def _free_scorer(orders: Sequence[Order]) -> FloatArray:
    """Return values that depend on nothing but their number: repeatable and nearly free."""
    return np.random.default_rng(0).random(len(orders))


# A selection.

METHODS = "top-k,corag,corag(unit=passage),corag(reranker=minilm-softsim)"


def measure_selection(config: BenchConfig) -> Rows:
    """Time each selector on each question, in turn with the cosine, and then all questions together."""
    asked = pooled_questions(config.data, config.questions)
    bi_encoder = require("sentence_transformers", "models").SentenceTransformer(str(model_folder()), device="cpu")

    def cosine(question: str, candidates: Sequence[Candidate]) -> None:
        vectors = bi_encoder.encode([question, *(candidate.chunk.text for candidate in candidates)])
        bi_encoder.similarity(vectors[:1], vectors[1:])

    rows = []
    for method in split_parts(config.methods or METHODS):
        selector: Any = SELECTORS.make(method)
        times = np.zeros((config.rounds + 1, len(asked), 3))
        for number, question in np.ndindex(times.shape[:2]):
            select = partial(selector.select, *asked[question], config.budget)
            clear_caches()
            runs = (partial(cosine, *asked[question]), select, select)
            times[number, question] = [config.timed(run)[0] for run in runs]
        # The first round loads and compiles, and does not count.
        of_cosine, cold, warm = 1e3 * times[1:].reshape(-1, 3).T
        clear_caches()
        together, _ = config.timed(partial(list, selector.select_each(asked, config.budget)))
        rows.append(
            {
                "setting": method,
                "cosine_p50": float(np.median(of_cosine)),
                "of_cosine": float(np.median(cold / of_cosine)),
                **{f"cold_p{share}": float(np.percentile(cold, share)) for share in (50, 95)},
                **{f"warm_p{share}": float(np.percentile(warm, share)) for share in (50, 95)},
                "per_s": len(asked) / together,
                "cache_mb": used_bytes() / 1e6,
            }
        )
    return rows


# A device.

SECONDS = 540.0
"""No row starts after this many seconds."""


def measure_device(config: BenchConfig) -> Rows:
    """Measure every reranker at every precision; one that fails says so in its row."""
    ends, device = time.monotonic() + SECONDS, resolve_device("reranker").device
    questions, rows = pooled_questions(config.data, config.questions), Rows()
    shipped = [name for name in RERANKERS.local if "backend" in RERANKERS.parameters(name)]
    for name in split_parts(config.methods) or shipped:
        try:
            for row in _rows(name, device, questions, config):
                rows.append({"setting": name, **row})
                if time.monotonic() > ends:
                    return [*rows, {"setting": name, "error": "no time was left"}]
        except Exception as error:  # noqa: BLE001 - a reranker that fails leaves the others their time
            rows.append({"setting": name, "error": f"{type(error).__name__}: {error}"})
    return rows


def _rows(name: str, device: str, questions: Sequence[PooledQuestion], config: BenchConfig) -> Iterator[dict[str, Any]]:
    """Yield a row for each precision of a reranker; both devices run PyTorch, parity is that of a few questions."""
    cuda = require("torch", "models").cuda if device.startswith("cuda") else None
    compared = questions[: max(1, len(questions) // 5)]
    exact = _values(name, compared, "cpu", "fp32")
    for precision in ("fp32", "bf16") if device == "cpu" else ("fp32", "bf16", "fp16"):
        clear_caches()
        if cuda:
            cuda.empty_cache()
            cuda.reset_peak_memory_stats(device)
        difference = np.abs(_values(name, compared, device, precision) - exact).max()
        times = []
        for _ in range(config.rounds):
            clear_caches()
            times.append(config.timed(partial(_values, name, questions, device, precision))[0])
        row = {"precision": precision, "largest_difference": float(difference)}
        row |= {"seconds": median(times), "per_s": len(questions) / median(times)}
        if cuda:
            row["gpu_peak_gb"] = cuda.max_memory_allocated(device) / 1e9
        yield row


def _values(name: str, questions: Sequence[PooledQuestion], device: str, precision: str) -> FloatArray:
    """Return a reranker's values of single candidates and of neighbours, those of each question behind another."""
    settings = {"backend": "torch"} if "backend" in RERANKERS.parameters(name) else {}
    reranker, values = corag.reranker(name, device=device, precision=precision, **settings), []
    for question, pool in questions:
        orders: list[Order] = [(row,) for row in range(len(pool))]
        orders += [(row, row + 1) for row in range(len(pool) - 1)]
        values.append(reranker.scorer(question, [one.chunk for one in pool])(orders))
    return np.concatenate(values)


BENCHMARKS: dict[Part, tuple[Callable[[BenchConfig], Rows], str]] = {
    "search": (
        measure_search,
        f"search core, {NUM_CHUNKS} chunks of {CHUNK_TOKENS} tokens, budget {BUDGET_TOKENS}, values that cost nothing",
    ),
    "selection": (
        measure_selection,
        "a selection, ms, beside the cosine of sentence-transformers; many questions a second through select_each",
    ),
    "gpu": (measure_device, "on a device: parity with fp32 on the CPU, speed and memory"),
}

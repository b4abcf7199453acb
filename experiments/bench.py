"""Benchmarks of CORAG itself: the search core, a selection, a device; a table and a JSON file for each.

`search`: the core's own time, and the optima that each policy finds per scored order on small problems that can be
solved exactly. `selection`: latency and throughput, cold and warm, beside sentence-transformers' cosine of the same
question and candidates with the same weights, which chooses nothing. Cold: nothing is known of the question or of its
candidates; warm: the same question again. `gpu`: every shipped model's parity with fp32 on the CPU, its speed and
memory, in at most nine minutes and without network; with `--device cpu` it measures the CPU.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain, islice, zip_longest
from pathlib import Path
from statistics import fmean, median
from time import perf_counter, process_time
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import numpy as np

import corag
import search
from corag.ambient import counted
from corag.checks import check_budget, check_count
from corag.cli.console import progress, stdout, table
from corag.errors import DataError
from corag.memory import clear_caches, used_bytes
from corag.models.devices import hardware_of
from corag.models.engine import quiet
from corag.models.minilm import from_folder
from corag.models.runtime import Precision as Precision
from corag.models.runtime import Runtime, in_runtime, resolve_device
from corag.naming import Spellings, split_parts
from corag.optional import require
from corag.registry import SELECTORS
from corag.registry import tokens as make_tokens
from corag.text.chunking import DEFAULT_BUDGET, ChunkConfig, chunk_document
from corag.text.data import DataFolder
from corag.text.documents import Document, passage
from corag.text.tokens import model_folder
from corag.types import Candidate
from corag.writing import write_atomically
from experiments import demo
from experiments.data.config import comma_separated
from experiments.run.journal import versions
from search import Order, SearchConfig
from search.types import FloatArray, IntArray

Part = Literal["search", "selection", "gpu"]
T = TypeVar("T")
Clock = Literal["wall", "cpu"]
CLOCKS: Mapping[Clock, Callable[[], float]] = {"wall": perf_counter, "cpu": process_time}
"""`cpu` adds up the seconds of all threads of this process: other programs on the machine distort it less."""

PooledQuestion = tuple[str, Sequence[Candidate]]
"""A question with its candidates."""


@dataclass(frozen=True)
class BenchConfig(Runtime):
    """Measure a part of CORAG.

    Attributes:
        part: `search`: time of the search core, and optima that each policy finds per scored order. `selection`:
            latency and throughput of selectors, cold and warm, beside sentence-transformers' cosine. `gpu`: parity with
            the CPU, speed and memory on `--device`, in at most nine minutes.
        rounds: Interleaved runs of each timed setting; the median counts. By default 11 for `search`, else 3.
        clock: `wall` time, or `cpu` time of all threads together for a shared machine, best with one thread.
        questions: Questions for `selection` (by default 20).
        data: Data folder whose questions have candidates, for `selection` (or several, separated by commas) and `gpu`;
            by default the demo.
        methods: Selectors, separated by commas; `selection` only.
        budget: Token budget; `selection` only.
        weights: Folder with MiniLM's files, in any precision, in place of its package.
        small: Measure little, to try it out; not for `selection`, which has `questions`.
        out: Folder for `bench-<part>.json`.
    """

    part: Part
    rounds: int | None = None
    clock: Clock = "wall"
    questions: int | None = None
    data: str | None = None
    methods: Spellings | None = None
    budget: int = DEFAULT_BUDGET
    weights: str | None = None
    small: bool = False
    out: str = "runs/bench"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_budget(self.budget)
        for name in ("rounds", "questions"):
            if (value := getattr(self, name)) is not None:
                check_count(name, value, "leave it out for the default")
        for method in split_parts(self.methods):
            SELECTORS.check(method)


@dataclass(frozen=True)
class Timing:
    """How settings are timed: runs of each, whose median counts, and the clock."""

    rounds: int
    now: Callable[[], float] = perf_counter

    def run(self, runs: Mapping[str, Callable[[], T]]) -> tuple[dict[str, float], dict[str, T]]:
        """Return the median seconds of each setting, and what its last run returned.

        Every round runs all settings in turn, so that a slow moment of the machine affects them alike.
        """
        times: dict[str, list[float]] = {name: [] for name in runs}
        results: dict[str, T] = {}
        for _ in counted("rounds", range(self.rounds)):
            for name, run in runs.items():
                started = self.now()
                results[name] = run()
                times[name].append(self.now() - started)
        return {name: median(values) for name, values in times.items()}, results


@in_runtime
def bench(config: BenchConfig) -> dict[str, Any]:
    """Run a benchmark, print its table, and write its JSON file."""
    Path(config.out).mkdir(parents=True, exist_ok=True)
    one = BENCHMARKS[config.part]
    timing = Timing(config.rounds or one.rounds, CLOCKS[config.clock])
    with (
        progress(f"bench {config.part}", between=True) as report,
        from_folder(config.weights) if config.weights else nullcontext(),
    ):
        rows = one.measure(config, timing)
        device = resolve_device("reranker").device
        report(1, 1)
    result: dict[str, Any] = {
        "part": config.part,
        "rounds": timing.rounds,
        "clock": config.clock,
        "settings": asdict(config),
        "hardware": hardware_of(device),
        "versions": versions(),
        "rows": rows,
    }
    console = stdout()
    # Rather a line that is too long than cells that are cut.
    console.width = max(console.width, 120)
    console.print(table(rows, one.columns, title=one.title))
    write_atomically(Path(config.out) / f"bench-{config.part}.json", json.dumps(result, indent=2) + "\n")
    return result


def pooled_questions(data: str | None, number: int, num_candidates: int | None = None) -> list[PooledQuestion]:
    """Return questions with their candidates: of the demo, or of data folders, by path or name, taken in turn.

    Candidates are the first `num_candidates`, by default 20 of the demo, from the start of the evidence's topic, and
    all of a folder's question. `DataError` if no question has candidates.
    """
    if not data:
        return _demo_questions(num_candidates or 20)[:number]
    each = []
    for folder in map(DataFolder.open, comma_separated(data)):
        asked = [(query.question, query.candidates[:num_candidates]) for query in folder.queries if query.candidates]
        pooled = [
            (text, [Candidate(passage(folder.documents[name])) for name in names]) for text, names in asked[:number]
        ]
        each.append(pooled)
    questions = list(islice(filter(None, chain.from_iterable(zip_longest(*each))), number))
    if not questions:
        raise DataError(f"no question of {data} has a list of candidates; give a folder whose questions have")
    return questions


def _demo_questions(num_candidates: int) -> list[PooledQuestion]:
    content, counter = demo.load(), make_tokens()
    documents = [Document(row["id"], row["text"], row["title"]) for row in content.documents]
    chunks = [chunk for one in documents for chunk in chunk_document(one, counter, ChunkConfig(128))]
    starts: dict[str, int] = {}
    for row, chunk in enumerate(chunks):
        starts.setdefault(chunk.metadata["document"], row)
    pools = [(chunks + chunks)[starts[query["topics"][0]] :][:num_candidates] for query in content.queries]
    return [
        (query["question"], [Candidate(chunk, 1 / rank) for rank, chunk in enumerate(pool, 1)])
        for query, pool in zip(content.queries, pools, strict=True)
    ]


# The search core.

NUM_CHUNKS, CHUNK_TOKENS, BUDGET_TOKENS = 50, 100, 1024
LARGE_TREE = 2100
"""Iterations that make a tree of about 100,000 nodes."""
CAPS = (48, 179)
"""Orders that a policy may score of a small problem; those have about 940."""
BUDGET, MAX_LENGTH = 430, 5
"""Of a small problem: upper bounds on the cost of an order, and on its candidates."""
DILUTION, SCALE = 0.12, 0.5
"""Weight of the squared cost, per (100 cost units)^2, and the factor on every value."""


def measure_search(config: BenchConfig, timing: Timing) -> list[dict[str, Any]]:
    """Measure the core, and the policies on five sets of 60 problems; return the rows of the table.

    With `small`, a tree of 1,000 nodes, and one set of two problems.
    """
    if config.small:
        return [*core_rows(timing, 21), *policy_rows([problems(1000, sizes=(4, 5), per_size=1)])]
    return [*core_rows(timing, LARGE_TREE), *policy_rows([problems(seed) for seed in range(1000, 1005)])]


def core_rows(timing: Timing, large_tree: int) -> Iterator[dict[str, Any]]:
    """Time the tree search, a tree of `large_tree` iterations, and every policy at 80 scored orders."""
    tree, capped = SearchConfig(policy="paper"), SearchConfig(iterations=1000, max_scored=80)
    settings = {f"{policy}, 80 orders": replace(capped, policy=policy) for policy in get_args(search.Policy)}
    large = {f"paper, {large_tree:,} iterations": replace(tree, iterations=large_tree)}
    costs = np.full(NUM_CHUNKS, CHUNK_TOKENS)
    for rounds, group in ((timing.rounds, {"paper, 10 iterations": tree} | settings), (min(timing.rounds, 3), large)):
        runs = {name: partial(search.search, costs, _free_scorer, BUDGET_TOKENS, one) for name, one in group.items()}
        seconds, results = replace(timing, rounds=rounds).run(runs)
        for name, result in results.items():
            ms = 1e3 * seconds[name]
            yield {"setting": name, "orders": result.num_scored, "ms": ms, "us_per_order": 1e3 * ms / result.num_scored}


def policy_rows(drawn: Sequence[Sequence[SyntheticProblem]]) -> Iterator[dict[str, Any]]:
    """Yield for each policy and cap the orders scored of a problem, and the optima found of a set, on average."""
    every = [problem for some in drawn for problem in some]
    best = [search.exhaustive(one.costs, one, BUDGET, MAX_LENGTH).value for one in counted("optima", every)]
    base = SearchConfig(iterations=1000, max_length=MAX_LENGTH)
    for policy in counted("policies", get_args(search.Policy)):
        for cap in CAPS:
            scored = [_scored(problem, replace(base, policy=policy, max_scored=cap)) for problem in every]
            found = [
                max(values, default=-np.inf) >= optimum - 1e-9 for values, optimum in zip(scored, best, strict=True)
            ]
            yield {
                "setting": f"{policy}, at most {cap} orders",
                "orders": fmean(map(len, scored)),
                "optima": sum(found) / len(drawn),
            }


def _scored(problem: SyntheticProblem, config: SearchConfig) -> list[float]:
    """Return the value of every order that a search scores."""
    values: list[float] = []

    def scorer(orders: Sequence[Order]) -> FloatArray:
        new = problem(orders)
        values.extend(new.tolist())
        return new

    search.search(problem.costs, scorer, BUDGET, config)
    return values


def _free_scorer(orders: Sequence[Order]) -> FloatArray:
    """Return values that depend on nothing but their number: repeatable and nearly free."""
    return np.random.default_rng(0).random(len(orders))


@dataclass(frozen=True, slots=True)
class SyntheticProblem:
    """One problem and its scorer; arrays `[C]` or `[C, C]`, `redundancy` symmetric with a zero diagonal."""

    costs: IntArray
    relevance: FloatArray
    redundancy: FloatArray
    bonus: FloatArray

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Score orders, `[len(orders)]`."""
        return np.array([self._score(list(order)) for order in orders])

    def _score(self, order: list[int]) -> float:
        redundancy = self.redundancy[np.ix_(order, order)].sum() / 2
        bonus = self.bonus[order[:-1], order[1:]].sum()
        dilution = SCALE * DILUTION * (self.costs[order].sum() / 100) ** 2
        return float(self.relevance[order].sum() - redundancy + bonus - dilution)


def problems(seed: int, sizes: Sequence[int] = (4, 5, 6, 7, 8), per_size: int = 12) -> list[SyntheticProblem]:
    """Draw `per_size` problems of every size, the same ones for the same seed; they have about 940 feasible orders."""
    rng = np.random.default_rng(seed)
    return [_problem(rng, size) for size in sizes for _ in range(per_size)]


def _problem(rng: np.random.Generator, size: int) -> SyntheticProblem:
    # Ranks are uninformative, so that no policy gains from them. 30% of the pairs are redundant, 17% have a bonus.
    pairs = (size, size)
    redundancy = np.triu(rng.uniform(0, 1.1, pairs) * (rng.random(pairs) < 0.3), 1)
    bonus = rng.uniform(0, 1.3, pairs) * (rng.random(pairs) < 0.17)
    return SyntheticProblem(
        costs=rng.integers(50, 150, size, endpoint=True),
        relevance=SCALE * rng.uniform(0, 1, size),
        redundancy=SCALE * (redundancy + redundancy.T),
        bonus=SCALE * bonus,
    )


# A selection.

METHODS = "top-k,corag,corag(unit=passage),corag(reranker=minilm-softsim)"
QUESTIONS = 20
COSINE = "sentence-transformers' cosine"
STATES = ("cold", "warm")


def measure_selection(config: BenchConfig, timing: Timing) -> list[dict[str, Any]]:
    """Time each selector on each question in turn, and return the rows of the table."""
    asked = pooled_questions(config.data, config.questions or QUESTIONS)
    # Selectors of the project also take many questions at once.
    selectors: dict[str, Any] = {method: SELECTORS.make(method) for method in split_parts(config.methods or METHODS)}
    bi_encoder = require("sentence_transformers", "models").SentenceTransformer(str(model_folder()), device="cpu")
    seconds: dict[str, list[float]] = {f"{name} {state}": [] for name in (*selectors, COSINE) for state in STATES}
    now = timing.now
    # The first round loads and compiles, and does not count.
    for number in counted("rounds", range(timing.rounds + 1)):
        for question, candidates in asked if number else asked[:1]:
            started = now()
            vectors = bi_encoder.encode([question, *(candidate.chunk.text for candidate in candidates)])
            bi_encoder.similarity(vectors[:1], vectors[1:])
            seconds[f"{COSINE} cold"] += [now() - started] if number else []
            for name, selector in selectors.items():
                clear_caches()
                for state in STATES:
                    started = now()
                    selector.select(question, candidates, config.budget)
                    seconds[f"{name} {state}"] += [now() - started] if number else []
    cosine = np.array(seconds[f"{COSINE} cold"])
    rows = [{"setting": COSINE, **_percentiles("cold", seconds[f"{COSINE} cold"])}]
    for name, selector in counted("throughput", list(selectors.items())):
        clear_caches()
        started = now()
        for _ in selector.select_each(asked, config.budget):
            pass
        rows.append(
            {
                "setting": name,
                **_percentiles("cold", seconds[f"{name} cold"]),
                "of_cosine": float(np.median(np.array(seconds[f"{name} cold"]) / cosine)),
                **_percentiles("warm", seconds[f"{name} warm"]),
                "per_s": len(asked) / (now() - started),
                "cache_mb": used_bytes() / 1e6,
            }
        )
    return rows


def _percentiles(state: str, seconds: list[float]) -> dict[str, Any]:
    return {f"{state}_p{share}": 1e3 * float(np.percentile(seconds, share)) for share in (50, 95)}


# A device.

SECONDS = 540.0
"""No row starts after this many seconds."""
BASE = {"num_hidden_layers": 12, "hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12}
"""Shape of the cross-encoder."""
TINY = {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 1}
"""Shape of a cross-encoder to try a benchmark out with."""

Run = Callable[[Sequence[PooledQuestion]], FloatArray]
"""Values of a part for questions, `[questions, values]`."""


def measure_device(config: BenchConfig, timing: Timing) -> list[dict[str, Any]]:
    """Measure every part at every precision, and return the rows of the table; one that fails says so in its row."""
    ends, small = time.monotonic() + SECONDS, config.small
    num_candidates, compared, timed = (3, 1, 2) if small else (20, 10, 50)
    questions = pooled_questions(config.data, timed, num_candidates)
    device = resolve_device("reranker").device
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = str(save_cross_encoder(Path(scratch), **(TINY if small else BASE)))
        parts: dict[str, Callable[..., Run]] = {"minilm embedder": _embedder}
        shipped = [name for name in corag.RERANKERS.local if "backend" in corag.RERANKERS.settings(name)]
        parts |= {name: partial(_reranker, name, backend="torch") for name in shipped}
        parts["cross-encoder"] = partial(_reranker, "cross-encoder", model=folder)
        for name, make in parts.items():
            try:
                for row in _rows(make, device, questions, compared, timing):
                    rows.append({"setting": name, **row})
                    if time.monotonic() > ends:
                        return [*rows, {"setting": name, "error": "no time was left"}]
            except Exception as error:  # noqa: BLE001 - a part that fails leaves the others their time
                rows.append({"setting": name, "error": f"{type(error).__name__}: {error}"})
    return rows


def _rows(
    make: Callable[..., Run], device: str, questions: Sequence[PooledQuestion], compared: int, timing: Timing
) -> Iterator[dict[str, Any]]:
    """Yield a row for each precision of one part; both devices run PyTorch."""
    cuda = require("torch", "models").cuda if device.startswith("cuda") else None
    exact = make(device="cpu", precision="fp32")(questions[:compared])
    for precision in ("fp32", "bf16") if device == "cpu" else ("fp32", "bf16", "fp16"):
        clear_caches()
        if cuda:
            cuda.empty_cache()
            cuda.reset_peak_memory_stats(device)
        run = make(device=device, precision=precision)
        values = run(questions[:compared])
        ranks = [np.argsort(np.argsort(one, axis=1), axis=1) for one in (values, exact)]
        row = {"precision": precision, "largest_difference": float(np.abs(values - exact).max())}
        if values.shape[1] > 1:
            row["rank_correlation"] = float(np.mean([np.corrcoef(*pair)[0, 1] for pair in zip(*ranks, strict=True)]))

        def timed(run: Run = run) -> FloatArray:
            clear_caches()
            return run(questions)

        times, _ = timing.run({"all": timed})
        row |= {"seconds": times["all"], "per_s": len(questions) / times["all"]}
        if cuda:
            row["gpu_peak_gb"] = cuda.max_memory_allocated(device) / 1e9
        yield row


def _embedder(**where: Any) -> Run:
    embedder = corag.embedder("minilm", backend="torch", **where)
    return lambda questions: np.stack([embedder.embed(_texts(pool)).astype(float).ravel() for _, pool in questions])


def _reranker(name: str, **settings: Any) -> Run:
    reranker = corag.reranker(name, **settings)

    def values(questions: Sequence[PooledQuestion]) -> FloatArray:
        rows = []
        for question, pool in questions:
            singles: list[Order] = [(row,) for row in range(len(pool))]
            pairs: list[Order] = [(row, row + 1) for row in range(len(pool) - 1)]
            rows.append(reranker.scorer(question, [one.chunk for one in pool])([*singles, *pairs]))
        return np.array(rows)

    return values


def _texts(pool: Any) -> list[str]:
    return [candidate.chunk.text for candidate in pool]


def save_cross_encoder(folder: Path, **shape: int) -> Path:
    """Save a random BERT cross-encoder with MiniLM's tokenizer, in the layout of a hub checkpoint.

    `shape` are fields of `transformers.BertConfig`.
    """
    torch, transformers = require("torch", "models"), require("transformers", "models")
    source = model_folder()
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(0)
        # Initialised wider than by default, so that values of different texts differ.
        wider = {"initializer_range": 0.05, "num_labels": 1, "local_files_only": True}
        config = transformers.BertConfig.from_pretrained(source, **wider, **shape)
        transformers.BertForSequenceClassification(config).save_pretrained(folder)
    for file in source.glob("tokenizer*.json"):
        shutil.copy(file, folder / file.name)
    return folder


class Benchmark(NamedTuple):
    """What a benchmark measures, its runs by default, and its table: title, and headings of columns."""

    measure: Callable[[BenchConfig, Timing], list[dict[str, Any]]]
    rounds: int
    title: str
    columns: Mapping[str, str]


BENCHMARKS: Mapping[Part, Benchmark] = {
    "search": Benchmark(
        measure_search,
        11,
        f"search core, {NUM_CHUNKS} chunks of {CHUNK_TOKENS} tokens, budget {BUDGET_TOKENS}, values that cost nothing; "
        "below: policies on small problems, optima found of 60",
        {"setting": "setting", "orders": "orders scored", "ms": "ms a search", "us_per_order": "us an order",
         "optima": "optima found"},
    ),
    "selection": Benchmark(
        measure_selection,
        3,
        "a selection, ms; many questions through select_each, questions a second",
        {"setting": "selector", "cold_p50": "cold p50", "cold_p95": "p95", "of_cosine": "of the cosine",
         "warm_p50": "warm p50", "warm_p95": "p95", "per_s": "questions/s", "cache_mb": "cache, MB"},
    ),
    "gpu": Benchmark(
        measure_device,
        3,
        "on a device: parity with fp32 on the CPU, speed and memory",
        {"setting": "setting", "precision": "precision", "largest_difference": "largest difference",
         "rank_correlation": "rank corr.", "seconds": "seconds", "per_s": "questions/s", "gpu_peak_gb": "GPU, GB",
         "error": "error"},
    ),
}  # fmt: skip

"""What a larger corpus costs: time, memory and recall of retrieval, and the selection by `top-k` and `corag` after it.

The paper of CORAG (section 6.2.4) reports retrieval 10% slower than traditional methods on 100,000 chunks and more.
A corpus of any size is made from real chunks: each made chunk joins a third of each of three of them, and its vector is
a weighted mean of theirs. Questions are real. Each size is measured in a process of its own, whose memory is its alone.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, median
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from corag.budget import Budget
from corag.checks import check_count
from corag.cli.console import progress
from corag.errors import IndexMismatchError
from corag.index import ChunkIndex, Retrieval
from corag.models.vectors import vectors_by
from corag.naming import Spellings, split_parts
from corag.registry import embedder as make_embedder
from corag.registry import selector as make_selector
from corag.text.chunking import DEFAULT_BUDGET, ChunkConfig, chunk_documents
from corag.text.data import read_corpus
from corag.text.tokens.files import minilm
from corag.types import Chunk
from experiments.bench.breakdown import Chain, data_folder, spread
from experiments.bench.harness import Timing, finished, lines, memory_mb, peak_mb
from experiments.run.drawing import new_figure
from experiments.run.journal import write_atomically

T = TypeVar("T")
Real: TypeAlias = tuple[Sequence[Chunk], NDArray[np.float32]]
"""Real chunks and their vectors."""

SIZES = (1_000, 10_000, 100_000)
METHODS = "top-k,corag"
NUM_QUESTIONS = 20
NUM_CANDIDATES = 20
REAL_TOKENS = 256
"""Most tokens of a real chunk; made chunks have about as many."""
MOST_REAL = 2_000
"""More real chunks than this are not used."""
RECALL_AT = 20
ROUNDS = 1
SEED = 0
TITLE = (
    f"medians of a question by size of the corpus; recall@{RECALL_AT} of vectors against exact search; index: memory "
    "that searching it takes; x: times the first selector's; peak memory of the building and of the asking process"
)
COLUMNS = {
    "setting": "", "build_s": "build, s", "build_mb": "MB of it", "vector_ms": "vectors, ms", "hybrid_ms": "hybrid, ms",
    "recall": "recall", "index_mb": "index, MB", "select_ms": "select, ms", "ms": "in all, ms", "ratio": "x",
    "peak_mb": "memory, MB", "disk_mb": "disk, MB",
}  # fmt: skip
# Chunks are drawn in blocks, so that each can be made by itself.
_BLOCK = 1_000
_BATCH = 4_000


class MadeChunks:
    """A corpus of any size made from real chunks; as an embedder it knows the vectors of its own texts.

    Args:
        chunks: Real chunks, at least 1.
        vectors: Their unit vectors, `[n, d]`.
    """

    def __init__(self, chunks: Sequence[Chunk], vectors: NDArray[np.float32]) -> None:
        self._words = [chunk.text.split() for chunk in chunks]
        self._vectors = vectors
        self.dimension = vectors.shape[1]
        digest = hashlib.sha256(vectors.tobytes())
        digest.update("\n".join(chunk.text for chunk in chunks).encode())
        self.name = f"made-{digest.hexdigest()[:12]}"
        self._drawn = lru_cache(maxsize=8)(self._draw)

    def chunk(self, number: int) -> Chunk:
        """Return a made chunk; `number` is from 0."""
        members, _, begins = self._drawn(number // _BLOCK)
        parts = []
        for member, begin in zip(members[number % _BLOCK], begins[number % _BLOCK], strict=True):
            words = self._words[member]
            length = max(1, len(words) // 3)
            at = int(begin * (len(words) - length + 1))
            parts += words[at : at + length]
        return Chunk(f"made-{number}", f"Made chunk {number}\n{' '.join(parts)}")

    def vectors(self, numbers: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the unit vectors of made chunks, `[len(numbers), d]`."""
        found = np.empty((len(numbers), self.dimension), dtype=np.float32)
        for block in np.unique(numbers // _BLOCK):
            rows = numbers // _BLOCK == block
            members, weights, _ = self._drawn(int(block))
            at = numbers[rows] % _BLOCK
            mixed = np.einsum("nk,nkd->nd", weights[at], self._vectors[members[at]])
            found[rows] = mixed / np.linalg.norm(mixed, axis=1, keepdims=True)
        return found

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of made chunks by their texts, `[len(texts), d]`."""
        return self.vectors(np.array([int(text.partition("\n")[0].rpartition(" ")[2]) for text in texts], np.int64))

    def _draw(self, block: int) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """Return for each chunk of a block its three real chunks, their weights, and where a third of each begins."""
        rng = np.random.default_rng([SEED, block])
        members = rng.integers(len(self._words), size=(_BLOCK, 3))
        return members, rng.dirichlet((1, 1, 1), size=_BLOCK), rng.random((_BLOCK, 3))


def bench_growth(
    timing: Timing,
    *,
    data: str = "",
    sizes: Sequence[int] = SIZES,
    methods: Spellings = METHODS,
    num_questions: int = NUM_QUESTIONS,
    num_candidates: int = NUM_CANDIDATES,
    budget: int = DEFAULT_BUDGET,
    indexes: str | Path = "runs/bench/indexes",
    quiet: bool = False,
) -> dict[str, list[dict[str, Any]]]:
    """Measure each size; indexes are kept, and `growth.json` beside them is written as sizes finish.

    Args:
        timing: Rounds, each with new selectors that know nothing of the questions' chunks, and clock.
        data: Data folder of the real chunks and questions, by path or name; empty for the demo corpus.
        sizes: Numbers of chunks.
        methods: Selectors, separated by commas; the first is what the others are compared with.
        num_questions: Questions, spread over those there are; one more warms up.
        num_candidates: Chunks that the index offers.
        budget: Token budget.
        indexes: Folder that keeps the indexes; one that is there is used again.
        quiet: Show no progress.

    Returns:
        `rows`: for each size and method `chunks`; `build_s` and `build_mb`, the time and the peak memory of the build
        when it ran, made vectors included; `vector_ms` and `hybrid_ms`, the median retrieval; `recall` of vectors;
        `index_mb` of private memory that opening and searching the index take; `select_ms`, the median selection;
        `ms`, the median from question to prompt, and its `ratio` to the first method's; `peak_mb` of the process with
        all methods; `disk_mb` of the index.

    Raises:
        InputError: A size or number below 1, or no method.
    """
    for size in sizes:
        check_count("sizes", size, "1,000 to 1,000,000 are usual")
    check_count("questions", num_questions, "20 to 100 are usual")
    root = Path(indexes)
    root.mkdir(parents=True, exist_ok=True)
    folder = data_folder(data, root)
    real = _real(folder.path, root, quiet)
    made = MadeChunks(*real)
    questions = spread(folder.queries, num_questions + 1)
    settings = {
        "questions": questions, "methods": split_parts(methods), "num_candidates": num_candidates, "budget": budget,
        "timing": timing, "quiet": quiet,
    }  # fmt: skip
    rows: list[dict[str, Any]] = []
    for size in sorted(set(sizes)):
        uri = root / f"{made.name}-{size}"
        _in_own_process(_built, uri, size, real, settings)
        rows += _in_own_process(_measured, uri, size, real, settings)
        write_atomically(root / "growth.json", json.dumps(rows, indent=2) + "\n")
    return {"rows": rows}


def _real(folder: Path, root: Path, quiet: bool) -> Real:
    """Return the first chunks of a data folder and their vectors, which are kept in `root`."""
    cut = chunk_documents(read_corpus(folder).values(), minilm(), ChunkConfig(REAL_TOKENS))
    chunks = list(islice(cut, MOST_REAL))
    texts = [chunk.text for chunk in chunks]
    kept = root / f"vectors-{hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:12]}.npy"
    if kept.exists():
        return chunks, np.load(kept, allow_pickle=False)
    embedder, vectors = make_embedder(), []
    with progress("vectors of real chunks", quiet=quiet) as report:
        for begin in range(0, len(texts), 64):
            vectors.append(vectors_by(embedder, texts[begin : begin + 64], unit=True))
            report(min(begin + 64, len(texts)), len(texts))
    whole = np.concatenate(vectors)
    buffer = io.BytesIO()
    np.save(buffer, whole, allow_pickle=False)
    write_atomically(kept, buffer.getvalue())
    return chunks, whole


def _in_own_process(step: Callable[..., T], *arguments: Any) -> T:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(step, *arguments).result()


def _built(uri: Path, size: int, real: Real, settings: Mapping[str, Any]) -> None:
    """Build an index that is not there; what that took is kept beside it."""
    now = settings["timing"].now
    started = now()
    if _build(uri, MadeChunks(*real), size, settings["quiet"]):
        spent = {"build_s": now() - started, "build_mb": peak_mb()}
        write_atomically(_spent(uri), json.dumps(spent))


def _spent(uri: Path) -> Path:
    return uri.with_name(f"{uri.name}-build.json")


def _build(uri: Path, made: MadeChunks, size: int, quiet: bool) -> bool:
    """Build the index, or go on where that was interrupted; False if it is complete."""
    try:
        if len(ChunkIndex.open(uri, made)) == size:
            return False
    except IndexMismatchError:
        pass
    chunks = (made.chunk(number) for number in range(size))
    with progress(f"index of {size:,} chunks", quiet=quiet) as report:
        ChunkIndex.build(uri, chunks, made, batch_size=_BATCH, progress=report)
    return True


def _measured(uri: Path, size: int, real: Real, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each selector."""
    timing: Timing = settings["timing"]
    embedder, questions = make_embedder(), settings["questions"]
    queries = vectors_by(embedder, questions, unit=True)
    before_mb = memory_mb()
    index = ChunkIndex.open(uri)
    retrieval = _retrieval(index, questions, queries, settings["num_candidates"], timing)
    index_mb = memory_mb() - before_mb
    build = json.loads(_spent(uri).read_text()) if _spent(uri).exists() else {"build_s": None, "build_mb": None}
    recall = _recall(index, MadeChunks(*real), queries)
    methods = settings["methods"]
    spent: dict[str, list[dict[str, float]]] = {method: [] for method in methods}
    budget = Budget(settings["budget"])
    for _ in range(timing.rounds):
        chains = {
            method: Chain(index, embedder, make_selector(method), None, budget, None, settings["num_candidates"])
            for method in methods
        }
        for place, question in enumerate(questions):
            for method, chain in chains.items():
                seconds = chain.ask(question, timing)
                if place:  # the first question loads and compiles
                    spent[method].append(seconds)
    totals = {method: 1e3 * median(sum(one.values()) for one in times) for method, times in spent.items()}
    return [
        {
            "setting": f"{size:,} chunks, {method}",
            "chunks": size,
            "method": method,
            **build,
            **retrieval,
            "recall": recall,
            "index_mb": index_mb,
            "select_ms": 1e3 * median(one["search"] for one in spent[method]),
            "ms": totals[method],
            "ratio": totals[method] / totals[methods[0]],
            "peak_mb": peak_mb(),
            "disk_mb": sum(file.stat().st_size for file in uri.rglob("*") if file.is_file()) / 2**20,
        }
        for method in methods
    ]


def _retrieval(
    index: ChunkIndex, questions: Sequence[str], queries: NDArray[np.float32], num_candidates: int, timing: Timing
) -> dict[str, float]:
    """Return the median milliseconds of retrieval by vectors alone, and hybrid."""
    found: dict[Retrieval, list[float]] = {"vector": [], "hybrid": []}
    # The first round opens files and reads the partitions that these questions probe.
    for warm in (False, True):
        for question, vector in zip(questions, queries, strict=True):
            for retrieval, times in found.items():
                started = timing.now()
                index.retrieve(question, vector, num_candidates, retrieval)
                if warm:
                    times.append(timing.now() - started)
    return {f"{retrieval}_ms": 1e3 * median(times) for retrieval, times in found.items()}


def _recall(index: ChunkIndex, made: MadeChunks, queries: NDArray[np.float32]) -> float:
    """Return the share of the nearest `RECALL_AT` chunks that the index finds."""
    k = min(RECALL_AT, len(index))
    best = np.full((len(queries), k), -1, dtype=np.int64)
    cosines = np.full((len(queries), k), -np.inf)
    for begin in range(0, len(index), _BATCH):
        numbers = np.arange(begin, min(begin + _BATCH, len(index)))
        offered = np.hstack([cosines, queries @ made.vectors(numbers).T])
        known = np.hstack([best, np.broadcast_to(numbers, (len(queries), len(numbers)))])
        kept = np.argsort(-offered, axis=1, kind="stable")[:, :k]
        cosines, best = np.take_along_axis(offered, kept, 1), np.take_along_axis(known, kept, 1)
    found = [{candidate.chunk.id for candidate in some} for some in index.search_many(queries, k)]
    exact = [{made.chunk(number).id for number in row} for row in best.tolist()]
    return fmean(len(one & other) / k for one, other in zip(found, exact, strict=True))


def plot(measured: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return an SVG of time, memory and recall against the number of chunks, in type that a phone can show."""
    rows = measured["rows"]
    methods = list(dict.fromkeys(row["method"] for row in rows))
    one = [row for row in rows if row["method"] == methods[0]]
    sizes = [row["chunks"] for row in one]
    figure = new_figure(5.0, 14.0)
    panels = figure.subplots(5, 1)
    curves = {
        "ms, retrieval": {kind: [row[f"{kind}_ms"] for row in one] for kind in ("vector", "hybrid")},
        f"recall@{RECALL_AT}": {"vector": [row["recall"] for row in one]},
        "ms, question to prompt": {name: [row["ms"] for row in rows if row["method"] == name] for name in methods},
        "MB": {
            "on disk": [row["disk_mb"] for row in one],
            "memory, searching": [row["index_mb"] for row in one],
            "memory, building": [row["build_mb"] or np.nan for row in one],
        },
        "s, building": {"text and vectors": [row["build_s"] or np.nan for row in one]},
    }
    for panel, (label, heights) in zip(panels, curves.items(), strict=True):
        lines(panel, {name: (sizes, values) for name, values in heights.items()})
        panel.set_xscale("log")
        panel.set_xticks(sizes, [f"{size:,}" for size in sizes])
        panel.tick_params(axis="x", which="minor", bottom=False)
        panel.tick_params(labelsize=11)
        panel.set_ylabel(label, fontsize=12)
        if label.startswith("ms"):
            panel.set_ylim(bottom=0)
        elif label.startswith("recall"):
            panel.set_ylim(0.9, 1.005)
        else:
            panel.set_yscale("log")
    panels[-1].set_xlabel("chunks", fontsize=12)
    return finished(figure, legend_size=11)

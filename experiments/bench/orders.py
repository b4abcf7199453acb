"""How many orders a second each reranker values inside a search, and how long it takes to load.

Chunks of the demo corpus, no chunk twice, so that what a reranker prepares for a question and its candidates is really
to be done. All rerankers take their turn in every round.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import corag
import search
from corag.errors import InputError, ModelError
from corag.memory import forget
from corag.naming import PartName, split_parts
from corag.progress import counted
from corag.selectors.problem import SelectionProblem
from corag.types import Candidate, PolicyReranker, Reranker
from experiments.bench.harness import CLOCKS, Clock, Timing, bar_plot, demo_chunks, make_model
from experiments.evaluation.methods import ALL
from experiments.run.drawing import COLORS

CHUNK_TOKENS, LEAST_TOKENS, BUDGET_TOKENS = 100, 90, 512
SIZES = (10, 50)
"""Candidates."""
MAX_SCORED = 100
"""Orders that a search may ask for."""
CROSS_ENCODER = "cross-encoder"
SHIPPED = (
    "minilm-cosine", "minilm-maxsim", "minilm-pooled", "bm25", "minilm-multihop", "minilm-factoid", "minilm-longform",
)  # fmt: skip
"""Rerankers that need no download."""
READER = "minilm-reader"
"""Its time to load is measured, too."""
QUESTION = "Which statement handles an exception?"
ROUNDS = 3
TITLE = (
    f"orders valued in a search with and without what is prepared for a question, candidates of {LEAST_TOKENS} to "
    f"{CHUNK_TOKENS} tokens, budget {BUDGET_TOKENS}, at most {MAX_SCORED} orders; load: a fresh process with one value"
)
COLUMNS = {
    "setting": "", "candidates": "candidates", "policy": "policy", "orders": "orders",
    "prepare_ms": "preparation, ms", "per_s_cold": "orders/s with it", "per_s": "orders/s without",
    "load_s": "load, s", "load_cpu_s": "load, CPU s",
}  # fmt: skip

_LOAD = """
import sys, corag
kind, text, question = sys.argv[1:]
part = getattr(corag, kind)(text)
part.score(question, [question]) if kind == "reranker" else part.answer(question, question)
"""


class _Search(NamedTuple):
    """One search: its policy, orders scored, seconds to bind the reranker to new candidates, and seconds after that."""

    policy: search.Policy
    orders: int
    prepare_s: float
    search_s: float


def bench_orders(timing: Timing, rerankers: str = ALL, model: Path | None = None) -> dict[str, list[dict[str, Any]]]:
    """Measure rerankers, or with `all` those that need no download and a cross-encoder, by default a made one.

    The rounds are searches of each reranker, number of candidates and policy.
    """
    with tempfile.TemporaryDirectory() as scratch:
        cross_encoder = str(PartName(CROSS_ENCODER, {"model": str(model or scratch)}))
        named = split_parts(rerankers)
        texts = dict.fromkeys(text for one in named for text in ([*SHIPPED, cross_encoder] if one == ALL else [one]))
        if not texts:
            raise InputError(f"rerankers is {rerankers!r}; name at least one, or {ALL}")
        if model is None and cross_encoder in texts:
            make_model(Path(scratch))
        made = {CROSS_ENCODER if text == cross_encoder else text: corag.reranker(text) for text in texts}
        for reranker in made.values():
            # The first call loads the model; keep that out of the timings.
            reranker.score(QUESTION, [QUESTION])
        found: dict[tuple[str, int], list[list[_Search]]] = {}
        for candidates in counted("search", _pools(timing.rounds)):
            for label, reranker in made.items():
                found.setdefault((label, len(candidates)), []).append(_searches(reranker, candidates, timing.clock))
        loads = {label: _load(str(one), timing.rounds) for label, one in counted("load", made.items())}
    rows = [
        {"setting": label, **_row(size, searches), **loads[label]}
        for (label, size), turns in sorted(found.items(), key=lambda item: (item[0][1], list(made).index(item[0][0])))
        for searches in zip(*turns, strict=True)
    ]
    return {"rows": [*rows, {"setting": f"reader {READER}", **_load(READER, timing.rounds, kind="reader")}]}


def _pools(rounds: int) -> list[list[Candidate]]:
    """Return candidates for each round and size, no chunk twice."""
    chunks = demo_chunks(CHUNK_TOKENS)
    lengths = corag.tokens().count([chunk.text for chunk in chunks])
    chunks = [chunk for chunk, length in zip(chunks, lengths.tolist(), strict=True) if length >= LEAST_TOKENS]
    if len(chunks) < rounds * sum(SIZES):
        raise InputError(f"the demo has chunks for {len(chunks) // sum(SIZES)} rounds, got {rounds}; ask for no more")
    rest = iter(chunks)
    return [[Candidate(next(rest), 1 / (place + 1)) for place in range(size)] for _ in range(rounds) for size in SIZES]


def _searches(reranker: Reranker, candidates: Sequence[Candidate], clock: Clock) -> list[_Search]:
    """Search by policy `paper` and by the reranker's own, each order scored anew."""
    now = CLOCKS[clock]
    own = (reranker.search_policy if isinstance(reranker, PolicyReranker) else None) or "bayesian"
    found: list[_Search] = []
    forget()
    for policy in dict.fromkeys(("paper", own)):
        problem = SelectionProblem(QUESTION, candidates, corag.tokens(), BUDGET_TOKENS)
        config = search.SearchConfig(policy=policy, max_scored=MAX_SCORED)
        started = now()
        scorer = problem.scorer(reranker)
        bound = now()
        result = search.search(problem.costs, scorer, problem.capacity, config)
        # Only the first of the policies meets candidates that are new to the reranker.
        prepare_s = found[0].prepare_s if found else bound - started
        found.append(_Search(policy, result.num_scored, prepare_s, now() - bound))
    return found


def _row(size: int, searches: Sequence[_Search]) -> dict[str, Any]:
    return {
        "candidates": size,
        "policy": searches[0].policy,
        "orders": median(one.orders for one in searches),
        "prepare_ms": 1e3 * median(one.prepare_s for one in searches),
        "per_s_cold": round(median(one.orders / (one.prepare_s + one.search_s) for one in searches)),
        "per_s": round(median(one.orders / one.search_s for one in searches)),
    }


def _load(text: str, rounds: int, kind: str = "reranker") -> dict[str, float]:
    """Return the median seconds of a fresh process that loads a part and asks it once, by the clock and of its CPU."""
    wall, cpu = [], []
    command = [sys.executable, "-c", _LOAD, kind, text, QUESTION]
    for _ in range(rounds):
        started, spent = time.perf_counter(), _children_cpu_s()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            said = done.stderr.strip().rsplit("\n", 1)[-1]
            raise ModelError(f"{kind} {text!r} cannot be loaded in a fresh process: {said}")
        wall.append(time.perf_counter() - started)
        cpu.append(_children_cpu_s() - spent)
    return {"load_s": median(wall), "load_cpu_s": median(cpu)}


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def plot(measured: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return an SVG of orders a second, preparation included, policy `paper`: a bar for each number of candidates."""
    shown = {f"{row['setting']}, {row['candidates']}": row for row in measured["rows"] if row.get("policy") == "paper"}
    return bar_plot(
        {name: row["per_s_cold"] for name, row in shown.items()},
        "orders a second, preparation included; reranker and number of candidates",
        texts=",.0f",
        colors=[COLORS[SIZES.index(row["candidates"])] for row in shown.values()],
        log=True,
    )

"""The scoring engine against the bare encoder, and against FlagEmbedding on joined texts, factor by factor.

Self-contained: a cross-encoder of real size (all-MiniLM-L6-v2 with a seeded head of one label) and chunks of the
demo corpus. The values are meaningless, but they cost what those of a trained model of that size cost.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

import corag
from corag.errors import InputError, MissingExtraError
from corag.models.engine.engine import Batch, Engine, Int64, Reduction, pad, quiet
from corag.models.engine.pairs import PairTemplate
from corag.models.runtime import Backend, Precision
from corag.optional import require
from corag.progress import counted
from corag.rerankers.cross_encoder import CrossEncoder
from corag.rerankers.scorers import JoinedTextScorer
from corag.selectors.corag.search import SearchPlan, search_problems
from corag.selectors.corag.selector import DEFAULT_SURROGATE, Corag
from corag.selectors.problem import SelectionProblem
from corag.types import Candidate, Chunk, FloatArray, Order, Reranker, Scorer
from experiments import demo
from experiments.bench.harness import Timing, bar_plot, demo_chunks, make_model
from search import SearchConfig

CHUNK_TOKENS, NUM_CANDIDATES, BUDGET_TOKENS = 100, 10, 256
ITERATIONS = 4
SWEEP = tuple(itertools.product((0.1, 0.6), (0.0, 0.3)))
"""Exploration and cost weight that `corag label` tries by default for each reranker."""
PEER = "FlagReranker on joined texts, torch fp32"
ALONE = " alone"
ROUNDS = 3
TITLE = (
    f"scoring, all-MiniLM-L6-v2 as cross-encoder, {NUM_CANDIDATES} candidates of up to {CHUNK_TOKENS} tokens, budget "
    f"{BUDGET_TOKENS}"
)
COLUMNS = {
    "setting": "setting", "seconds": "seconds", "tokens_per_s": "tokens/s", "of_bare": "of bare",
    "speedup": "times as fast", "same": "same selections", "parity": "rank corr.",
}  # fmt: skip
Asked = tuple[str, list[Candidate]]
"""A question with its candidates."""
Ids = tuple[str, ...]
"""The chunks of a selection, in prompt order."""
PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16")
Run = tuple[Backend, Precision, str]
"""Backend, precision and device."""


@dataclass(frozen=True)
class Way:
    """A way to score; by default the texts of each expansion are joined, tokenised and run as one batch.

    Attributes:
        from_ids: Put pairs together from token ids instead of tokenising every joined text.
        by_length: Fill batches with rows of like lengths instead of one batch for each call of the search.
        backend: What runs the model, on the CPU.
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


class OneBatch(Engine):
    """An engine that pads all rows of a call to the longest and runs them at once."""

    def run(
        self, ids: Sequence[Int64], token_types: Sequence[Int64] | None = None, reduction: Reduction | None = None
    ) -> Iterator[Batch]:
        """Run all rows."""
        tokens, mask = pad(ids, self.pad_token)
        inputs = {"input_ids": tokens, "attention_mask": mask}
        if token_types is not None:
            inputs["token_type_ids"], _ = pad(token_types, 0)
        yield Batch(np.arange(len(ids)), self.replicas.models[0](inputs, reduction), mask)


class PartialCrossEncoder(CrossEncoder):
    """A cross-encoder without the parts of the engine that a `Way` leaves out; its values are the same."""

    def __init__(self, folder: Path, run: Run, *, from_ids: bool = True, by_length: bool = True) -> None:
        backend, precision, device = run
        super().__init__(model=folder, backend=backend, precision=precision, device=device)
        # Without it every joined text is tokenised.
        self.joins_ids = self.joins_ids and from_ids
        if not by_length:
            self._engine = OneBatch(self._engine.replicas, self._engine.pad_token, self._engine.max_batch_tokens)

    def requests(self, asked: Asked) -> list[tuple[PairTemplate, list[Int64]]]:
        """Return what a search asks for in turn: every candidate, then every one after the first, and so on."""
        texts = [candidate.chunk.text for candidate in asked[1]]
        costs, ids, question = corag.tokens().count(texts), self.tokenize(texts), self._tokenizer.question(asked[0])
        requests: list[tuple[PairTemplate, list[Int64]]] = []
        prefix: Order = ()
        for candidate in range(len(texts)):
            orders: list[Order] = [(*prefix, index) for index in range(len(texts)) if index not in prefix]
            orders = [order for order in orders if costs[list(order)].sum() <= BUDGET_TOKENS]
            if not orders:
                break
            requests.append((question, [np.concatenate([ids[index] for index in order]) for order in orders]))
            prefix = (*prefix, candidate)
        return requests

    def bare(self, lengths: Sequence[int]) -> tuple[Callable[[], list[Any]], int]:
        """Return a run of the model alone on perfect batches of about these lengths, and its number of tokens."""
        batches = perfect_batches(lengths, self._engine.max_batch_tokens)
        for batch in batches if not self._takes_types else ():
            del batch["token_type_ids"]
        (forward,) = self._engine.replicas.models
        return lambda: [forward(batch) for batch in batches], sum(b["input_ids"].size for b in batches)


Load = Callable[..., PartialCrossEncoder]
"""Given a `Run` and what to leave out; loads each model once."""


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


def bench_scoring(
    timing: Timing, *, questions: int = 2, queries: int = 40, model: Path | None = None
) -> dict[str, list[dict[str, Any]]]:
    """Measure the engine with a model, by default a made one.

    `questions` are searched with every setting, and `select_many` gets `queries` at once. Beside the table's `rows`,
    `curve` has the lines of the factors switched on one after the other.
    """
    asked = demo_questions()
    if len(asked) < max(questions, queries):
        raise InputError(f"the demo has {len(asked)} questions; ask for no more of them")
    with tempfile.TemporaryDirectory() as scratch:
        folder = model or make_model(Path(scratch))
        load: Load = cache(partial(PartialCrossEncoder, folder))
        runs = available(load)
        steps = step_rows(folder, load, runs, asked[:questions], timing)
        rows = (
            engine_rows(load, runs, asked[:questions], timing) + steps + many_rows(load, runs, asked[:queries], timing)
        )
    return {"rows": rows, "curve": [row for row in steps if not row["setting"].endswith(ALONE)]}


def demo_questions() -> list[Asked]:
    """Return the demo's questions; the candidates of each are the chunks from the start of its evidence's topic on."""
    content = demo.load()
    chunks = demo_chunks(CHUNK_TOKENS, content)
    starts: dict[str, int] = {}
    for place, chunk in enumerate(chunks):
        starts.setdefault(chunk.metadata["document"], place)
    pools = [(chunks + chunks)[starts[query["topics"][0]] :][:NUM_CANDIDATES] for query in content.queries]
    return [
        (query["question"], [Candidate(chunk, 1 / rank) for rank, chunk in enumerate(pool, 1)])
        for query, pool in zip(content.queries, pools, strict=True)
    ]


def available(load: Load) -> list[Run]:
    """Return the backends, precisions and devices that this machine has."""
    places: list[tuple[Backend, str]] = [("torch", "cpu"), ("openvino", "cpu")]
    if require("torch", "models").cuda.is_available():
        places.append(("torch", "cuda"))
    found: list[Run] = []
    for (backend, device), precision in itertools.product(places, PRECISIONS):
        with suppress(InputError, MissingExtraError):
            load((backend, precision, device))
            found.append((backend, precision, device))
    return found


# --- Against the bare encoder ---


def engine_rows(load: Load, runs: Sequence[Run], asked: Sequence[Asked], timing: Timing) -> list[dict[str, Any]]:
    """Compare the engine's tokens per second with those of the bare encoder on batches without padding."""
    by_question = [load(runs[0]).requests(one) for one in asked]
    requests = [request for of_question in by_question for request in of_question]
    lengths = [len(row) for question, texts in requests for row in question.pairs(texts)[0]]
    group = np.repeat(np.arange(len(asked)), [sum(len(texts) for _, texts in one) for one in by_question])
    rows, exact = [], None
    for run in counted("encoders", runs):
        model = load(run)
        run_bare, bare_tokens = model.bare(lengths)
        settings: dict[str, Callable[[], list[Any]]] = {
            "bare encoder, no padding": run_bare,
            "engine, all orders at once": partial(model.values, requests),
            "engine, an expansion at a time": partial(_one_by_one, model, requests),
        }
        seconds, found = timing.run(settings)
        bare, together, _ = settings
        values = np.concatenate(found[together])
        exact = values if exact is None else exact
        bare_speed = bare_tokens / seconds[bare]
        for name, spent in seconds.items():
            speed = bare_speed if name == bare else sum(lengths) / spent
            line = {
                "setting": f"{' '.join(run).removesuffix(' cpu')}: {name}",
                "seconds": spent,
                "tokens_per_s": round(speed),
            }
            line |= {} if name == bare else {"of_bare": speed / bare_speed}
            rows.append(line | (rank_parity(values, exact, group) if name == together else {}))
    return rows


def _one_by_one(model: CrossEncoder, requests: Sequence[tuple[PairTemplate, list[Int64]]]) -> list[FloatArray]:
    return [model.values([request])[0] for request in requests]


def perfect_batches(lengths: Sequence[int], max_batch_tokens: int) -> list[dict[str, Int64]]:
    """Return inputs with about the tokens of the given rows, in full batches of rows of one length.

    Rows go by length into batches as large as allowed, and each takes its batch's mean length, so that nothing is
    padded: what no packing of the real rows can beat.
    """
    rng = np.random.default_rng(0)
    batches: list[dict[str, Int64]] = []
    waiting = sorted(lengths, reverse=True)
    while waiting:
        size = max(1, max_batch_tokens // waiting[0])
        batch, waiting = waiting[:size], waiting[size:]
        ids = rng.integers(1000, 2000, (len(batch), round(fmean(batch))))
        batches.append({"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)})
    return batches


def rank_parity(values: FloatArray, exact: FloatArray, group: Int64) -> dict[str, float | str]:
    """Return Spearman's rank correlation with exact values: the mean over groups, and over all values.

    `values` and `exact` are `[n]`; `group` is the question of each, `[n]`.
    """
    spearman = require("scipy.stats", "clustering").spearmanr
    inside = fmean(float(spearman(values[group == one], exact[group == one]).statistic) for one in np.unique(group))
    pooled = float(spearman(values, exact).statistic)
    parity = f"{inside:.4f}, pooled {pooled:.4f}"
    return {"rank_correlation": inside, "rank_correlation_pooled": pooled, "parity": parity}


# --- Against joined texts, factor by factor ---


def factors(runs: Sequence[Run]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the factors in the order in which they are switched on, with what each changes in a `Way`."""
    openvino = [precision for backend, precision, device in runs if backend == "openvino"]
    yield "put together from token ids", {"from_ids": True}
    yield "batches by length", {"by_length": True}
    if openvino:
        yield "backend: OpenVINO", {"backend": "openvino"}
    if not openvino or "bf16" in openvino:
        yield "precision: bf16", {"precision": "bf16"}
    yield "values remembered over the sweep", {"memo": True}
    yield "batches shared by questions", {"shared": True}
    yield "surrogate first, half of an expansion scored", {"prefilter": 0.5}


def step_rows(
    folder: Path, load: Load, runs: Sequence[Run], asked: Sequence[Asked], timing: Timing
) -> list[dict[str, Any]]:
    """Time a sweep of settings over questions: the peer's way, then each factor on top of the last, then each alone."""
    plain = Way()
    chain = {"joined texts, each batch once, torch fp32": plain}
    alone = {}
    for name, change in factors(runs):
        chain[f"+ {name}"] = replace([*chain.values()][-1], **change)
        alone[f"{name},{ALONE}"] = replace(plain, **change)
    sweeps: dict[str, Callable[[], list[Ids]]] = {}
    with suppress(MissingExtraError):
        sweeps[PEER] = partial(sweep, FlagEmbeddingReranker(folder), plain, asked)
    for name, way in (chain | alone).items():
        model = load((way.backend, way.precision, "cpu"), from_ids=way.from_ids, by_length=way.by_length)
        sweeps[name] = partial(sweep, model, way, asked)
    seconds, found = timing.run(sweeps)
    base, *_ = sweeps
    references = {name: next(iter(chain)) if name in alone else base for name in sweeps}
    return [_line(name, references[name], base, seconds, found) | {"of": references[name]} for name in sweeps]


def _line(
    name: str, slower: str, expected: str, seconds: Mapping[str, float], found: Mapping[str, Sequence[Ids]]
) -> dict[str, Any]:
    same = sum(one == other for one, other in zip(found[name], found[expected], strict=True))
    speedup = seconds[slower] / seconds[name]
    return {"setting": name, "seconds": seconds[name], "speedup": speedup, "same": f"{same} of {len(found[expected])}"}


def sweep(reranker: Reranker, way: Way, asked: Sequence[Asked]) -> list[Ids]:
    """Search every question with every setting, and return what is chosen, settings in turn."""
    surrogate = corag.reranker(DEFAULT_SURROGATE) if way.prefilter < 1 else None
    problems: list[SelectionProblem] = []
    found: list[Ids] = []
    for exploration, cost_weight in SWEEP:
        if not (problems and way.memo):
            problems = [SelectionProblem(query, pool, corag.tokens(), BUDGET_TOKENS) for query, pool in asked]
        config = SearchConfig(ITERATIONS, exploration, cost_weight, policy="paper", prefilter=way.prefilter)
        plan = SearchPlan(reranker, config, surrogate=surrogate)
        for together in [problems] if way.shared else [[problem] for problem in problems]:
            searched = search_problems(together, [plan] * len(together))
            found += [tuple(one.problem.chunks[index].id for index in one.result.order) for one in searched]
    return found


# --- Many questions at once ---


def many_rows(load: Load, runs: Sequence[Run], asked: Sequence[Asked], timing: Timing) -> list[dict[str, Any]]:
    """Time `select_many` against selecting for one question after the other, with the fastest backend of a device."""
    preferred: list[Run] = [("openvino", "bf16", "cpu"), ("openvino", "fp32", "cpu"), ("torch", "fp32", "cpu")]
    fastest = [next(run for run in preferred if run in runs), ("torch", "bf16", "cuda")]
    queries, pools = zip(*asked, strict=True)
    rows: list[dict[str, Any]] = []
    for run in [run for run in fastest if run in runs]:
        selector = Corag(reranker=load(run), max_scored=NUM_CANDIDATES)

        def one_by_one(selector: Corag = selector) -> list[Ids]:
            return [selector.select(query, pool, BUDGET_TOKENS).ids for query, pool in asked]

        def together(selector: Corag = selector) -> list[Ids]:
            return [selection.ids for selection in selector.select_many(queries, pools, BUDGET_TOKENS)]

        name = f"{' '.join(run)}: {len(asked)} questions"
        each, many = f"{name} one by one", f"{name}, select_many"
        measured = timing.run({each: one_by_one, many: together})
        rows += [_line(one, each, many, *measured) for one in (each, many)]
    return rows


def plot(measured: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return an SVG of how fast a sweep is as factors are switched on, a bar for each."""
    bars = {row["setting"]: row["speedup"] for row in measured["curve"]}
    return bar_plot(bars, "times as fast as the first, equal searches", texts=".1f")

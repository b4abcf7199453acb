"""The scoring engine against the bare encoder, and against FlagEmbedding on joined texts, factor by factor.

Self-contained: a cross-encoder of real size (all-MiniLM-L6-v2 with a seeded head of one label) and chunks of the
demo corpus. The values are meaningless, but they cost what those of a trained model of that size cost.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

import corag
from corag.errors import InputError, MissingExtraError
from corag.models.engine.backends import Backend, Precision, batch_tokens
from corag.models.engine.engine import Engine, Forward, Int64
from corag.optional import require
from corag.selectors.corag.selector import DEFAULT_SURROGATE, Corag
from corag.text.tokens import token_counter
from corag.types import Candidate, FloatArray, Order, Reranker, Selection
from experiments.bench.harness import Timing, bar_plot
from experiments.bench.scoring_lab import (
    BUDGET_TOKENS,
    CHUNK_TOKENS,
    NUM_CANDIDATES,
    Asked,
    FlagEmbeddingReranker,
    Lab,
    Pairs,
    Remembering,
    Way,
    make_model,
    questions,
)

ITERATIONS = 4
SWEEP = tuple(itertools.product((0.1, 0.6), (0.0, 0.3)))
"""Exploration and cost weight that `corag label` tries by default for each reranker."""
PEER = "FlagReranker on joined texts, torch fp32"
ROUNDS = 3
TITLE = (
    f"scoring, all-MiniLM-L6-v2 as cross-encoder, {NUM_CANDIDATES} candidates of up to {CHUNK_TOKENS} tokens, budget "
    f"{BUDGET_TOKENS}"
)
COLUMNS = {
    "setting": "setting",
    "seconds": "seconds",
    "tokens_per_s": "tokens/s",
    "of_bare": "of bare",
    "speedup": "times as fast",
    "same": "same selections",
    "parity": "rank corr.",
}


@dataclass(frozen=True)
class Sizes:
    """Numbers of questions for the sweeps and for `select_many`; a cross-encoder to use in place of a made one."""

    questions: int = 2
    queries: int = 40
    model: Path | None = None


def bench_scoring(timing: Timing, sizes: Sizes) -> dict[str, list[dict[str, Any]]]:
    """Return `rows`, the lines of the table, and `curve`, those of the factors switched on one after the other."""
    asked = list(itertools.islice(questions(), max(sizes.questions, sizes.queries)))
    if len(asked) < max(sizes.questions, sizes.queries):
        raise InputError(f"the demo has {len(asked)} questions; ask for no more of them")
    with tempfile.TemporaryDirectory() as scratch:
        folder = sizes.model or make_model(Path(scratch))
        lab = Lab(folder)
        few = asked[: sizes.questions]
        steps = step_rows(lab, few, timing)
        rows = engine_rows(lab, few, timing) + steps + many_rows(lab, asked[: sizes.queries], timing)
    return {"rows": rows, "curve": [row for row in steps if not row["setting"].endswith(ALONE)]}


# --- Against the bare encoder ---


def engine_rows(lab: Lab, asked: Sequence[Asked], timing: Timing) -> list[dict[str, Any]]:
    """Compare the engine's tokens per second with those of the bare encoder on batches without padding."""
    expansions = [of_question for question, candidates in asked for of_question in _expansions(question, candidates)]
    rows_of = [_pairs(lab, question, candidates, orders) for question, candidates, orders in expansions]
    everything: Pairs = [row for ids, _ in rows_of for row in ids], [row for _, types in rows_of for row in types]
    num_tokens = sum(len(row) for row in everything[0])
    bounds = np.cumsum([len(list(group)) for _, group in itertools.groupby(expansions, key=lambda e: e[0])])
    of_question = np.searchsorted(bounds, np.repeat(np.arange(len(rows_of)), [len(ids) for ids, _ in rows_of]), "right")

    rows, exact = [], None
    for backend, precision, device in lab.runs():
        forward, limit = lab.forward(backend, precision, device), batch_tokens(device)
        engine = Engine(forward, lab.pad_token, limit)
        # Without the inputs that a model does not take.
        perfect = [
            {name: values for name, values in batch.items() if name in lab.checkpoint.inputs}
            for batch in perfect_batches([len(row) for row in everything[0]], limit)
        ]
        settings = {
            "bare": partial(_run_bare, forward, perfect),
            "together": partial(_run_engine, lab, engine, [everything]),
            "each": partial(_run_engine, lab, engine, rows_of),
        }
        seconds, found = timing.run(settings)
        exact = found["together"] if exact is None else exact
        parity = rank_parity(found["together"], exact, of_question)
        name = f"{backend} {precision}" + (f" {device}" if device != "cpu" else "")
        bare = sum(batch["input_ids"].size for batch in perfect) / seconds["bare"]
        rows.append(
            {"setting": f"{name}: bare encoder, no padding", "seconds": seconds["bare"], "tokens_per_s": round(bare)}
        )
        for key, words in (("together", "engine, all orders at once"), ("each", "engine, an expansion at a time")):
            speed = num_tokens / seconds[key]
            line = {"seconds": seconds[key], "tokens_per_s": round(speed), "of_bare": speed / bare}
            rows.append({"setting": f"{name}: {words}", **line, **(parity if key == "together" else {})})
    return rows


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
        shape = (len(batch), round(fmean(batch)))
        ids = rng.integers(1000, 2000, shape)
        batches.append({"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)})
    return batches


def rank_parity(values: FloatArray, exact: FloatArray, group: Int64) -> dict[str, float | str]:
    """Return Spearman's rank correlation with exact values: the mean over groups, and over all values.

    `values` and `exact` are `[n]`; `group` is the question of each, `[n]`.
    """
    inside = [_spearman(values[group == one], exact[group == one]) for one in np.unique(group)]
    pooled = _spearman(values, exact)
    return {
        "rank_correlation": fmean(inside),
        "rank_correlation_pooled": pooled,
        "parity": f"{fmean(inside):.4f}, pooled {pooled:.4f}",
    }


def _spearman(one: FloatArray, other: FloatArray) -> float:
    return float(require("scipy.stats", "clustering").spearmanr(one, other).statistic)


def _expansions(question: str, candidates: list[Candidate]) -> Iterator[tuple[str, list[Candidate], list[Order]]]:
    """Yield what a search asks for in turn: every candidate, then every one after the first, and so on."""
    costs = token_counter().count([candidate.chunk.text for candidate in candidates])
    prefix: Order = ()
    for candidate in range(len(candidates)):
        rest = [index for index in range(len(candidates)) if index not in prefix]
        orders = [(*prefix, i) for i in rest if costs[[*prefix, i]].sum() <= BUDGET_TOKENS]
        if not orders:
            return
        yield question, candidates, orders
        prefix = (*prefix, candidate)


def _pairs(lab: Lab, question: str, candidates: list[Candidate], orders: list[Order]) -> Pairs:
    texts = lab.tokenizer.tokenize([candidate.chunk.text for candidate in candidates])
    return lab.tokenizer.question(question).pairs([np.concatenate([texts[i] for i in order]) for order in orders])


def _run_bare(forward: Forward, batches: Sequence[Mapping[str, Int64]]) -> FloatArray:
    return np.concatenate([forward(batch)[:, 0] for batch in batches]).astype(np.float64)


def _run_engine(lab: Lab, engine: Engine, requests: Sequence[Pairs]) -> FloatArray:
    """Return the logits of all rows, the requests run one after the other."""
    return np.concatenate([lab.logits(engine, pairs) for pairs in requests])


# --- Against joined texts, factor by factor ---

ALONE = " alone"


def factors(lab: Lab) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the factors in the order in which they are switched on, with what each changes in a `Way`."""
    runs = lab.runs()
    yield "put together from token ids", {"from_ids": True}
    yield "batches by length", {"by_length": True}
    if ("openvino", "fp32", "cpu") in runs:
        yield "backend: OpenVINO", {"backend": "openvino"}
    if ("openvino", "bf16", "cpu") in runs or ("openvino", "fp32", "cpu") not in runs:
        yield "precision: bf16", {"precision": "bf16"}
    yield "values remembered over the sweep", {"memo": True}
    yield "batches shared by questions", {"shared": True}
    yield "surrogate first, half of an expansion scored", {"prefilter": 0.5}


def step_rows(lab: Lab, asked: Sequence[Asked], timing: Timing) -> list[dict[str, Any]]:
    """Time a sweep of settings over questions: the peer's way, then each factor on top of the last, then each alone."""
    plain = Way()
    chain = {"joined texts, each batch once, torch fp32": plain}
    alone = {}
    for name, change in factors(lab):
        chain[f"+ {name}"] = replace([*chain.values()][-1], **change)
        alone[f"{name},{ALONE}"] = replace(plain, **change)
    sweeps = {name: partial(sweep, lab.reranker(way), way, asked) for name, way in (chain | alone).items()}
    with suppress(MissingExtraError):
        sweeps = {PEER: partial(sweep, FlagEmbeddingReranker(lab.folder), plain, asked), **sweeps}
    seconds, found = timing.run(sweeps)
    base, *_ = sweeps
    rows = []
    for name in sweeps:
        reference = next(iter(chain)) if name in alone else base
        line = _line(name, seconds[name], seconds[reference], found[name], found[base])
        rows.append(line | {"of": reference})
    return rows


def _line(
    name: str, seconds: float, reference_s: float, found: Sequence[Selection], expected: Sequence[Selection]
) -> dict[str, Any]:
    same = sum(one.ids == other.ids for one, other in zip(found, expected, strict=True))
    speedup = reference_s / seconds
    return {"setting": name, "seconds": seconds, "speedup": speedup, "same": f"{same} of {len(expected)}"}


def sweep(reranker: Reranker, way: Way, asked: Sequence[Asked]) -> list[Selection]:
    """Search every question with every setting, and return the selections, settings in turn."""
    used = Remembering(reranker) if way.memo else reranker
    surrogate = corag.reranker(DEFAULT_SURROGATE) if way.prefilter < 1 else None
    found: list[Selection] = []
    for exploration, cost_weight in SWEEP:
        selector = Corag(
            reranker=used,
            policy="paper",
            iterations=ITERATIONS,
            prefilter=way.prefilter,
            surrogate=surrogate,
            exploration=exploration,
            cost_weight=cost_weight,
        )
        found += select_each(selector, asked) if not way.shared else select_together(selector, asked)
    return found


def select_each(selector: Corag, asked: Sequence[Asked]) -> list[Selection]:
    """Select for one question after the other."""
    return [selector.select(query, pool, BUDGET_TOKENS) for query, pool in asked]


def select_together(selector: Corag, asked: Sequence[Asked]) -> list[Selection]:
    """Select for all questions at once."""
    return selector.select_many([query for query, _ in asked], [pool for _, pool in asked], BUDGET_TOKENS)


# --- Many questions at once ---


def many_rows(lab: Lab, asked: Sequence[Asked], timing: Timing) -> list[dict[str, Any]]:
    """Time `select_many` against selecting for one question after the other, with the fastest backend of a device."""
    runs = lab.runs()
    preferred: list[tuple[Backend, Precision, str]] = [("openvino", "bf16", "cpu"), ("openvino", "fp32", "cpu")]
    fastest = [next((run for run in preferred if run in runs), ("torch", "fp32", "cpu"))]
    fastest += [("torch", "bf16", "cuda")] if any(device == "cuda" for _, _, device in runs) else []
    rows: list[dict[str, Any]] = []
    for backend, precision, device in fastest:
        settings = {"model": lab.folder, "backend": backend, "precision": precision, "device": device}
        selector = Corag(reranker=corag.reranker("cross-encoder", **settings), max_scored=NUM_CANDIDATES)
        name = f"{backend} {precision} {device}: {len(asked)} questions"
        each, together = f"{name} one by one", f"{name}, select_many"
        runners = {each: partial(select_each, selector, asked), together: partial(select_together, selector, asked)}
        seconds, found = timing.run(runners)
        rows += [_line(one, seconds[one], seconds[each], found[each], found[together]) for one in runners]
    return rows


def plot(measured: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return an SVG of how fast a sweep is as factors are switched on, a bar for each."""
    bars = {row["setting"]: row["speedup"] for row in measured["curve"]}
    return bar_plot(bars, "times as fast as the first, equal searches", texts=".1f")

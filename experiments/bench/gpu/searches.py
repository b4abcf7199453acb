"""Searches and labelling: orders a second, the share of the search core, and the time of 200 questions."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import get_args

import corag
import search
from corag.models.runtime import current
from corag.naming import PartName
from corag.selectors.problem import SelectionProblem
from corag.types import FloatArray, Order, ScoreOrders
from experiments.bench.gpu.made import World
from experiments.bench.gpu.stage import Stage
from experiments.data.pools import Pool
from experiments.labels.config import LabelConfig
from experiments.labels.question import Labeller

BUDGET_TOKENS = 512


class Clocked:
    """A scorer that adds up its seconds."""

    def __init__(self, scorer: ScoreOrders) -> None:
        self._scorer = scorer
        self.seconds = 0.0

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Return the values of orders."""
        started = time.perf_counter()
        values = self._scorer(orders)
        self.seconds += time.perf_counter() - started
        return values


def orders(world: World, stage: Stage) -> None:
    """Search by every policy with three rerankers: one that reads joined texts, a bi-encoder, one that values parts."""
    named = ("cross-encoder", "minilm-cosine", "minilm-multihop")
    counter = corag.tokens("minilm")
    for name in named:
        settings = {"model": str(world.cross_encoder)} if name == "cross-encoder" else {}
        reranker = corag.reranker(name, backend="torch", **settings)
        for policy in get_args(search.Policy):
            found: list[tuple[int, float, float, float]] = []
            for query, pool in list(zip(world.queries, world.pools, strict=False))[: world.size.searched + 1]:
                stage.check()
                problem = SelectionProblem(query.question, list(pool), counter, BUDGET_TOKENS)
                begun = time.perf_counter()
                scorer = Clocked(problem.scorer(reranker))
                prepared = time.perf_counter()
                config = search.SearchConfig(policy=policy, max_scored=world.size.max_scored)
                result = search.search(problem.costs, scorer, problem.capacity, config)
                ended = time.perf_counter()
                found.append((result.num_scored, prepared - begun, ended - prepared, scorer.seconds))
            scored, prepare_s, search_s, scorer_s = (median(column) for column in zip(*found[1:], strict=True))
            stage.row(
                reranker=name,
                policy=policy,
                orders=scored,
                prepare_ms=1000 * prepare_s,
                search_ms=1000 * search_s,
                orders_per_s=round(scored / search_s),
                core_ms=1000 * (search_s - scorer_s),
                core_share=(search_s - scorer_s) / (prepare_s + search_s),
            )


def label(world: World, stage: Stage) -> None:
    """Label questions with the cross-encoder, with the default grid and reader."""
    reranker = str(PartName("cross-encoder", {"model": str(world.cross_encoder)}))
    config = LabelConfig(
        out="unused", data="made", rerankers=(reranker,), tokenizer="minilm", quiet=True, **current().runtime_settings
    )
    labeller = Labeller.of(config)
    # Without the package nothing is left out but a few milliseconds a question.
    with_rouge = importlib.util.find_spec("rouge_score") is not None
    queries = [query if with_rouge else replace(query, answers=()) for query in world.queries]
    pool = Pool("candidates", {query.id: list(pool) for query, pool in zip(queries, world.pools, strict=True)})
    labeller.label(queries[0], pool)
    started, done, tokens, scored = time.perf_counter(), 0, 0.0, 0
    for query in queries[: world.size.questions]:
        if stage.left_s < 2:
            break
        unit = labeller.label(query, pool)
        done += 1
        tokens += unit["work"]["spent"]
        scored += max(row["orders_scored"] for row in unit["rows"])
    seconds = time.perf_counter() - started
    stage.row(
        questions=done,
        configurations=len(labeller.grid),
        seconds=seconds,
        seconds_for_200=200 * seconds / max(1, done),
        tokens=int(tokens),
        tokens_per_s=round(tokens / seconds),
        orders_scored=scored,
        rouge=with_rouge,
    )

"""What an evidence value achieves: whole evidence selected under a budget, ranks of single passages, calibration."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np

import search
from corag.registry import tokens as make_tokens
from corag.rerankers.evidence.reranker import EvidenceReranker
from corag.rerankers.evidence.values import EvidenceScorer
from corag.selectors.base import BudgetedSelector
from corag.selectors.corag.selector import Corag
from corag.selectors.reranking import Naive
from corag.selectors.simple import TopK
from corag.text.units import assemble
from corag.types import Candidate, FloatArray, Order, Selection
from experiments.adapters.pools import Pooled

Figures = Mapping[str, float]


def selection_figures(
    reranker: EvidenceReranker, questions: Sequence[Pooled], budget: int, unit: str = "passage"
) -> dict[str, Figures]:
    """Return the figures of filling by cosine, of filling by the reranker, of `corag` with it, and of the ceiling.

    The ceiling is the share of the questions whose evidence fits the budget at all. Selectors cut passages to units by
    themselves; the evidence are then the units that the questions name.
    """
    wholes = [pooled.whole or pooled for pooled in questions]
    candidates = [list(map(Candidate, whole.chunks, whole.similarities)) for whole in wholes]
    texts = [pooled.question for pooled in questions]
    selectors: dict[str, BudgetedSelector] = {
        "naive, minilm-cosine": TopK(k=1000, unit=unit),
        f"naive, {reranker.name}": Naive(reranker=reranker, unit=unit),
        f"corag, {reranker.name}": Corag(reranker=reranker, unit=unit),
    }
    found = {
        name: _average(questions, selector.select_many(texts, candidates, budget))
        for name, selector in selectors.items()
    }
    tokens = make_tokens()
    fits = [
        any(int(tokens.count([assemble([pooled.chunks[i] for i in gold])[0]])[0]) <= budget for gold in pooled.golds)
        for pooled in questions
    ]
    baseline = found["naive, minilm-cosine"]["cost_tokens"]
    for figures in found.values():
        figures["share_of_naive_tokens"] = figures["cost_tokens"] / baseline
    return {**found, "ceiling": {"full_evidence": float(np.mean(fits)), "questions": float(len(questions))}}


def _average(questions: Sequence[Pooled], selections: Sequence[Selection]) -> dict[str, float]:
    rows = []
    for pooled, selection in zip(questions, selections, strict=True):
        golds = [{pooled.chunks[index].id for index in gold} for gold in pooled.golds]
        chosen = set(selection.ids)
        rows.append(
            (
                any(gold <= chosen for gold in golds),
                max((len(gold & chosen) / len(gold) for gold in golds), default=0.0),
                len(chosen.intersection(chain(*golds))) / max(1, len(selection)),
                selection.cost_tokens,
                len(selection),
                selection.trace.orders_scored,
            )
        )
    names = ("full_evidence", "evidence_recall", "evidence_precision", "cost_tokens", "chunks", "orders_scored")
    return dict(zip(names, np.array(rows, dtype=np.float64).mean(axis=0).tolist(), strict=True))


def ranking_figures(reranker: EvidenceReranker, questions: Sequence[Pooled]) -> dict[str, Figures]:
    """Return mean reciprocal rank and share of first places of the best evidence passage, by reranker and by cosine."""
    ranks: dict[str, list[int]] = {"minilm-cosine": [], reranker.name: []}
    for pooled in questions:
        values = reranker.scorer(pooled.question, pooled.chunks)([(index,) for index in range(len(pooled.chunks))])
        for of_method, scores in zip(ranks.values(), (np.array(pooled.similarities), values), strict=True):
            # A passage that ties with the best evidence stands before it.
            others, best = np.delete(scores, list(pooled.gold)), scores[list(pooled.gold)].max()
            of_method.append(1 + int((others >= best).sum()))
    figures = {
        name: {"mrr": float(np.mean(1 / np.array(of_method))), "first": float(np.mean(np.array(of_method) == 1))}
        for name, of_method in ranks.items()
    }
    sizes = [len(pooled.chunks) for pooled in questions]
    return {**figures, "questions": {"questions": float(len(questions)), "candidates": float(np.mean(sizes))}}


def orders_per_second(scorer: EvidenceScorer, num_candidates: int, seconds: float = 0.2) -> float:
    """Return how many orders of up to four chunks a scorer values in a second, in batches of 64."""
    rng = np.random.default_rng(0)
    longest = min(4, num_candidates)
    orders = [tuple(rng.permutation(num_candidates)[: rng.integers(1, longest + 1)].tolist()) for _ in range(64)]
    valued, started = 0, time.perf_counter()
    while (spent := time.perf_counter() - started) < seconds:
        scorer(orders)
        valued += len(orders)
    return valued / spent


def met_orders(scorer: EvidenceScorer, costs: Sequence[int], budget: int, most: int, seed: int) -> list[Order]:
    """Return orders that a search with a scorer meets, at most so many, drawn at random."""
    met: list[Order] = []

    def score(orders: Sequence[Order]) -> FloatArray:
        met.extend(orders)
        return scorer(orders)

    search.search(costs, score, budget, search.SearchConfig(policy="beam", iterations=100))
    chosen = np.random.default_rng(seed).permutation(len(met))[:most]
    return [met[index] for index in sorted(chosen.tolist())]

"""The simpler selectors' own work, measured: cuts of similarity curves, and clusters of embeddings.

No model runs here: similarities and embeddings are drawn at random.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from typing import Any, get_args

import numpy as np

from corag.progress import counted
from corag.selectors.adaptive_k import Strategy, cutoffs
from corag.selectors.car import cluster_cutoff
from corag.selectors.clustering import Method
from corag.selectors.edc2 import dynamic_clusters
from corag.selectors.raptor.clusters import soft_clusters
from corag.types import FloatArray
from experiments.bench.harness import CLOCKS, Clock, Timing, finished, log_axes, peak_mb
from experiments.run.drawing import COLORS, new_figure

QUERIES, DOCUMENTS = 10_000, 1_000
CAR_CANDIDATES = 40
EDC2_CANDIDATES = 100
RAPTOR_CHUNKS = (1_250, 2_500, 5_000, 10_000)
DIMENSIONS = 384
TOPICS = 60
SEED = 0
ROUNDS = 11
TITLE = "selectors without their models; memory at its peak, and the power of n with which it grows"
COLUMNS = {"setting": "setting", "ms": "ms", "peak_mb": "MB", "growth": "power"}


def bench_selectors(timing: Timing, *, raptor_chunks: Sequence[int] = RAPTOR_CHUNKS) -> dict[str, list[dict[str, Any]]]:
    """Time the cuts, and cluster each number of chunks once.

    Returns `rows`, the lines of the table, and `curve`: chunks, seconds and peak memory of the clusters.
    """
    curve = [raptor_run(number, timing.clock) for number in counted("clusters", raptor_chunks)]
    return {"rows": [*cut_rows(timing), *raptor_rows(curve)], "curve": curve}


def cut_rows(timing: Timing) -> list[dict[str, Any]]:
    """Time cuts of similarity curves: Adaptive-k on many at once, CAR and EDC2-RAG on one."""
    rng = np.random.default_rng(SEED)
    many = -np.sort(-rng.beta(2, 5, size=(QUERIES, DOCUMENTS)), axis=1)
    distances = np.sort(1 - rng.beta(2, 5, size=CAR_CANDIDATES))
    query, vectors = rng.normal(size=DIMENSIONS), topical_vectors(EDC2_CANDIDATES)
    batches: dict[str, Callable[[], object]] = {
        f"adaptive-k, {strategy}, {QUERIES} x {DOCUMENTS}": partial(cutoffs, many, strategy=strategy)
        for strategy in get_args(Strategy)
    }
    singles: dict[str, Callable[[], object]] = {
        f"car, {method}, {CAR_CANDIDATES} candidates": partial(cluster_cutoff, distances, method=method)
        for method in get_args(Method)
    }
    singles[f"edc2, clusters of {EDC2_CANDIDATES}"] = partial(dynamic_clusters, query, vectors)
    for run in singles.values():
        # The first run of a clusterer imports its library.
        run()
    seconds = replace(timing, rounds=min(timing.rounds, 5)).medians(batches) | timing.medians(singles)
    return [
        {"setting": name, "ms": 1e3 * spent, "us_per_query": 1e6 * spent / (QUERIES if name in batches else 1)}
        for name, spent in seconds.items()
    ]


def raptor_rows(curve: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines about clusters of chunks; `growth` is the power of their number with which the peak grows."""
    rows = []
    for before, one in zip([None, *curve[:-1]], curve, strict=True):
        growth = None if before is None else growth_power(before, one)
        row = {"setting": f"raptor, clusters of {one['chunks']} chunks", "ms": 1e3 * one["seconds"]}
        rows.append(row | {"clusters": one["clusters"], "peak_mb": one["peak_mb"], "growth": growth})
    return rows


def growth_power(before: Mapping[str, Any], after: Mapping[str, Any]) -> float | None:
    """Return p where the peak grows as chunks ** p: 1 is linear, 2 quadratic; None without two peaks to compare."""
    if not before["peak_mb"] or not after["peak_mb"]:
        return None
    return math.log(after["peak_mb"] / before["peak_mb"]) / math.log(after["chunks"] / before["chunks"])


def raptor_run(num_chunks: int, clock: Clock = "wall") -> dict[str, Any]:
    """Cluster embeddings as RAPTOR does for its first layer, in a process of its own whose memory is its alone."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_clustered, num_chunks, clock).result()


def _clustered(num_chunks: int, clock: Clock) -> dict[str, Any]:
    points, now = topical_vectors(num_chunks), CLOCKS[clock]
    # Libraries and their work space are no part of what the chunks cost.
    soft_clusters(topical_vectors(64), reduction="pca")
    before, started = peak_mb(), now()
    clusters = soft_clusters(points, reduction="pca")
    seconds = now() - started
    return {"chunks": num_chunks, "seconds": seconds, "clusters": len(clusters), "peak_mb": peak_mb() - before}


def topical_vectors(number: int, seed: int = SEED) -> FloatArray:
    """Return unit vectors around a number of topics, `[number, DIMENSIONS]`."""
    rng = np.random.default_rng(seed)
    topics = rng.normal(size=(TOPICS, DIMENSIONS))
    vectors = topics[rng.integers(TOPICS, size=number)] + 0.8 * rng.normal(size=(number, DIMENSIONS))
    unit: FloatArray = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


def plot(measured: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return an SVG of time and memory of clusters of chunks against their number, beside a quadratic growth."""
    curve = measured["curve"]
    figure = new_figure(9.6, 3.6)
    chunks = [one["chunks"] for one in curve]
    for panel, key, heading in zip(figure.subplots(1, 2), ("seconds", "peak_mb"), ("seconds", "peak, MB"), strict=True):
        values = [max(one[key], 1e-3) for one in curve]  # a logarithmic axis has no 0
        panel.plot(chunks, values, marker="o", color=COLORS[0], label="RAPTOR's clusters")
        squares = [values[0] * (number / chunks[0]) ** 2 for number in chunks]
        panel.plot(chunks, squares, color=COLORS[-1], linestyle="--", label="quadratic")
        log_axes(panel, chunks, "chunks", heading)
    return finished(figure)

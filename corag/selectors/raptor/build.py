"""Building a tree of summaries: soft clusters, the tree over chunks, and the tree of an index, bound to its content.

Clusters are after RAPTOR (Sarthi et al., "RAPTOR: Recursive abstractive processing for tree-organized retrieval", 2024,
section 3): dimensions are reduced, here by PCA and there by UMAP, the Bayesian information criterion chooses the number
of components of a Gaussian mixture, and a point belongs to every component that is likely enough. Letters: N points, D
dimensions.

The tree of an index is in its folder: `tree.npz` is the tree, `summaries.jsonl` keeps every
summary from the moment that it is written: a build that is killed resumes, and a tree over a changed corpus asks only
for summaries of what changed around it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag.ambient import Report
from corag.errors import DataError, IndexMismatchError, InputError, SummarizerError
from corag.index.search import ChunkIndex
from corag.index.store import index_lock, local_folder, require_inside
from corag.memory import TextStore
from corag.models.embedders import CachedEmbedder
from corag.optional import require
from corag.selectors.car import IntArray
from corag.selectors.raptor.tree import FOLDER, SUMMARY, Node, RaptorTree, tree_file
from corag.summarizers.runs import Summary, summarize_all
from corag.text.chunking import cut_to_tokens
from corag.types import Chunk, Embedder, FloatArray, Summarizer, SummaryRequest

MAX_FITTED = 10_000
"""Mixtures are fitted to at most this many points, drawn at random; all are assigned. A fit
of 50 components to 100,000 points takes minutes, and there are 50 fits."""
DIMENSIONS = 10
"""Dimensions to reduce to; never more than the square root of the points."""
MAX_COMPONENTS = 50
"""The most components of a mixture. There are never more than the square root of the points, nor so many that a
component has fewer points than a mean has numbers, and all share one covariance: with as many parameters as points the
criterion no longer holds (unbounded, it gives 39 components to four groups of 102 points)."""
MIN_PROBABILITY = 0.1
"""The least probability with which a point belongs to a cluster; the most probable one always."""
SEED = 0
"""Of the mixtures, and of what they are fitted to."""


def soft_clusters(points: FloatArray) -> list[tuple[int, ...]]:
    """Return clusters of points, `[N, D]`; a point is in one or more of them.

    In two steps, as in the paper: clusters of all points, and within each of these again.

    Returns:
        Indices in each cluster, ascending; clusters by their first point. Equal clusters once.

    Raises:
        MissingExtraError: scikit-learn is not installed.
    """
    outer = _mixture_clusters(points)
    return sorted({tuple(part[inner].tolist()) for part in outer for inner in _mixture_clusters(points[part])})


def _mixture_clusters(points: FloatArray) -> list[IntArray]:
    num_points = len(points)
    root = int(np.sqrt(num_points))
    dimensions = min(DIMENSIONS, root)
    most = min(MAX_COMPONENTS, root, num_points // (dimensions + 1))
    if most < 2 or len(np.unique(points, axis=0)) <= most:
        return [np.arange(num_points)] if num_points else []
    drawn: IntArray | slice = slice(None)
    if num_points > MAX_FITTED:
        drawn = np.sort(np.random.default_rng(SEED).choice(num_points, MAX_FITTED, replace=False))
    # Of many points the directions come from D x D numbers, not N x D.
    solver = "full" if isinstance(drawn, slice) else "covariance_eigh"
    number = min(dimensions, points.shape[1], num_points - 2)
    pca = require("sklearn.decomposition", "clustering").PCA(number, svd_solver=solver)
    reduced = np.asarray(pca.fit_transform(points), dtype=np.float64)
    fitted = reduced[drawn]
    mixture = require("sklearn.mixture", "clustering").GaussianMixture
    # Points that coincide must not shrink a component to nothing.
    floor = 1e-4 * float(reduced.var()) + 1e-9
    fits = [
        mixture(count, covariance_type="tied", reg_covar=floor, max_iter=500, random_state=SEED).fit(fitted)
        for count in range(1, most + 1)
    ]
    best = fits[int(np.argmin([fit.bic(fitted) for fit in fits]))]
    probabilities = best.predict_proba(reduced)
    members = probabilities >= MIN_PROBABILITY
    members[np.arange(num_points), probabilities.argmax(axis=1)] = True
    return [np.flatnonzero(column) for column in members.T if column.any()]


SUMMARY_TOKENS = 100
"""The most tokens of a summary by default."""
MAX_LAYERS = 5
"""The most layers above the chunks."""
MIN_NODES = 4
"""A layer of fewer nodes is not summarized further."""
SUMMARIES_AT_ONCE = 32
"""Summaries requested between two reports of progress, or more if a summarizer writes many at the same time."""


def build_tree(
    chunks: Sequence[Chunk],
    embedder: CachedEmbedder,
    summarizer: Summarizer,
    summary_tokens: int = SUMMARY_TOKENS,
    *,
    vectors: NDArray[Any] | None = None,
    store: TextStore | None = None,
    report: Report = lambda written, needed: None,
) -> RaptorTree:
    """Return a tree over chunks; equal chunks and settings give equal trees.

    Layers are added until one has fewer than `MIN_NODES` nodes, its clusters are as many as its nodes, or there are
    `MAX_LAYERS` above the chunks.

    Args:
        chunks: The chunks.
        embedder: Embeds chunks and summaries.
        summarizer: Writes the summaries.
        summary_tokens: The most tokens of a summary.
        vectors: The chunks' unit vectors, `[len(chunks), D]`, if they are known.
        store: Keeps each summary as soon as it is written, so that an interrupted build resumes.
        report: Called with (summaries written, summaries known to be needed); a later layer adds to both.

    Raises:
        InputError: Two chunks share an id, or one has an id that summaries have.
        SummarizerError: With a `store`, all of `SUMMARIES_AT_ONCE` summaries failed, or all of a layer. Without one a
            tree of beginnings of texts comes of it.
    """
    ids = {chunk.id for chunk in chunks}
    if len(ids) < len(chunks):
        raise InputError("two chunks share an id; use unique ids, such as docid#start-end")
    if reserved := [name for name in ids if name.startswith(SUMMARY)]:
        raise InputError(f"chunk id {reserved[0]!r} begins with {SUMMARY!r}, as those of summaries do; rename it")
    layer = [Node(chunk.id, chunk.text, 0, (), (chunk.id,), dict(chunk.metadata)) for chunk in chunks]
    if vectors is None:
        vectors = embedder.vectors([node.text for node in layer])
    nodes, of_layers, num_failed = list(layer), [vectors], 0
    for number in range(1, MAX_LAYERS + 1):
        if len(layer) < MIN_NODES:
            break
        clusters = soft_clusters(of_layers[-1])
        if len(clusters) >= len(layer):
            break
        groups = [[layer[index] for index in cluster] for cluster in clusters]
        requests = [SummaryRequest(tuple(node.text for node in group), summary_tokens) for group in groups]
        summaries = _summaries(requests, summarizer, store, report, written=len(nodes) - len(chunks))
        num_failed += sum(not summary.text for summary in summaries)
        layer = []
        for position, (group, summary) in enumerate(zip(groups, summaries, strict=True)):
            beginning = cut_to_tokens("\n\n".join(node.text for node in group), summarizer.tokens, summary_tokens)
            sources = tuple(dict.fromkeys(source for node in group for source in node.sources))
            children = tuple(node.id for node in group)
            layer.append(Node(f"{SUMMARY}{number}/{position}", summary.text or beginning, number, children, sources))
        nodes += layer
        of_layers.append(embedder.vectors([node.text for node in layer]).astype(vectors.dtype))
    return RaptorTree(tuple(nodes), np.concatenate(of_layers), embedder.name, num_failed)


def _summaries(
    requests: Sequence[SummaryRequest], summarizer: Summarizer, store: TextStore | None, report: Report, written: int
) -> list[Summary]:
    """Return the summaries of a layer; `written` have been written before."""
    summaries: list[Summary] = []
    total = written + len(requests)
    at_once = max(SUMMARIES_AT_ONCE, 4 * summarizer.max_concurrent)
    for begin in range(0, len(requests), at_once):
        report(written + begin, total)
        some = summarize_all(summarizer, requests[begin : begin + at_once], store=store)
        failures = [summary.failure for summary in some if summary.failure is not None]
        if store is not None and len(failures) == len(some):
            raise SummarizerError(f"all of {len(some)} summaries by {summarizer.name} failed; the first: {failures[0]}")
        summaries += some
    report(total, total)
    return summaries


_REMEDY = "run `corag index` with --tree again, which keeps the summaries that still hold"


def update_tree(
    index: ChunkIndex, embedder: Embedder, summarizer: Summarizer, *, report: Report = lambda written, needed: None
) -> tuple[RaptorTree, bool]:
    """Build the tree over an index, bring it up to date, or resume an earlier call.

    The embedder must be the index's, whose vectors are those of the leaves.

    Returns:
        The tree, and whether it was built now; one of the same content and settings without failed summaries is kept.

    Raises:
        InputError: The index is on object storage.
        IndexMismatchError: The embedder is not the index's, or the index was changed meanwhile.
        SummarizerError: All of many summaries failed; those written before are kept.
        DataError: The folder cannot be written, or leads out of the index.
    """
    parent = local_folder(index.uri)
    if parent is None:
        raise InputError(f"the index at {index.uri} is on object storage; a tree needs an index in a local folder")
    folder = parent / FOLDER
    require_inside(parent, [FOLDER])
    index.manifest.require_embedder(embedder.name, embedder.dimension, index.uri)
    record = {**_content(index), "summarizer": summarizer.identity, "summary_tokens": SUMMARY_TOKENS}
    with index_lock(index.uri):
        if ChunkIndex.open(index.uri).manifest != index.manifest:
            raise IndexMismatchError(f"the index at {index.uri} was changed meanwhile; {_REMEDY}")
        with suppress(DataError, IndexMismatchError):
            tree = RaptorTree.load(folder)
            if tree.record == record and not tree.num_failed:
                return tree, False
        tree = build_tree(
            list(index.chunks()),
            CachedEmbedder(embedder),
            summarizer,
            SUMMARY_TOKENS,
            vectors=index.vectors(),
            store=TextStore(folder / "summaries.jsonl"),
            report=report,
        )
        tree = replace(tree, record=record)
        tree.save(folder)
    return tree, True


def load_tree(path: str | Path) -> RaptorTree:
    """Return the tree of an index, given by the index's folder, or a tree of its own folder.

    Raises:
        DataError: There is no whole tree.
        IndexMismatchError: The index has changed since its tree was built.
    """
    if (file := tree_file(path)) is None:
        return RaptorTree.load(path)
    tree = RaptorTree.load(file.parent)
    if not _content(ChunkIndex.open(path)).items() <= tree.record.items():
        raise IndexMismatchError(f"the index at {path} has changed since its tree was built; {_REMEDY}")
    return tree


def is_current(index: ChunkIndex) -> bool:
    """Return whether the tree beside an index is one of its present content, or there is none."""
    try:
        return tree_file(index.uri) is None or bool(load_tree(index.uri))
    except (DataError, IndexMismatchError):
        return False


def _content(index: ChunkIndex) -> Mapping[str, Any]:
    """Return what a tree must share with an index."""
    manifest = index.manifest
    return {"index": manifest.fingerprint, "chunks": manifest.num_chunks, "embedder": manifest.embedder_name}

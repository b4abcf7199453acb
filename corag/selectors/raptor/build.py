"""Growing a tree of summaries: soft clusters, the tree over chunks, and the tree of an index, bound to its content.

Clusters are after RAPTOR (Sarthi et al., "RAPTOR: Recursive abstractive processing for tree-organized retrieval", 2024,
section 3): dimensions are reduced, the Bayesian information criterion chooses the number of components of a Gaussian
mixture, and a point belongs to every component that is likely enough. Letters: N points, D dimensions.

The tree of an index lies in its folder: `tree.json` and `vectors.npy` are the tree, `summaries.sqlite` holds every
summary from the moment that it is written: a build that is killed goes on, and a tree over a changed corpus asks only
for summaries of what changed around it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from corag.checks import check_choice, check_count, check_range, check_seed
from corag.errors import DataError, IndexMismatchError, InputError, SummarizerError
from corag.index.search import ChunkIndex
from corag.index.store import index_lock
from corag.memory import DiskStore
from corag.models.cached import CachedEmbedder
from corag.optional import require
from corag.selectors.clustering import IntArray
from corag.selectors.raptor.tree import SUMMARY, Node, RaptorTree, tree_file, tree_folder
from corag.summarizers.runs import Summary, summarize_all, summary_store
from corag.text.chunking import cut_to_tokens
from corag.types import Chunk, Embedder, FloatArray, Summarizer, SummaryRequest

Reduction = Literal["auto", "umap", "pca"]

MOST_FITTED = 10_000
"""Of more points than this, so many drawn at random are what mixtures, and UMAP, are fitted to; all are assigned.

It bounds time and memory: a fit of 50 components to 100,000 points takes minutes, and there are 50 fits.
"""


def soft_clusters(
    points: FloatArray,
    *,
    reduction: Reduction = "auto",
    dimensions: int = 10,
    max_components: int = 50,
    threshold: float = 0.1,
    seed: int = 0,
) -> list[tuple[int, ...]]:
    """Return clusters of points; a point is in one or more of them.

    In two steps, as in the paper: clusters of all points, and within each of these again.

    Args:
        points: Embeddings, `[N, D]`.
        reduction: `umap` (extra `umap`), `pca`, or `auto`: UMAP where it is installed.
        dimensions: Dimensions to reduce to; never more than the square root of the points.
        max_components: The most components of a mixture. There are never more than the square root of the points,
            nor so many that a component has fewer points than a mean has numbers, and all share one covariance:
            with as many parameters as points the criterion no longer holds (unbounded, it gives 39 components to
            four groups of 102 points).
        threshold: The least probability with which a point belongs to a cluster; the most probable one always.
        seed: Of the reduction and of the mixtures.

    Returns:
        Indices in each cluster, ascending; clusters by their first point. Equal clusters once.

    Raises:
        MissingExtraError: A library is not installed.
    """
    check_choice("reduction", reduction, Reduction)

    def clusters(part: FloatArray, neighbours: int) -> list[IntArray]:
        num_points = len(part)
        root = int(np.sqrt(num_points))
        number = min(dimensions, root)
        most = min(max_components, root, num_points // (number + 1))
        if most < 2 or len(np.unique(part, axis=0)) <= most:
            return [np.arange(num_points)] if num_points else []
        reduced = reduce_dimensions(part, number, reduction=reduction, neighbours=neighbours, seed=seed)
        mixture = require("sklearn.mixture", "clustering").GaussianMixture
        # Points that coincide must not shrink a component to nothing.
        floor = 1e-4 * float(reduced.var()) + 1e-9
        fitted = reduced[_sample(num_points, seed)]
        fits = [
            mixture(count, covariance_type="tied", reg_covar=floor, max_iter=500, random_state=seed).fit(fitted)
            for count in range(1, most + 1)
        ]
        best = fits[int(np.argmin([fit.bic(fitted) for fit in fits]))]
        probabilities = best.predict_proba(reduced)
        members = probabilities >= threshold
        members[np.arange(num_points), probabilities.argmax(axis=1)] = True
        return [np.flatnonzero(column) for column in members.T if column.any()]

    # UMAP looks at the square root of N neighbours for the whole, and at 10 within a cluster, as the paper does.
    around = max(2, int(np.sqrt(max(len(points) - 1, 1))))
    outer = clusters(points, around)
    return sorted({tuple(part[inner].tolist()) for part in outer for inner in clusters(points[part], 10)})


def reduce_dimensions(
    points: FloatArray, dimensions: int, *, reduction: Reduction = "auto", neighbours: int = 10, seed: int = 0
) -> FloatArray:
    """Return the points `[N, D]`, at least 4, in fewer dimensions, `[N, dimensions]` or as many as there can be.

    PCA is exact; UMAP keeps each point's `neighbours` together. For the rest see `soft_clusters`.
    """
    check_choice("reduction", reduction, Reduction)
    if reduction == "auto":
        reduction = "umap" if importlib.util.find_spec("umap") else "pca"
    number = min(dimensions, points.shape[1], len(points) - 2)
    if reduction == "umap":
        umap = require("umap", "umap").UMAP(
            n_components=number,
            n_neighbors=max(2, min(neighbours, len(points) - 1)),
            metric="cosine",
            random_state=seed,
            n_jobs=1,
        )
        if len(points) <= MOST_FITTED:
            return np.asarray(umap.fit_transform(points), dtype=np.float64)
        return np.asarray(umap.fit(points[_sample(len(points), seed)]).transform(points), dtype=np.float64)
    if len(points) > MOST_FITTED:
        # The same directions from D x D numbers, not N x D.
        _, directions = np.linalg.eigh(np.cov(points, rowvar=False))
        return np.asarray((points - points.mean(axis=0)) @ directions[:, ::-1][:, :number], dtype=np.float64)
    left, sizes, _ = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)
    return cast(FloatArray, left[:, :number] * sizes[:number])


def _sample(number: int, seed: int) -> IntArray | slice:
    """Return which of so many points are fitted, at most `MOST_FITTED`, ascending."""
    if number <= MOST_FITTED:
        return slice(None)
    return np.sort(np.random.default_rng(seed).choice(number, MOST_FITTED, replace=False))


SUMMARIES_AT_ONCE = 32
"""Summaries asked for between two reports of progress, or more where a summarizer writes many at the same time."""


@dataclass(frozen=True, slots=True)
class RaptorConfig:
    """How a tree is grown.

    Attributes:
        summary_tokens: The most tokens of a summary.
        max_layers: The most layers above the chunks.
        min_nodes: A layer of fewer nodes is not summed up further.
        seed: Of everything random.

    The others are those of `corag.selectors.raptor.build.soft_clusters`.
    """

    summary_tokens: int = 100
    max_layers: int = 5
    min_nodes: int = 4
    reduction: Reduction = "auto"
    dimensions: int = 10
    max_components: int = 50
    threshold: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("reduction", self.reduction, Reduction)
        check_count("summary_tokens", self.summary_tokens, "100 is usual")
        check_count("max_layers", self.max_layers, "5 is usual", least=0)
        check_count("min_nodes", self.min_nodes, "4 is usual", least=2)
        check_count("dimensions", self.dimensions, "10 is usual")
        check_seed(self.seed)
        check_count("max_components", self.max_components, "50 is usual")
        check_range("threshold", self.threshold, 0, 1, "0.1 is usual")
        if not self.threshold:
            raise InputError(f"threshold must be above 0 and at most 1, got {self.threshold!r}; 0.1 is usual")


class RaptorBuilder:
    """Grows trees.

    Args:
        embedder: Embeds chunks and summaries.
        summarizer: Writes the summaries.
        config: How trees are grown.
        store: Keeps each summary as soon as it is written, so that an interrupted build goes on where it stopped.
        report: Called with (summaries written, summaries known to be needed); a later layer adds to both.
        strict: Whether it is an error if all of many summaries fail; else a tree of beginnings of texts comes of it.
    """

    def __init__(
        self,
        embedder: CachedEmbedder,
        summarizer: Summarizer,
        config: RaptorConfig | None = None,
        store: DiskStore | None = None,
        *,
        report: Callable[[int, int], None] | None = None,
        strict: bool = False,
    ) -> None:
        self.embedder, self.summarizer = embedder, summarizer
        self.config = config or RaptorConfig()
        self.store = store
        self._report = report or (lambda done, total: None)
        self._strict = strict
        self._written = 0

    def build(self, chunks: Sequence[Chunk], vectors: NDArray[Any] | None = None) -> RaptorTree:
        """Return a tree over chunks; equal chunks and settings give equal trees.

        Layers are added until one has fewer than `min_nodes` nodes, its clusters are as many as its nodes, or there
        are `max_layers` above the chunks.

        Args:
            chunks: The chunks.
            vectors: Their unit vectors, `[len(chunks), D]`, where they are known.

        Raises:
            InputError: Two chunks share an id, or one has an id that summaries have.
            SummarizerError: With `strict`, all of `SUMMARIES_AT_ONCE` summaries failed, or all of a layer.
        """
        _check_ids(chunks)
        if len({chunk.id for chunk in chunks}) < len(chunks):
            raise InputError("two chunks share an id; ids have to be unique: name chunks docid#start-end")
        layer = [_leaf(chunk) for chunk in chunks]
        if vectors is None:
            vectors = self.embedder.vectors([node.text for node in layer])
        nodes, of_layers, num_failed = list(layer), [vectors], 0
        for number in range(1, self.config.max_layers + 1):
            if len(layer) < self.config.min_nodes:
                break
            clusters = soft_clusters(
                of_layers[-1],
                reduction=self.config.reduction,
                dimensions=self.config.dimensions,
                max_components=self.config.max_components,
                threshold=self.config.threshold,
                seed=self.config.seed,
            )
            if len(clusters) >= len(layer):
                break
            groups = [[layer[index] for index in cluster] for cluster in clusters]
            layer, failed = self._summed_up([f"{SUMMARY}{number}/{place}" for place in range(len(groups))], groups)
            num_failed += failed
            nodes += layer
            of_layers.append(self.embedder.vectors([node.text for node in layer]).astype(vectors.dtype))
        return RaptorTree(tuple(nodes), np.concatenate(of_layers), self.embedder.name, num_failed)

    def add(self, tree: RaptorTree, chunks: Sequence[Chunk]) -> RaptorTree:
        """Return the tree with more chunks; only the summaries above them are made anew.

        Each chunk joins the summary of layer 1 that is most similar to it. Clusters stay as they are, so after many
        additions a new tree may be better. A tree without summaries is built again.

        Raises:
            InputError: A chunk's id is in the tree already, or twice among the chunks.
            IndexMismatchError: The tree's vectors are of another embedder.
        """
        tree.check_embedder(self.embedder.name)
        _check_ids(chunks)
        known = {node.id for node in tree.layer(0)}
        for chunk in chunks:
            if chunk.id in known:
                raise InputError(f"chunk {chunk.id!r} is in the tree already; ids have to be unique")
            known.add(chunk.id)
        if tree.num_layers < 2:
            return self.build([*(Chunk(node.id, node.text, node.metadata) for node in tree.nodes), *chunks])
        leaves = [_leaf(chunk) for chunk in chunks]
        new_vectors = self.embedder.vectors([leaf.text for leaf in leaves])
        parents = tree.layer(1)
        nearest = (new_vectors @ tree.vectors_of(parents).T).argmax(axis=1)
        # New children of each node that has any.
        joined: dict[str, list[str]] = {}
        for leaf, parent in zip(leaves, nearest.tolist(), strict=True):
            joined.setdefault(parents[parent].id, []).append(leaf.id)
        nodes = {node.id: node for node in (*tree.nodes, *leaves)}
        num_failed = tree.num_failed
        for number in range(1, tree.num_layers):
            groups = {
                node.id: [nodes[child] for child in (*node.children, *joined[node.id])]
                for node in tree.layer(number)
                if node.id in joined
            }
            made, failed = self._summed_up(list(groups), list(groups.values()))
            num_failed += failed
            nodes.update((node.id, node) for node in made)
            # The parents of what changed are summed up anew, with the children that they have.
            joined = {node.id: [] for node in tree.layer(number + 1) if groups.keys() & set(node.children)}
        ordered = sorted(nodes.values(), key=lambda node: node.layer)
        # What did not change keeps its vector.
        known_vectors = {node.text: vector for node, vector in zip(tree.nodes, tree.vectors, strict=True)}
        fresh = [node.text for node in ordered if node.text not in known_vectors]
        known_vectors |= zip(fresh, self.embedder.vectors(fresh), strict=True)
        vectors = [known_vectors[node.text] for node in ordered]
        return RaptorTree(tuple(ordered), np.array(vectors), tree.embedder, num_failed)

    def _summed_up(self, names: Sequence[str], groups: Sequence[Sequence[Node]]) -> tuple[list[Node], int]:
        """Return a node above each group, and how many summaries failed."""
        limit = self.config.summary_tokens
        requests = [
            SummaryRequest(tuple(node.text for node in group), tuple(node.id for node in group), limit)
            for group in groups
        ]
        made: list[Node] = []
        summaries: list[Summary] = []
        at_once = max(SUMMARIES_AT_ONCE, 4 * self.summarizer.max_concurrent)
        for begin in range(0, len(requests), at_once):
            self._report(self._written, self._written + len(requests) - begin)
            some = summarize_all(self.summarizer, requests[begin : begin + at_once], store=self.store)
            failures = [summary.failure for summary in some if summary.failure is not None]
            if self._strict and len(failures) == len(some):
                raise SummarizerError(
                    f"all of {len(some)} summaries by {self.summarizer.name} failed; the first: {failures[0]}"
                )
            summaries += some
            self._written += len(some)
        self._report(self._written, self._written)
        for name, group, summary in zip(names, groups, summaries, strict=True):
            joined = "\n\n".join(node.text for node in group)
            text = summary.text or cut_to_tokens(joined, self.summarizer.tokens, limit)
            sources = tuple(dict.fromkeys(source for node in group for source in node.sources))
            made.append(Node(name, text, group[0].layer + 1, tuple(node.id for node in group), sources))
        return made, sum(not summary.text for summary in summaries)


def _check_ids(chunks: Sequence[Chunk]) -> None:
    for chunk in chunks:
        if chunk.id.startswith(SUMMARY):
            raise InputError(f"chunk id {chunk.id!r} begins with {SUMMARY!r}, as those of summaries do; rename it")


def _leaf(chunk: Chunk) -> Node:
    return Node(chunk.id, chunk.text, 0, (), (chunk.id,), dict(chunk.metadata))


_SUMMARIES = "summaries.sqlite"
_REMEDY = "run `corag index` with --tree again, which keeps the summaries that still hold"


def update_tree(
    index: ChunkIndex,
    embedder: Embedder,
    summarizer: Summarizer,
    config: RaptorConfig | None = None,
    *,
    report: Callable[[int, int], None] | None = None,
) -> tuple[RaptorTree, bool]:
    """Build the tree over an index, bring it up to date, or go on where an earlier call stopped.

    Args:
        index: The index; its vectors are those of the leaves.
        embedder: The index's embedder, for the summaries.
        summarizer: Writes the summaries.
        config: How the tree is grown.
        report: Called with (summaries written, summaries known to be needed).

    Returns:
        The tree, and whether it was built now; one of the same content and settings without failed summaries stands.

    Raises:
        InputError: The index lies on object storage.
        IndexMismatchError: The embedder is not the index's, or the index was changed meanwhile.
        SummarizerError: All of many summaries failed; those written before are kept.
        DataError: The folder cannot be written.
    """
    folder = tree_folder(index.uri)
    if folder is None:
        raise InputError(f"the index at {index.uri} is on object storage; a tree needs an index in a local folder")
    index.manifest.require_embedder(embedder.name, embedder.dimension, index.uri)
    settings = config or RaptorConfig()
    record = {**_made_of(index), "summarizer": summarizer.identity, "config": asdict(settings)}
    with index_lock(index.uri):
        _check_current(index)
        if (found := _whole(folder)) is not None and found.record == record and not found.num_failed:
            return found, False
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"{folder} cannot be made: {error}; check permissions and free space") from error
        store = summary_store(folder / _SUMMARIES)
        builder = RaptorBuilder(CachedEmbedder(embedder), summarizer, settings, store, report=report, strict=True)
        tree = replace(builder.build(list(index.chunks()), index.vectors()), record=record)
        tree.save(folder)
    return tree, True


def load_tree(place: str | Path) -> RaptorTree:
    """Return the tree of an index, given by the index's folder, or a tree of its own folder.

    Raises:
        DataError: There is no whole tree.
        IndexMismatchError: The index has changed since its tree was built.
    """
    if (file := tree_file(place)) is None:
        return RaptorTree.load(place)
    tree = RaptorTree.load(file.parent)
    if not is_of(tree, ChunkIndex.open(place)):
        raise IndexMismatchError(f"the index at {place} has changed since its tree was built; {_REMEDY}")
    return tree


def is_of(tree: RaptorTree, index: ChunkIndex) -> bool:
    """Return whether a tree was built over the present content of an index."""
    return all(tree.record.get(name) == value for name, value in _made_of(index).items())


def is_current(index: ChunkIndex) -> bool:
    """Return whether the tree beside an index is one of its present content; so is none at all."""
    file = tree_file(index.uri)
    tree = None if file is None else _whole(file.parent)
    return file is None or (tree is not None and is_of(tree, index))


def _made_of(index: ChunkIndex) -> Mapping[str, Any]:
    """Return what a tree must share with an index."""
    manifest = index.manifest
    return {"index": manifest.fingerprint, "chunks": manifest.num_chunks, "embedder": manifest.embedder_name}


def _check_current(index: ChunkIndex) -> None:
    if ChunkIndex.open(index.uri).manifest != index.manifest:
        raise IndexMismatchError(f"the index at {index.uri} was changed meanwhile; {_REMEDY}")


def _whole(folder: Path) -> RaptorTree | None:
    try:
        return RaptorTree.load(folder)
    except (DataError, IndexMismatchError):
        return None

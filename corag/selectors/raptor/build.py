"""Growing a tree: from chunks, and later by more chunks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag.checks import check_choice, check_count, check_range, check_seed
from corag.errors import InputError, SummarizerError
from corag.memory import DiskStore
from corag.models.cached import CachedEmbedder
from corag.selectors.raptor.clusters import Reduction, soft_clusters
from corag.selectors.raptor.tree import SUMMARY, Node, RaptorTree
from corag.summarizers.runs import Summary, summarize_all
from corag.text.chunking import cut_to_tokens
from corag.types import Chunk, Summarizer, SummaryRequest

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

    The others are those of `corag.selectors.raptor.clusters.soft_clusters`.
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

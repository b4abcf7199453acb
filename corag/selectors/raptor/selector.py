"""`raptor`: chunks and summaries of chunks side by side, from a tree of summaries; see `corag.selectors.raptor`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from corag.checks import check_choice, check_count
from corag.memory import LRU
from corag.registry import EMBEDDERS, trusted
from corag.selectors.base import Choice, fill, unscored
from corag.selectors.problem import SelectionProblem
from corag.selectors.raptor.build import RaptorBuilder, RaptorConfig, load_tree
from corag.selectors.raptor.tree import SUMMARY, Node, RaptorTree, collapsed, traversal
from corag.selectors.summarizing import PromptPart, WithSummarizer, joined
from corag.types import Candidate, Chunk

Retrieval = Literal["collapsed", "traversal"]
Scope = Literal["tree", "candidates"]

# Trees over candidates are kept, since several budgets and repeated questions share them.
_TREE_BYTES = 64_000_000


@dataclass(kw_only=True, eq=False)
class Raptor(WithSummarizer):
    """Nodes of a tree that are most similar to the question, as far as they fit.

    With a tree over the corpus its nodes, chunks and summaries, are what is searched, as in the paper: the candidates
    that the index offers are not looked at, and the selection's chunks are nodes. Without a tree one is grown over the
    candidates of each question, which costs a few summaries each time.

    Args:
        tree: A tree over the whole corpus: the folder of an index that was made with `corag index --tree`, the tree's
            own folder, or the tree.
        scope: What of a given tree counts: all nodes (`tree`), or only those with a candidate below them
            (`candidates`), such as where each question comes with its own pool.
        retrieval: `collapsed` (all layers together, the better one in the paper) or `traversal` (from the top down).
        top_k: Nodes of each layer in a traversal.
        num_nodes: The most nodes of a given tree that are tried, best first, until the budget is full.
        config: How trees are grown.

    Other settings: see `WithSummarizer`.
    """

    tree: str | Path | RaptorTree | None = None
    scope: Scope = "tree"
    retrieval: Retrieval = "collapsed"
    top_k: int = 5
    num_nodes: int = 100
    config: RaptorConfig | None = None
    name = "raptor"

    def __post_init__(self) -> None:
        self.tree = self._given_tree = load_tree(self.tree) if isinstance(self.tree, str | Path) else self.tree
        super().__post_init__()
        check_choice("scope", self.scope, Scope)
        check_choice("retrieval", self.retrieval, Retrieval)
        check_count("top_k", self.top_k, "5 is usual")
        check_count("num_nodes", self.num_nodes, "100 are usual")
        self.builder = RaptorBuilder(self._embedder, self._summarizer, self.config, self._store)
        self._trees: LRU[tuple[tuple[str, str], ...], RaptorTree] = LRU(_TREE_BYTES, kind="trees")

    def problem(self, query: str, candidates: Sequence[Candidate], budget_tokens: int) -> SelectionProblem:
        """Return what `select` chooses from: the nodes of a given tree, best first, or the candidates."""
        if self._given_tree is None or self.scope == "candidates":
            return super().problem(query, candidates, budget_tokens)
        tree = self._given_tree
        vector = self._embedder.vectors([query])[0]
        nodes = [node for node in self._ranked(tree, query) if node.text.strip()][: self.num_nodes]
        cosines = (tree.vectors_of(nodes) @ vector).clip(-1, 1).tolist() if nodes else []
        offered = [
            Candidate(_chunk(node), cosine, embedder=tree.embedder, rank=rank)
            for rank, (node, cosine) in enumerate(zip(nodes, cosines, strict=True))
        ]
        return super().problem(query, offered, budget_tokens)

    def _choose(self, problem: SelectionProblem) -> Choice:
        if self._given_tree is not None and self.scope == "tree":
            ranking = range(len(problem.chunks))
            order = fill(ranking, problem.costs, problem.capacity)
            kinds = ["summary" if problem.chunks[index].id.startswith(SUMMARY) else "original" for index in order]
            pieces = [
                {"kind": kind, "sources": [problem.chunks[index].id]} for kind, index in zip(kinds, order, strict=True)
            ]
            return unscored(problem, order, {**_trace(self._given_tree), "pieces": pieces})
        tree = self._tree(problem)
        places = {chunk.id: index for index, chunk in enumerate(problem.chunks)}
        parts: dict[str, PromptPart] = {}
        for node in self._ranked(tree, problem.query):
            members = tuple(places[source] for source in node.sources if source in places)
            if members and node.text.strip():
                # A summary of one chunk may be that chunk again.
                parts.setdefault(node.text, PromptPart(node.text, members, "summary" if node.layer else "original"))
        return joined(problem, list(parts.values()), self.tokens, _trace(tree))

    @property
    def _default_embedder(self) -> str:
        if self._given_tree is None:
            return super()._default_embedder
        return trusted(EMBEDDERS, self._given_tree.embedder, "the tree")

    def _ranked(self, tree: RaptorTree, query: str) -> list[Node]:
        """Return the nodes of a tree in the order in which they are tried."""
        tree.check_embedder(self._embedder.name)
        vector = self._embedder.vectors([query])[0]
        return collapsed(tree, vector) if self.retrieval == "collapsed" else traversal(tree, vector, top_k=self.top_k)

    def _tree(self, problem: SelectionProblem) -> RaptorTree:
        if self._given_tree is not None:
            return self._given_tree
        # Questions about one document have the same candidates in another order: they share a tree.
        chunks = sorted(problem.chunks, key=lambda chunk: chunk.id)
        key = tuple((chunk.id, chunk.text) for chunk in chunks)
        return self._trees.get_many([key], lambda _: [self.builder.build(chunks)])[0]


def _chunk(node: Node) -> Chunk:
    """Return a node as a chunk; a summary says what it sums up."""
    if not node.layer:
        return Chunk(node.id, node.text, node.metadata)
    return Chunk(node.id, node.text, {"layer": node.layer, "children": list(node.children)})


def _trace(tree: RaptorTree) -> dict[str, Any]:
    return {"layers": tree.num_layers, "nodes": len(tree.nodes), "summaries_failed": tree.num_failed}

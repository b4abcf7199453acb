"""`raptor`: chunks and summaries of chunks side by side, from a tree of summaries; see `corag.selectors.raptor`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from corag.checks import check_choice, check_count
from corag.memory import Memory
from corag.selectors.base import Choice
from corag.selectors.problem import SelectionProblem
from corag.selectors.raptor.build import RaptorBuilder, RaptorConfig
from corag.selectors.raptor.tree import RaptorTree, collapsed, traversal
from corag.selectors.summarizing import Piece, WithSummarizer, joined

Retrieval = Literal["collapsed", "traversal"]

# Trees over candidates are kept, since several budgets and repeated questions share them.
_TREE_BYTES = 64_000_000


@dataclass(kw_only=True, eq=False)
class Raptor(WithSummarizer):
    """Nodes of a tree that are most similar to the question, as far as they fit.

    Args:
        tree: A tree over the whole corpus, or its folder. Of it only nodes with a candidate below them count. Without
            one a tree is grown over the candidates of each question, which costs a few summaries each time.
        retrieval: `collapsed` (all layers together, the better one in the paper) or `traversal` (from the top down).
        top_k: Nodes of each layer in a traversal.
        config: How trees are grown.

    Other settings: see `WithSummarizer`.
    """

    tree: str | Path | RaptorTree | None = None
    retrieval: Retrieval = "collapsed"
    top_k: int = 5
    config: RaptorConfig | None = None
    name = "raptor"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("retrieval", self.retrieval, Retrieval)
        check_count("top_k", self.top_k, "5 is usual")
        self.tree = self._given_tree = RaptorTree.load(self.tree) if isinstance(self.tree, str | Path) else self.tree
        self.builder = RaptorBuilder(self._embedder, self._summarizer, self.config, self._store)
        self._trees: Memory[tuple[tuple[str, str], ...], RaptorTree] = Memory(_TREE_BYTES)

    def _choose(self, problem: SelectionProblem) -> Choice:
        tree = self._tree(problem)
        query = self._embedder.vectors([problem.query])[0]
        ranked = collapsed(tree, query) if self.retrieval == "collapsed" else traversal(tree, query, top_k=self.top_k)
        places = {chunk.id: index for index, chunk in enumerate(problem.chunks)}
        pieces: dict[str, Piece] = {}
        for node in ranked:
            members = tuple(places[source] for source in node.sources if source in places)
            if members and node.text.strip():
                # A summary of one chunk may be that chunk again.
                pieces.setdefault(node.text, Piece(node.text, members, "summary" if node.layer else "original"))
        trace = {"layers": tree.num_layers, "nodes": len(tree.nodes), "summaries_failed": tree.num_failed}
        return joined(problem, list(pieces.values()), self.tokens, trace)

    def _tree(self, problem: SelectionProblem) -> RaptorTree:
        if self._given_tree is not None:
            self._given_tree.check_embedder(self._embedder.name)
            return self._given_tree
        # Questions about one document have the same candidates in another order: they share a tree.
        chunks = sorted(problem.chunks, key=lambda chunk: chunk.id)
        key = tuple((chunk.id, chunk.text) for chunk in chunks)
        return self._trees.get_many([key], lambda _: [self.builder.build(chunks)])[0]

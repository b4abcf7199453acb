"""`raptor`: chunks and summaries of chunks side by side, from a tree of summaries; see `corag.selectors.raptor`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from corag.checks import check_choice, check_count
from corag.errors import IndexMismatchError
from corag.memory import Memory
from corag.models.cached import CachedEmbedder
from corag.registry import summarizer as make_summarizer
from corag.selectors.base import BudgetedSelector, Choice
from corag.selectors.problem import Problem
from corag.selectors.raptor.build import RaptorBuilder, RaptorConfig
from corag.selectors.raptor.retrieve import collapsed, traversal
from corag.selectors.raptor.tree import RaptorTree
from corag.selectors.summarizing import Piece, joined
from corag.summarizers.runs import summary_store
from corag.types import Embedder, Summarizer, TokenCounter

Retrieval = Literal["collapsed", "traversal"]

# Trees over candidates are kept, since several budgets and repeated questions share them.
_TREE_BYTES = 64_000_000


class Raptor(BudgetedSelector):
    """Nodes of a tree that are most similar to the question, as far as they fit.

    Args:
        tree: A tree over the whole corpus, or its folder. Of it only nodes with a candidate below them count. Without
            one a tree is grown over the candidates of each question, which costs a few summaries each time.
        retrieval: `collapsed` (all layers together, the better one in the paper) or `traversal` (from the top down).
        top_k: Nodes of each layer in a traversal.
        config: How trees are grown.
        embedder: Embeds question, chunks and summaries; name or object.
        summarizer: Name or object.
        store: SQLite file that keeps summaries between runs.
        tokens: The answering model's token counter; handed on to a summarizer given by name.
        summarizer_settings: Settings of a summarizer given by name.
    """

    name = "raptor"

    def __init__(
        self,
        *,
        tree: str | Path | RaptorTree | None = None,
        retrieval: Retrieval = "collapsed",
        top_k: int = 5,
        config: RaptorConfig | None = None,
        embedder: str | Embedder = "minilm",
        summarizer: str | Summarizer = "extractive",
        store: str | Path | None = None,
        tokens: TokenCounter | None = None,
        summarizer_settings: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(tokens=tokens)
        check_choice("retrieval", retrieval, Retrieval)
        check_count("top_k", top_k, "5 is usual")
        self.retrieval, self.top_k = retrieval, top_k
        self.tree = RaptorTree.load(tree) if isinstance(tree, str | Path) else tree
        self._embedder = CachedEmbedder(embedder)
        if isinstance(summarizer, str):
            made = make_summarizer(summarizer, tokens=self.tokens, **(summarizer_settings or {}))
        else:
            made = summarizer
        self.builder = RaptorBuilder(self._embedder, made, config, summary_store(store))
        self._trees: Memory[tuple[tuple[str, str], ...], RaptorTree] = Memory(_TREE_BYTES)

    def _choose(self, problem: Problem) -> Choice:
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

    def _tree(self, problem: Problem) -> RaptorTree:
        if self.tree is not None:
            if self.tree.embedder != self._embedder.name:
                raise IndexMismatchError(
                    f"the tree was made with the embedder {self.tree.embedder!r}, not "
                    f"{self._embedder.name!r}; give that one"
                )
            return self.tree
        # Questions about one document have the same candidates in another order: they share a tree.
        chunks = sorted(problem.chunks, key=lambda chunk: chunk.id)
        key = tuple((chunk.id, chunk.text) for chunk in chunks)
        return self._trees.get_many([key], lambda _: [self.builder.build(chunks)])[0]

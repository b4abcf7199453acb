"""`raptor`: chunks and summaries of chunks side by side, from a tree of summaries; see `corag.selectors.raptor`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from common.checks import check_count
from corag.errors import IndexMismatchError
from corag.memory import LRU
from corag.registry import EMBEDDERS
from corag.selectors.base import Choice, checked, fill, unscored
from corag.selectors.problem import SelectionProblem
from corag.selectors.raptor.build import SUMMARY_TOKENS, build_tree, load_tree
from corag.selectors.raptor.tree import RaptorTree
from corag.selectors.summarizing import PromptPart, WithSummarizer, joined
from corag.types import Candidate, FloatArray
from corag.untrusted import check_untrusted

MAX_OFFERED = 100
"""Nodes of a given tree that are tried, best first, until the budget is full."""
# Trees over candidates are kept, since several budgets and repeated questions share them.
_TREE_BYTES = 64_000_000


@dataclass(kw_only=True, eq=False)
class Raptor(WithSummarizer):
    """Nodes of a tree that are most similar to the question, as far as they fit.

    With a tree over the corpus all its nodes, chunks and summaries, are searched together: the candidates that the
    index offers are ignored, and the selection's chunks are nodes. Without a tree one is built over the candidates of
    each question, which costs a few summaries each time.

    Args:
        tree: A tree over the whole corpus: the folder of an index that was made with `corag index --tree`, the tree's
            own folder, or the tree. Its embedder is the default of `embedder`.
        summary_tokens: The most tokens of a summary in a tree over candidates.
    """

    tree: str | Path | RaptorTree | None = None
    summary_tokens: int = checked(SUMMARY_TOKENS, check_count, hint="typical: 100")
    name = "raptor"

    def __post_init__(self) -> None:
        self.tree = self._tree = self.tree if isinstance(self.tree, RaptorTree | None) else load_tree(str(self.tree))
        if self._tree is not None and self.embedder is None:
            self.embedder = check_untrusted(EMBEDDERS, self._tree.embedder, "the tree")
        super().__post_init__()
        self._built: LRU[tuple[tuple[str, str], ...], RaptorTree] = LRU(_TREE_BYTES)

    @property
    def compares(self) -> bool:
        """Whether it compares candidates: where a tree is given, it does not look at them."""
        return self._tree is None

    def _reads(self, passages: SelectionProblem) -> bool:
        return self._tree is None

    def prepared(self, passages: SelectionProblem) -> SelectionProblem:
        """Return what `select` chooses from: the nodes of a given tree, best first, or the candidates."""
        if self._tree is None:
            return super().prepared(passages)
        tree, vector, rows = self._tree, *self._ranked(self._tree, passages.query)
        cosines = (tree.vectors[rows[:MAX_OFFERED]] @ vector).clip(-1, 1).tolist()
        offered = [
            Candidate(tree.nodes[row].as_chunk(), cosine, embedder=tree.embedder, rank=rank)
            for rank, (row, cosine) in enumerate(zip(rows, cosines, strict=False))
        ]
        return super().prepared(SelectionProblem(passages.query, offered, passages.tokens, passages.budget_tokens))

    def _choose(self, problem: SelectionProblem) -> Choice:
        tree = self._tree_over(problem) if self._tree is None else self._tree
        trace = {"layers": tree.num_layers, "nodes": len(tree.nodes), "summaries_failed": tree.num_failed}
        if self._tree is not None:
            return unscored(problem, fill(range(len(problem.chunks)), problem.costs, problem.capacity), trace)
        positions = {chunk.id: index for index, chunk in enumerate(problem.chunks)}
        parts: dict[str, PromptPart] = {}
        for node in (tree.nodes[row] for row in self._ranked(tree, problem.query)[1]):
            members = tuple(positions[source] for source in node.sources if source in positions)
            if members:
                # A summary of one chunk may be that chunk again.
                parts.setdefault(node.text, PromptPart(node.text, members, "summary" if node.layer else "original"))
        return joined(problem, list(parts.values()), self.tokenizer, trace)

    def _ranked(self, tree: RaptorTree, query: str) -> tuple[FloatArray, list[int]]:
        """Return the question's vector, `[D]`, and the nodes of a tree that have a text, most similar to it first.

        Ties go to the lower layer.
        """
        if tree.embedder != (name := self.cached_embedder.name):
            raise IndexMismatchError(f"expected the tree's embedder {tree.embedder!r}, got {name!r}; use the former")
        vector = self.cached_embedder.vectors([query], query=True)[0]
        ranking = np.argsort(-(tree.vectors @ vector.astype(tree.vectors.dtype)), kind="stable")
        return vector, [row for row in ranking.tolist() if tree.nodes[row].text.strip()]

    def _tree_over(self, problem: SelectionProblem) -> RaptorTree:
        # Questions about one document have the same candidates in another order: they share a tree.
        chunks = sorted(problem.chunks, key=lambda chunk: chunk.id)

        def build(_: object) -> list[RaptorTree]:
            return [build_tree(chunks, self.cached_embedder, self._summarizer, self.summary_tokens)]

        return self._built.get_many([tuple((chunk.id, chunk.text) for chunk in chunks)], build)[0]

"""Choosing below the passage: candidates cut into units, and what changes for a selector that chooses among these."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from corag.selectors.auto import decided
from corag.selectors.problem import SelectionProblem
from corag.text.layout import Layout, Piece
from corag.text.units import PASSAGE, Unit, UnitChunk, source_of, units
from corag.types import Candidate, FloatArray, Order, TokenCounter

DEFAULT_MAX_UNITS = 60
"""20 chunks of 128 tokens have about 100 sentences."""
NEIGHBOUR = 0.8
"""What a unit's score counts for its neighbours: "He was born ..." follows the sentence that says who."""

_WORD = re.compile(r"\w+")


class UnitProblem(SelectionProblem):
    """A selection problem whose candidates are units of the passages that the retriever offers.

    Costs are those of units that stand alone. Chosen units of one document share a title and are joined, so that the
    text costs less; see `SelectionProblem.with_refund`.

    Args:
        query: The question.
        candidates: Passages, best first.
        tokens: Counts as the answering model does.
        budget_tokens: The most tokens that the prompt's text may cost.
        unit: What is chosen.
        max_units: The most units to choose from: those that share most words with the question and stand in passages
            of high rank, and their neighbours.
        passages: The problem as it is without units, where it is set up already.

    Attributes:
        passages: The problem as it is without units.
        documents: The document that each unit is part of, `[n]`.
        title_costs: Tokens of what stands before each unit besides its own text, `[n]`, about which units of one
            document share.
    """

    def __init__(
        self,
        query: str,
        candidates: Sequence[Candidate],
        tokens: TokenCounter,
        budget_tokens: int,
        unit: Unit,
        max_units: int = DEFAULT_MAX_UNITS,
        *,
        passages: SelectionProblem | None = None,
    ) -> None:
        self._passages = passages or SelectionProblem(query, candidates, tokens, budget_tokens)
        super().__init__(query, unit_candidates(self._passages, unit, max_units), tokens, budget_tokens)
        titles = [chunk.source.text[: chunk.body] if isinstance(chunk, UnitChunk) else "" for chunk in self.chunks]
        distinct = list(dict.fromkeys(titles))
        counts = dict(zip(distinct, tokens.count(distinct).tolist(), strict=True))
        self.title_costs: list[int] = [counts[title] for title in titles]
        self.title_tokens = max(self.title_costs, default=0)
        self.documents = [chunk.document if isinstance(chunk, UnitChunk) else chunk.id for chunk in self.chunks]

    @property
    def passages(self) -> SelectionProblem:
        """The problem as it is without units."""
        return self._passages

    def subset(self, indices: Sequence[int], budget_tokens: int | None = None) -> SelectionProblem:
        """Return the problem of choosing among some of the units; see `SelectionProblem.subset`."""
        other = super().subset(indices, budget_tokens)
        assert isinstance(other, UnitProblem)
        other.title_costs = [self.title_costs[index] for index in indices]
        other.documents = [self.documents[index] for index in indices]
        return other

    def shown_by(self, layout: Layout, tokens: TokenCounter) -> SelectionProblem:
        """Return the problem with the costs and texts of a layout; see `SelectionProblem.shown_by`."""
        other = super().shown_by(layout, tokens)
        assert isinstance(other, UnitProblem)
        other._passages = self._passages.shown_by(layout, tokens)
        # What a layout shows of a chunk besides its text, units of that chunk share.
        sources = {source.id: source for source in map(source_of, self.chunks)}
        counts = tokens.count([layout.text([Piece(source, "", (), ())]) for source in sources.values()]).tolist()
        shared = dict(zip(sources, counts, strict=True))
        other.title_costs = [shared[source_of(chunk).id] for chunk in self.chunks]
        other.title_tokens = max(other.title_costs, default=0)
        other.documents = [source_of(chunk).id for chunk in self.chunks]
        return other

    def text_tokens(self, orders: Sequence[Order]) -> list[int]:
        """Return what the text of each order really costs, 0 for the empty one."""
        counts: list[int] = self._tokens.count([self.text(order) for order in orders]).tolist()
        return [count if order else 0 for count, order in zip(counts, orders, strict=True)]


def selection_problem(
    query: str,
    candidates: Sequence[Candidate],
    tokens: TokenCounter,
    budget_tokens: int,
    unit: Unit = PASSAGE,
    max_units: int = DEFAULT_MAX_UNITS,
) -> SelectionProblem:
    """Return what a selector chooses from: the candidates, or their units; see `UnitProblem`."""
    passages, reason = None, None
    if unit.auto or unit.size is None:
        passages = SelectionProblem(query, candidates, tokens, budget_tokens)
    if unit.auto and passages is not None:
        unit, reason = decided(passages)
        passages.unit_reason = reason
    if unit.size is None and passages is not None:
        return passages
    problem = UnitProblem(query, candidates, tokens, budget_tokens, unit, max_units, passages=passages)
    problem.unit_reason = reason
    return problem


def unit_candidates(problem: SelectionProblem, unit: Unit, max_units: int) -> list[Candidate]:
    """Return the units of a problem's passages that are most promising, best first, with their scores.

    The score of a unit is the share of the question's words that it holds, by rarity among the units, plus the place of
    its passage in the ranking, from 1 down to 0.
    """
    ranking = problem.ranking
    found = [(units(problem.chunks[index], unit), rank) for rank, index in enumerate(ranking)]
    parts = [part for of_passage, _ in found for part in of_passage]
    if not parts:
        return []
    ranks = np.repeat([rank for _, rank in found], [len(of_passage) for of_passage, _ in found])
    scores = _shared_words(problem.query, [part.text for part in parts]) + 1 - ranks / len(ranking)
    promise = scores.copy()
    same = ranks[1:] == ranks[:-1]
    promise[1:] = np.where(same, np.maximum(promise[1:], NEIGHBOUR * scores[:-1]), promise[1:])
    promise[:-1] = np.where(same, np.maximum(promise[:-1], NEIGHBOUR * scores[1:]), promise[:-1])
    kept = np.sort(np.argsort(-promise, kind="stable")[:max_units])
    best_first = kept[np.argsort(-scores[kept], kind="stable")]
    return [Candidate(parts[index], float(scores[index]), "score") for index in best_first]


def _shared_words(query: str, texts: Sequence[str]) -> FloatArray:
    """Return the share of the question's words that each text holds, words of few texts counting more, `[n]`."""
    words = [frozenset(_WORD.findall(text.lower())) for text in texts]
    held = Counter(word for of_text in words for word in of_text)
    asked = {word: math.log(1 + len(texts) / (1 + held[word])) for word in set(_WORD.findall(query.lower()))}
    total = sum(asked.values()) or 1.0
    return np.array([sum(weight for word, weight in asked.items() if word in of_text) / total for of_text in words])

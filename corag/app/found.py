"""What a search found, as plain data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from corag.app.growth import grown
from corag.app.inquiry import Inquiry, Settings
from corag.app.shown import blocks, noted, title_of
from corag.app.why import Verdicts, order_of
from corag.rerankers.scorers import CachedScorer
from corag.selectors.problem import SelectionProblem
from corag.text.documents import body
from corag.text.units import source_of
from corag.types import Selection, TokenCounter
from search import SearchConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A question, how it was searched, and what was chosen.

    Attributes:
        inquiry: The question with its candidates.
        settings: The settings, with the reranker that was used.
        problem: What was chosen from.
        config: Settings of the search.
        scorer: The values of orders, as the reranker gives them.
        selection: What was chosen.
        seconds: Wall-clock seconds of the search.
    """

    inquiry: Inquiry
    settings: Settings
    problem: SelectionProblem
    config: SearchConfig
    scorer: CachedScorer
    selection: Selection
    seconds: float

    def to_dict(self, tokens: TokenCounter) -> dict[str, Any]:
        """Return candidates with verdicts, tree, selection and context; `tokens` counts as the search did."""
        problem, selection, evidence = self.problem, self.selection, self.inquiry.evidence
        result = selection.trace.result
        order = order_of(problem, selection.ids)
        num_scored = 0 if result is None else result.num_scored
        token_price = float(selection.trace.details.get("token_price", 0.0))
        verdicts = Verdicts(problem, self.scorer, tokens, order, token_price, num_scored)
        return {
            "question": self.inquiry.question,
            "answers": [] if self.inquiry.query is None else self.inquiry.query.answers,
            "settings": asdict(self.settings),
            "unit": self.settings.unit,
            "similarity": problem.kind,
            "items": self._items(verdicts) if problem.chunks else [],
            "order": order,
            "tokens": selection.cost_tokens,
            "value": verdicts.value,
            "reason": selection.trace.reason,
            "trace": noted(selection.trace.to_dict()),
            "tree": None if result is None else grown(problem, result, self.config, self.scorer),
            "rounds": [] if result is None else result.incumbents,
            "blocks": blocks(selection, evidence),
            "found": None if evidence is None else evidence.found(selection.chunks),
            "gold": None if evidence is None else len(evidence.gold),
            "seconds": self.seconds,
        }

    def _items(self, verdicts: Verdicts) -> list[dict[str, Any]]:
        problem, evidence = self.problem, self.inquiry.evidence
        passages = {one.chunk.id: place for place, one in enumerate(self.inquiry.candidates)}
        figures = zip(
            problem.chunks,
            problem.costs,
            problem.given_similarities,
            verdicts.singles.tolist(),
            verdicts.of_all(),
            strict=True,
        )
        return [
            {
                "title": title_of(chunk),
                "text": body(chunk),
                "passage": passages.get(source_of(chunk).id),
                "tokens": int(cost) - problem.separator_tokens,
                "similarity": similarity,
                "value": value,
                "evidence": None if evidence is None else evidence.marks(chunk),
                **verdict,
            }
            for chunk, cost, similarity, value, verdict in figures
        ]

"""What one method did with one question: what every measure is a function of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from corag.budget import Budget
from corag.text.data import Query
from corag.text.documents import SEPARATOR
from corag.text.units import ranges_of, source_of
from corag.types import Chunk, Embedder, Selection, TokenCounter
from experiments.evaluation.metrics import (
    answer_recall,
    answer_similarity,
    character_figures,
    context_recall,
    evidence_figures,
    exact_match,
    f1,
    redundancy,
    rouge,
    substring_match,
    true_k,
)
from experiments.evaluation.support import Support, contains_answer, findable_answers, support_recall


@dataclass(frozen=True)
class Outcome:
    """What one method chose for one question, and what was read from it; what a question does not have is None or NaN.

    Attributes:
        ranking: Chunks of the candidates, best first.
        budget: What the prompt may cost.
        answer: What was read; None if nothing was.
        original_answer: For a summarised selection, the answer from its chunks as they are.
        served_tokens: Tokens of the prompt, as the model itself counted them.
    """

    query: Query
    selection: Selection
    ranking: Sequence[Chunk]
    budget: Budget
    tokens: TokenCounter
    embedder: Embedder
    support: Support = field(default_factory=Support)
    answer: str | None = None
    original_answer: str | None = None
    served_tokens: int | None = None

    @cached_property
    def cost(self) -> int:
        """Tokens of the selection, counted anew: a selector's own word on its budget is not enough."""
        return int(self.tokens.count([self.selection.text])[0]) if self.selection.text else 0

    @cached_property
    def prompt_tokens(self) -> int | None:
        """Tokens of the whole prompt."""
        return self.budget.prompt_tokens(self.query.question, self.selection.text)

    @property
    def is_over_budget(self) -> bool:
        """Whether selection or prompt is over its budget; what the model itself counted is the last word."""
        too_long = self.budget.excess(self.query.question, self.selection.text) > 0
        served = self.budget.of == "prompt" and (self.served_tokens or 0) > self.budget.tokens
        return self.cost > self.selection.budget_tokens or too_long or served

    @cached_property
    def shown_chunks(self) -> list[Chunk]:
        """Chunks whose text is there; nobody knows what a summary left of the others."""
        if self.selection.spans:
            return list(self.selection.chunks)
        return [chunk for chunk in self.selection.chunks if chunk.text in self.selection.text]

    @cached_property
    def evidence(self) -> Mapping[str, float]:
        """Figures of the evidence in the text by name: by passages, supporting sentences and characters.

        Those that the question does not have are missing.
        """
        figures = evidence_figures(self.shown_chunks, self.query.gold)
        if (recall := support_recall(self.support.spans, self.shown_chunks)) is not None:
            figures |= {"sentence_recall": recall, "full_sentences": float(recall == 1)}
        shown = [ranges_of(chunk) for chunk in self.selection.chunks]
        if self.support.ranges and self.is_whole and None not in shown:
            figures |= character_figures([one for ranges in shown for one in ranges or ()], self.support.ranges)
        return figures

    @cached_property
    def answers(self) -> Mapping[str, float]:
        """Figures of the answer by name, and of what the text holds of the reference answers."""
        references, figures = self.query.answers, dict[str, float]()
        if self.answer is not None and references:
            asked = self.answer, references
            figures = {**rouge(*asked), "f1": f1(*asked), "em": exact_match(*asked), "sub_em": substring_match(*asked)}
        if self.support.answers:
            figures["answer_in_context"] = float(contains_answer(self.selection.text, self.support.answers))
        if findable := findable_answers(self.query):
            figures["answer_recall"] = answer_recall(self.selection.text, findable)
        return figures

    @property
    def context_recall(self) -> float:
        """What the text holds of answer and evidence, which is what the agent learns from."""
        return float(context_recall({**self.evidence, **self.answers}))

    @property
    def true_k(self) -> int | None:
        """Candidates down to the last piece of evidence."""
        return true_k(self.ranking, self.query.gold)

    @property
    def diff_k(self) -> int | None:
        """How far the number of chunks is from `true_k`."""
        num_chunks = len({source_of(chunk).id for chunk in self.selection.chunks})
        return None if self.true_k is None else abs(num_chunks - self.true_k)

    @property
    def is_whole(self) -> bool:
        """Whether the selection is made of chunks as they are, or of their sentences."""
        return bool(self.selection.spans) or self.selection.text == _joined(self.selection.chunks)

    @property
    def original_text(self) -> str:
        """The joined chunks that the selection was made from, in the order of the ranking."""
        sources = {source_of(chunk).id for chunk in self.selection.chunks}
        return _joined([chunk for chunk in self.ranking if chunk.id in sources])

    @property
    def redundancy(self) -> float:
        """How much the selection repeats itself."""
        if self.is_whole:
            return redundancy([chunk.text for chunk in self.selection.chunks], self.embedder)
        return redundancy([part for part in self.selection.text.split(SEPARATOR) if part.strip()], self.embedder)

    @property
    def change_in_tokens(self) -> float | None:
        """What summarizing changed in tokens, in percent, below 0 for fewer: CiT of CRAG (section 3.1.3)."""
        if self.is_whole:
            return None
        original = int(self.tokens.count([self.original_text])[0])
        return 100 * (self.cost - original) / original

    @property
    def answer_similarity(self) -> float | None:
        """How alike the answers from the summary and from its chunks are."""
        one, two = self.answer, self.original_answer
        if self.is_whole or one is None or two is None:
            return None
        return answer_similarity(one, two, self.embedder) if one and two else float(one == two)


def _joined(chunks: Sequence[Chunk]) -> str:
    return SEPARATOR.join(chunk.text for chunk in chunks)

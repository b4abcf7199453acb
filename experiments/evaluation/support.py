"""Figures below the passage: the supporting sentences that a selection holds, and whether the answer is in its text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from corag.text.data import Query, passage_of
from corag.text.documents import Document, with_title
from corag.text.support import SupportingSpan, findable, places, support_recall, supporting_spans
from corag.types import Chunk
from experiments.evaluation.metrics import normalize_answer


@dataclass(frozen=True, slots=True)
class Support:
    """What is known of a question's evidence below the passage.

    Attributes:
        spans: Its supporting sentences.
        answers: Answers that a text can hold; none where none stands in the gold passages, so that no context of
            these could hold one.
    """

    spans: tuple[SupportingSpan, ...] = ()
    answers: tuple[str, ...] = ()

    @classmethod
    def of(cls, query: Query, documents: Mapping[str, Document]) -> Support:
        """Return what is known of a question, given the corpus."""
        answers = tuple(findable(query.answers))
        names = {passage_of(entry, documents) for entry in query.gold} - {None}
        texts = [with_title(documents[name].title, documents[name].text) for name in names if name is not None]
        literal = not texts or any(stands_in(answers, text) for text in texts)
        return cls(supporting_spans(query, documents), answers if literal else ())

    def figures(self, chunks: Sequence[Chunk], context: str) -> dict[str, float]:
        """Return the figures of a selection; a figure that the question does not have is left out.

        Args:
            chunks: Those whose text is there.
            context: What the reader gets.
        """
        recall = support_recall(self.spans, chunks)
        sentences = {} if recall is None else {"sentence_recall": recall, "full_sentences": float(recall == 1)}
        answer = {"answer_in_context": float(stands_in(self.answers, context))} if self.answers else {}
        return {**sentences, **answer}


def counts(questions: Sequence[Mapping[str, Mapping[str, object]]]) -> dict[str, int]:
    """Return how many questions have marked sentences, and an answer that their evidence holds.

    Args:
        questions: The row of each method, by its name.
    """
    names = {"queries_with_sentences": "sentence_recall", "queries_with_answer": "answer_in_context"}
    return {
        name: sum(any(figure in row for row in rows.values()) for rows in questions) for name, figure in names.items()
    }


def stands_in(answers: Sequence[str], text: str) -> bool:
    """Return whether one of the answers stands between word borders of a text, both normalised as in SQuAD."""
    normalized = normalize_answer(text)
    return any(places(normalize_answer(answer), normalized) for answer in answers)

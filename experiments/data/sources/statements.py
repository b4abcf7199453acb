"""Statements to be verified: HaluEval, FELM, WikiBio GPT-3 hallucination (EDC2-RAG, section 5.2 and appendix A).

In HaluEval a question comes with a right and a hallucinated answer: `answers` has the right one, and the field
`hallucinated_answer` the other. In the others a line is one statement, and `answers` is `true` or `false`.
"""

from __future__ import annotations

from collections.abc import Iterator

from corag.text.documents import Document
from experiments.data.sources.source import Inputs, Question, passage_id


def halueval(inputs: Inputs, split: str) -> Iterator[Question]:
    """Convert HaluEval, question answering."""
    for number, row in enumerate(inputs.rows(split)):
        passage = Document(passage_id("halueval", row["knowledge"]), row["knowledge"])
        yield Question(
            f"halueval-{number}",
            row["question"],
            (row["right_answer"],),
            (passage.id,),
            (passage,),
            extra={"hallucinated_answer": row["hallucinated_answer"]},
        )


def felm(inputs: Inputs, split: str) -> Iterator[Question]:
    """Convert FELM: each segment of a response, with the prompt and the annotators' links. It has no passages."""
    for row in inputs.rows(split):
        for number, (segment, label) in enumerate(zip(row["segmented_response"], row["labels"], strict=True)):
            # The source writes some line breaks as a backslash and an n.
            statement = segment.replace("\\n", "\n").strip()
            if not statement:
                continue
            yield Question(
                f"felm-{split}-{row['index']}-{number}",
                statement,
                ("true" if label else "false",),
                extra={"prompt": row["prompt"], "response": row["response"], "links": list(row["ref"] or ())},
            )


def wikibio(inputs: Inputs, split: str) -> Iterator[Question]:
    """Convert WikiBio GPT-3 hallucination: each sentence of a biography by GPT-3, beside the one of Wikipedia.

    A sentence that is inaccurate in a major or minor way is false, as in SelfCheckGPT; `annotation` tells which.
    """
    for row in inputs.rows(split):
        passage = Document(f"wikibio-{row['wiki_bio_test_idx']}", row["wiki_bio_text"])
        for number, (sentence, label) in enumerate(zip(row["gpt3_sentences"], row["annotation"], strict=True)):
            yield Question(
                f"{passage.id}-{number}",
                sentence,
                ("true" if label == "accurate" else "false",),
                (passage.id,),
                (passage,),
                extra={"annotation": label, "response": row["gpt3_text"]},
            )

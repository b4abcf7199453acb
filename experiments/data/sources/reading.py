"""Questions about one passage: SQuAD, QED, CLAP NQ, PubMedQA."""

from __future__ import annotations

from collections.abc import Iterator

from corag.text.documents import Document
from experiments.data.sources.source import Inputs, Question, distinct, passage_id


def squad(inputs: Inputs, split: str) -> Iterator[Question]:
    """Convert SQuAD 1.1, rows as on the hub; `answer_starts` are offsets in the passage."""
    for row in inputs.rows(split):
        title = row["title"].replace("_", " ")
        passage = Document(passage_id("squad", title, row["context"]), row["context"], title)
        starts = dict(zip(row["answers"]["text"], row["answers"]["answer_start"], strict=True))
        yield Question(
            row["id"],
            row["question"],
            distinct(*row["answers"]["text"]),
            (passage.id,),
            (passage,),
            extra={"article": row["title"], "answer_starts": list(starts.values())},
        )


def qed(inputs: Inputs, split: str) -> Iterator[Question]:
    """Convert QED: questions of Natural Questions with their paragraph; those without a right answer are left out."""
    for row in inputs.rows(split):
        annotation = row["annotation"]
        if annotation["explanation_type"] == "none":
            continue
        passage = Document(
            passage_id("nq_qed", row["title_text"], row["paragraph_text"]), row["paragraph_text"], row["title_text"]
        )
        extra = {"explanation": annotation["explanation_type"]}
        if sentence := annotation.get("selected_sentence"):
            extra["supporting_spans"] = [f"{passage.id}#{sentence['start']}-{sentence['end']}"]
        # Each annotator gives a list of spans, which are one answer.
        answers = (" ".join(span["string"] for span in spans) for spans in row["original_nq_answers"])
        yield Question(
            str(row["example_id"]), row["question_text"], distinct(*answers), (passage.id,), (passage,), extra=extra
        )


def clapnq(inputs: Inputs, split: str) -> Iterator[Question]:
    """Convert CLAP NQ: long answers from several sentences of a passage, and questions without an answer.

    The annotations tell the answers and the selected sentences, the questions of the retrieval task the passages' ids.
    """
    gold = {row["id"]: row["doc-id-list"].split(",") for row in inputs.rows(f"{split}-retrieval")}
    for row in inputs.rows(split):
        name, outputs = str(row["id"]), row["output"]
        answers = distinct(*(output["answer"] for output in outputs))
        sentences = [sentence for output in outputs for sentence in output.get("selected_sentences") or ()]
        yield Question(
            name,
            row["input"],
            answers,
            tuple(passage.strip() for passage in gold.get(name, ()) if passage.strip()) if answers else (),
            extra={
                "long_form": True,
                "answerable": bool(answers),
                # The source marks the end of a selected sentence with an ampersand.
                "supporting_sentences": list(distinct(*(sentence.removesuffix("&") for sentence in sentences))),
            },
        )


def clapnq_passages(inputs: Inputs) -> Iterator[Document]:
    """Convert the passages of CLAP NQ."""
    return (Document(row["id"], row["text"], row["title"] or "") for row in inputs.rows("corpus"))


def pubmedqa(inputs: Inputs, split: str) -> Iterator[Question]:
    """Convert PubMedQA, expert-labelled: an abstract without its conclusion answers yes, no or maybe."""
    for row in inputs.rows(split):
        context = row["context"]
        text = "\n".join(
            f"{label}: {paragraph}" for label, paragraph in zip(context["labels"], context["contexts"], strict=True)
        )
        passage = Document(f"pmid-{row['pubid']}", text)
        yield Question(
            str(row["pubid"]),
            row["question"],
            (row["final_decision"],),
            (passage.id,),
            (passage,),
            extra={"long_answer": row["long_answer"]},
        )

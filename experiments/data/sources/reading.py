"""Questions about one passage, or one report: SQuAD, PolicyQA, TAT-QA, QED, CLAP NQ, PubMedQA."""

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


def policyqa(inputs: Inputs, split: str) -> Iterator[Question]:
    """Convert PolicyQA, a file in the form of SQuAD: questions about segments of websites' privacy policies.

    The title of a segment is its site; field `site` of a question tells in whose policy to look.
    """
    policies = (policy for entry in inputs.rows(split) if entry["key"] == "data" for policy in entry["value"])
    for policy in policies:
        site = policy["title"]
        for segment in policy["paragraphs"]:
            context = segment["context"]
            passage = Document(passage_id("policyqa", site, context), context, site)
            for asked in segment["qas"]:
                starts = {answer["text"]: answer["answer_start"] for answer in asked["answers"]}
                answers = distinct(*starts)
                # Offsets go with answers as they are written there.
                marked = {"answer_starts": list(starts.values())} if answers == tuple(starts) else {}
                extra = {"site": site, **marked}
                yield Question(asked["id"], asked["question"], answers, (passage.id,), (passage,), extra=extra)


def tatqa(inputs: Inputs, split: str) -> Iterator[Question]:
    """Convert TAT-QA: questions about a table of a financial report and the paragraphs around it, answered by spans.

    What has to be counted or computed is left out. A passage is a paragraph, or the table with a line for each row.
    """
    for report in inputs.rows(split):
        table, title = report["table"], f"report {report['table']['uid'].partition('-')[0]}"
        rows = "\n".join(" | ".join(cells) for cells in table["table"])
        whole = Document(f"tatqa-{table['uid']}", rows, title)
        paragraphs = {
            str(one["order"]): Document(f"tatqa-{table['uid']}-{one['order']}", one["text"], title)
            for one in report["paragraphs"]
        }
        passages = (whole, *paragraphs.values())
        for asked in report["questions"]:
            if asked["answer_type"] not in ("span", "multi-span"):
                continue
            spans = asked["answer"] if isinstance(asked["answer"], list) else [asked["answer"]]
            gold = [paragraphs[order].id for order in map(str, asked["rel_paragraphs"]) if order in paragraphs]
            gold += [whole.id] if "table" in asked["answer_from"] else []
            yield Question(
                asked["uid"],
                asked["question"],
                distinct(", ".join(map(str, spans))),
                tuple(gold),
                passages,
                pool=True,
                extra={"from": asked["answer_from"]},
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

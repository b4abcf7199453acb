"""Questions asked of a collection: DPR's and EDC2-RAG's sets, MS MARCO, WikiPassageQA, MultiHop-RAG."""

from __future__ import annotations

from collections.abc import Iterator

from corag.text.documents import Document
from experiments.data.sources.source import Inputs, Question, distinct, passage_id

_BY_A_PERSON = 1000
"""Score of the passages that a person marked, among those that hold an answer."""


def dpr(inputs: Inputs, split: str) -> Iterator[Question]:
    """Convert training files of DPR: Wikipedia passages of 100 words that hold an answer, and similar ones that do not.

    Evidence is the passage that an annotator marked, else the first one; the other positive ones are in `positives`.
    The random negatives are left out.
    """
    for number, row in enumerate(inputs.rows(split)):
        positive = [_dpr_passage(one) for one in row["positive_ctxs"]]
        negative = [_dpr_passage(one) for one in row["hard_negative_ctxs"]]
        marked = [one.id for one, context in zip(positive, row["positive_ctxs"], strict=True)
                  if context.get("score") == _BY_A_PERSON]  # fmt: skip
        gold = marked or [one.id for one in positive[:1]]
        yield Question(
            f"{split}-{number}",
            row["question"],
            distinct(*row["answers"]),
            tuple(dict.fromkeys(gold)),
            tuple({one.id: one for one in positive + negative}.values()),
            pool=True,
            extra={"positives": list(dict.fromkeys(one.id for one in positive))},
        )


def _dpr_passage(context: dict[str, str]) -> Document:
    name = context["passage_id"] if "passage_id" in context else context["psg_id"]
    return Document(str(name), context["text"], context["title"])


def edc2(inputs: Inputs, split: str) -> Iterator[Question]:
    """Convert the questions of EDC2-RAG (appendix A.2): passages by DPR, which its reader finds of help or not.

    Candidates stand in the order of the retriever's scores. Evidence is the best passage that helps; all that help are
    in `positives`, and the others in `noise`, from which stress sets are made.
    """
    for number, row in enumerate(inputs.rows(split)):
        passages: dict[str, Document] = {}
        scores: dict[str, float] = {}
        kinds: dict[str, list[str]] = {"positives": [], "noise": []}
        for kind, contexts in (("positives", row["positive_passages"]), ("noise", row["negative_passages"])):
            for context in sorted(contexts, key=lambda one: -float(one["score"])):
                passage = Document(
                    passage_id("edc2", context.get("title") or "", context["text"]),
                    context["text"].strip(),
                    context.get("title") or "",
                )
                if passage.id not in passages:
                    passages[passage.id], scores[passage.id] = passage, float(context["score"])
                    kinds[kind].append(passage.id)
        yield Question(
            f"{split}-{number}",
            row["question"],
            distinct(*row["answers"]),
            tuple(kinds["positives"][:1]),
            tuple(passages[name] for name in sorted(passages, key=lambda name: -scores[name])),
            pool=True,
            extra=kinds,
        )


def msmarco_qa(inputs: Inputs, split: str) -> Iterator[Question]:
    """Convert MS MARCO question answering 2.1: ten passages a question, answers written by people."""
    for row in inputs.rows(split):
        passages, gold = [], []
        found = row["passages"]
        for text, selected in zip(found["passage_text"], found["is_selected"], strict=True):
            passages.append(Document(passage_id("msmarco", text), text))
            gold += [passages[-1].id] if selected else []
        answers = [answer for answer in row["answers"] if answer != "No Answer Present."]
        yield Question(
            str(row["query_id"]),
            row["query"],
            distinct(*(row["wellFormedAnswers"] or ()), *answers),
            tuple(dict.fromkeys(gold)),
            tuple({one.id: one for one in passages}.values()),
            pool=True,
            extra={"type": row["query_type"], "answerable": bool(answers)},
        )


def wikipassageqa(inputs: Inputs, split: str) -> Iterator[Question]:
    """Convert WikiPassageQA: passages of a Wikipedia page that answer, without a written answer."""
    for row in inputs.rows(split):
        relevant = (number.strip() for number in row["RelevantPassages"].split(","))
        gold = tuple(f"{row['DocumentID']}-{number}" for number in relevant if number)
        yield Question(
            f"{split}-{row['QID']}", row["Question"], (), gold, extra={"article": row.get("DocumentName", "")}
        )


def wikipassageqa_passages(inputs: Inputs) -> Iterator[Document]:
    """Convert the pages of WikiPassageQA; the questions tell their names."""
    splits = ("train", "dev", "test")
    names = {row["DocumentID"]: row.get("DocumentName", "") for split in splits for row in inputs.rows(split)}
    for row in inputs.rows("corpus"):
        title = names.get(row["key"], "").removesuffix(".html").replace("_", " ")
        for number, text in row["value"].items():
            yield Document(f"{row['key']}-{number}", text, title)


def multihop_rag(inputs: Inputs, split: str) -> Iterator[Question]:
    """Convert MultiHop-RAG: facts of several news articles, which are named as spans; null queries have no evidence."""
    articles = {row["url"]: (_article_id(row["url"]), row["body"]) for row in inputs.rows("corpus")}
    for number, row in enumerate(inputs.rows(split)):
        gold = []
        for fact in row["evidence_list"]:
            name, body = articles.get(fact["url"], (_article_id(fact["url"]), ""))
            start = body.find(fact["fact"])
            gold.append(f"{name}#{start}-{start + len(fact['fact'])}" if start >= 0 else name)
        yield Question(f"mhr-{number}", row["query"], distinct(row["answer"]), tuple(dict.fromkeys(gold)),
                       extra={"type": row["question_type"]})  # fmt: skip


def multihop_rag_articles(inputs: Inputs) -> Iterator[Document]:
    """Convert the news articles of MultiHop-RAG."""
    return (Document(_article_id(row["url"]), row["body"], row["title"]) for row in inputs.rows("corpus"))


def _article_id(url: str) -> str:
    return passage_id("multihoprag", url)


def multihop_rag_facts(inputs: Inputs, split: str) -> Iterator[Question]:
    """Convert MultiHop-RAG with the facts themselves as passages."""
    for number, row in enumerate(inputs.rows(split)):
        facts = {
            passage.id: passage
            for fact in row["evidence_list"]
            for passage in [Document(passage_id("fact", fact["title"], fact["fact"]), fact["fact"], fact["title"])]
        }
        yield Question(f"mhr-{number}", row["query"], distinct(row["answer"]), tuple(facts), tuple(facts.values()),
                       extra={"type": row["question_type"]})  # fmt: skip

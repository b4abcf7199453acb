"""How the rows of public data sets become questions; `catalogue` says which set takes which converter.

A converter yields the questions of a split with their passages; a corpus that all questions share has one of its own.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any

from corag.text.documents import Document
from experiments.data.fetch import Files, Row
from experiments.data.folder import Question, distinct

Converter = Callable[[Files, str], Iterator[Question]]

HOLOBENCH_DATABASES = ("wine_1", "college_2", "flight_4", "store_1", "soccer_1")
HOLOBENCH_AMOUNTS = {"info-5k": 5_000, "info-10k": 10_000, "info-25k": 25_000, "info-50k": 50_000}
"""Splits: tokens of the rows that matter, of `HOLOBENCH_TOKENS` in all; as in Adaptive-k."""
HOLOBENCH_TOKENS = 100_000
_CHARACTERS_PER_TOKEN = 3.66


def passage_id(prefix: str, *texts: str) -> str:
    """Return an id that depends on the texts alone, so that equal passages of several questions are one."""
    return f"{prefix}-{hashlib.sha256(chr(0).join(texts).encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def _passage(prefix: str, title: str, text: str) -> Document:
    return Document(passage_id(prefix, title, text), text, title)


def _about(passage: Document, name: object, question: str, *answers: str, **extra: Any) -> Question:
    """Return a question whose evidence is one passage."""
    return Question(str(name), question, answers, [passage.id], [passage], extra=extra)


def _with_pool(
    name: object, question: str, answers: Sequence[str], gold: Sequence[str], pool: Sequence[Document], **extra: Any
) -> Question:
    return Question(str(name), question, answers, gold, pool, pool=True, extra=extra)


# --- Evidence in several paragraphs, each question with its own ---


def hotpotqa(files: Files, split: str, prefix: str = "hotpotqa") -> Iterator[Question]:
    """Convert HotpotQA (distractor setting)."""
    for row in files.rows(split):
        passages: list[Document] = []
        sentences_of: dict[str, tuple[Document, list[tuple[int, int]]]] = {}
        for title, sentences in _pairs(row["context"], "title", "sentences"):
            text, spans = join_sentences(sentences)
            passages.append(_passage(prefix, title, text))
            # Of two paragraphs with one title the first is meant, as in the official evaluation.
            sentences_of.setdefault(title, (passages[-1], spans))
        gold, marked = [], []
        for title, sentence in _pairs(row["supporting_facts"], "title", "sent_id"):
            if title in sentences_of:
                passage, spans = sentences_of[title]
                gold.append(passage.id)
                # A few annotations name a sentence that the paragraph does not have.
                marked += [f"{passage.id}#{start}-{end}" for start, end in spans[sentence : sentence + 1]]
        about = row.get("_id") or row["id"], row["question"], [row["answer"]]
        yield _with_pool(*about, gold, passages, supporting_spans=marked)


two_wiki = partial(hotpotqa, prefix="2wikimultihopqa")
"""Converts 2WikiMultihopQA, which has the fields of HotpotQA."""


def _pairs(value: Any, first: str, second: str) -> Iterator[tuple[Any, Any]]:
    """Yield pairs from a list of pairs, from two parallel lists by name, or from either as JSON text."""
    value = json.loads(value) if isinstance(value, str) else value
    if isinstance(value, Mapping):
        return zip(value[first], value[second], strict=True)
    return ((pair[0], pair[1]) for pair in value)


def join_sentences(sentences: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
    """Return a text and the span of each sentence in it; some sets begin sentences with the space between them."""
    gap = "" if any(sentence[:1].isspace() for sentence in sentences[1:]) else " "
    text, spans = "", []
    for sentence in sentences:
        text += gap if text else ""
        words = sentence if text else sentence.lstrip()
        spans.append((len(text) + len(words) - len(words.lstrip()), len(text) + len(words.rstrip())))
        text += words
    return text.rstrip(), spans


def musique(files: Files, split: str) -> Iterator[Question]:
    """Convert MuSiQue-Ans."""
    for row in files.rows(split):
        passages = [_passage("musique", part["title"], part["paragraph_text"]) for part in row["paragraphs"]]
        supporting = [part["is_supporting"] for part in row["paragraphs"]]
        gold = [passage.id for passage, supports in zip(passages, supporting, strict=True) if supports]
        yield _with_pool(row["id"], row["question"], [row["answer"], *row["answer_aliases"]], gold, passages)


# --- One passage, or one report ---


def squad(files: Files, split: str) -> Iterator[Question]:
    """Convert SQuAD 1.1, rows as on the hub; `answer_starts` are offsets in the passage."""
    for row in files.rows(split):
        passage = _passage("squad", row["title"].replace("_", " "), row["context"])
        starts = dict(zip(row["answers"]["text"], row["answers"]["answer_start"], strict=True))
        yield _about(passage, row["id"], row["question"], *starts, answer_starts=list(starts.values()))


def policyqa(files: Files, split: str) -> Iterator[Question]:
    """Convert PolicyQA, a file in the form of SQuAD: questions about segments of websites' privacy policies.

    The title of a segment is its site; field `site` of a question says whose policy is meant.
    """
    policies = (policy for entry in files.rows(split) if entry["key"] == "data" for policy in entry["value"])
    for policy in policies:
        site = policy["title"]
        for segment in policy["paragraphs"]:
            passage = _passage("policyqa", site, segment["context"])
            for asked in segment["qas"]:
                starts = {answer["text"]: answer["answer_start"] for answer in asked["answers"]}
                # Offsets go with answers as they are written there.
                exact = all(answer and answer == answer.strip() for answer in starts)
                extra = {"site": site} | ({"answer_starts": list(starts.values())} if exact else {})
                yield _about(passage, asked["id"], asked["question"], *starts, **extra)


def tatqa(files: Files, split: str) -> Iterator[Question]:
    """Convert TAT-QA: questions about a table of a financial report and the paragraphs around it, answered by spans.

    What has to be counted or computed is left out. A passage is a paragraph, or the table with a line for each row.
    """
    for report in files.rows(split):
        name = report["table"]["uid"]
        title = f"report {name.partition('-')[0]}"
        table = Document(f"tatqa-{name}", "\n".join(" | ".join(cells) for cells in report["table"]["table"]), title)
        texts = {str(part["order"]): part["text"] for part in report["paragraphs"]}
        passages = {order: Document(f"tatqa-{name}-{order}", text, title) for order, text in texts.items()}
        for asked in report["questions"]:
            if asked["answer_type"] not in ("span", "multi-span"):
                continue
            spans = asked["answer"] if isinstance(asked["answer"], list) else [asked["answer"]]
            gold = [passages[order].id for order in map(str, asked["rel_paragraphs"]) if order in passages]
            gold += [table.id] if "table" in asked["answer_from"] else []
            answer, pool = ", ".join(map(str, spans)), [table, *passages.values()]
            yield _with_pool(asked["uid"], asked["question"], [answer], gold, pool)


def qed(files: Files, split: str) -> Iterator[Question]:
    """Convert QED: questions of Natural Questions with their paragraph; those without a right answer are left out."""
    for row in files.rows(split):
        annotation = row["annotation"]
        if annotation["explanation_type"] == "none":
            continue
        passage = _passage("nq_qed", row["title_text"], row["paragraph_text"])
        sentence = annotation.get("selected_sentence")
        marked = {"supporting_spans": [f"{passage.id}#{sentence['start']}-{sentence['end']}"]} if sentence else {}
        # Each annotator gives a list of spans, which are one answer.
        answers = (" ".join(span["string"] for span in spans) for spans in row["original_nq_answers"])
        yield _about(passage, row["example_id"], row["question_text"], *answers, **marked)


def clapnq(files: Files, split: str) -> Iterator[Question]:
    """Convert CLAP NQ: long answers from several sentences of a passage, and questions without an answer.

    The annotations have the answers and the selected sentences, the questions of the retrieval task the passages' ids.
    """
    gold = {row["id"]: row["doc-id-list"].split(",") for row in files.rows(f"{split}-retrieval")}
    for row in files.rows(split):
        name, outputs = str(row["id"]), row["output"]
        answers = [output["answer"] for output in outputs if output["answer"]]
        sentences = [sentence for output in outputs for sentence in output.get("selected_sentences") or ()]
        passages = [passage.strip() for passage in gold.get(name, ()) if passage.strip()]
        # The source marks the end of a selected sentence with an ampersand.
        selected = list(distinct(sentence.removesuffix("&") for sentence in sentences))
        extra = {"answerable": bool(answers), "supporting_sentences": selected}
        yield Question(name, row["input"], answers, passages if answers else [], extra=extra)


def clapnq_passages(files: Files) -> Iterator[Document]:
    """Convert the passages of CLAP NQ."""
    return (Document(row["id"], row["text"], row["title"] or "") for row in files.rows("corpus"))


def mtrag(files: Files, split: str) -> Iterator[Question]:
    """Convert MT-RAG-UN: the last question of a conversation, and the passages and the answer that people gave it."""
    for row in files.rows(split):
        *history, asked = [turn["text"] for turn in row["input"]]
        passages = [Document(part["document_id"], part["text"]) for part in row["contexts"]]
        gold, answers = [passage.id for passage in passages], [target["text"] for target in row["targets"]]
        extra = {"history": history, "answerable": bool(gold)}
        yield Question(row["task_id"], asked, answers, gold, passages, extra=extra)


def chroma_spans(files: Files, split: str) -> Iterator[Question]:
    """Convert Chroma's chunking evaluation: the evidence is spans of a document, and the answer their text."""
    asked: Counter[str] = Counter()
    for row in files.rows(split):
        name, spans = row["corpus_id"], json.loads(row["references"])
        gold = [f"{name}#{span['start_index']}-{span['end_index']}" for span in spans]
        yield Question(f"{name}-{asked[name]}", row["question"], [" ".join(span["content"] for span in spans)], gold)
        asked[name] += 1


def chroma_documents(files: Files) -> Iterator[Document]:
    """Convert the documents of Chroma's chunking evaluation; offsets count a line break as one character."""
    return (Document(row["file"], row["text"].replace("\r\n", "\n")) for row in files.rows("corpus"))


def pubmedqa(files: Files, split: str) -> Iterator[Question]:
    """Convert PubMedQA, expert-labelled: an abstract without its conclusion answers yes, no or maybe."""
    for row in files.rows(split):
        parts = zip(row["context"]["labels"], row["context"]["contexts"], strict=True)
        passage = Document(f"pmid-{row['pubid']}", "\n".join(f"{label}: {text}" for label, text in parts))
        yield _about(passage, row["pubid"], row["question"], row["final_decision"])


# --- A collection of passages ---


def edc2(files: Files, split: str) -> Iterator[Question]:
    """Convert the questions of EDC2-RAG (appendix A.2): passages by DPR, which its reader finds of help or not.

    Candidates are in the order of the retriever's scores. Evidence is the best passage that helps; all that help are
    in `positives`, and the others in `noise`, from which stress sets are made.
    """
    for number, row in enumerate(files.rows(split)):
        best: dict[str, tuple[float, str, Document]] = {}
        for kind, contexts in (("positives", row["positive_passages"]), ("noise", row["negative_passages"])):
            for context in sorted(contexts, key=lambda context: -float(context["score"])):
                title = context.get("title") or ""
                name = passage_id("edc2", title, context["text"])
                best.setdefault(name, (float(context["score"]), kind, Document(name, context["text"].strip(), title)))
        kinds = {kind: [name for name, (_, of, _) in best.items() if of == kind] for kind in ("positives", "noise")}
        pool = [passage for _, _, passage in sorted(best.values(), key=lambda found: -found[0])]
        gold = kinds["positives"][:1]
        yield _with_pool(f"{split}-{number}", row["question"], row["answers"], gold, pool, **kinds)


def wikipassageqa(files: Files, split: str) -> Iterator[Question]:
    """Convert WikiPassageQA: passages of a Wikipedia page that answer, without a written answer."""
    for row in files.rows(split):
        relevant = (number.strip() for number in row["RelevantPassages"].split(","))
        gold = [f"{row['DocumentID']}-{number}" for number in relevant if number]
        yield Question(f"{split}-{row['QID']}", row["Question"], gold=gold)


def wikipassageqa_passages(files: Files) -> Iterator[Document]:
    """Convert the pages of WikiPassageQA, whose names are in the questions."""
    splits = ("train", "dev", "test")
    names = {row["DocumentID"]: row.get("DocumentName", "") for split in splits for row in files.rows(split)}
    for row in files.rows("corpus"):
        title = names.get(row["key"], "").removesuffix(".html").replace("_", " ")
        for number, text in row["value"].items():
            yield Document(f"{row['key']}-{number}", text, title)


def multihop_rag(files: Files, split: str) -> Iterator[Question]:
    """Convert MultiHop-RAG: facts of several news articles, which are named as spans; null queries have no evidence."""
    bodies = {article["url"]: article["body"] for article in files.rows("corpus")}
    for number, row in enumerate(files.rows(split)):
        gold = []
        for fact in row["evidence_list"]:
            name = passage_id("multihoprag", fact["url"])
            start = bodies.get(fact["url"], "").find(fact["fact"])
            # An article that words the fact otherwise counts as a whole.
            gold.append(name if start < 0 else f"{name}#{start}-{start + len(fact['fact'])}")
        extra = {"type": row["question_type"], "answerable": bool(gold)}
        yield Question(f"mhr-{number}", row["query"], [row["answer"]], gold, extra=extra)


def multihop_rag_articles(files: Files) -> Iterator[Document]:
    """Convert the news articles of MultiHop-RAG."""
    for row in files.rows("corpus"):
        yield Document(passage_id("multihoprag", row["url"]), row["body"], row["title"])


def multihop_rag_facts(files: Files, split: str) -> Iterator[Question]:
    """Convert MultiHop-RAG with the facts themselves as passages."""
    for number, row in enumerate(files.rows(split)):
        facts = [_passage("fact", fact["title"], fact["fact"]) for fact in row["evidence_list"]]
        gold, extra = [fact.id for fact in facts], {"type": row["question_type"], "answerable": bool(facts)}
        yield Question(f"mhr-{number}", row["query"], [row["answer"]], gold, facts, extra=extra)


def amazon_phones(files: Files, split: str) -> Iterator[Question]:
    """Convert the reviews of unlocked phones: a question about each product with so many reviews, which are its pool.

    Its splits have the numbers of table 1 of CRAG. All of a product's reviews are evidence, repeated ones too: CRAG
    gives all of them to its baseline. Its questions and products are not published.
    """
    by_product: dict[str, list[str]] = {}
    for row in files.rows("reviews"):
        product, review = (row["Product Name"] or "").strip(), (row["Reviews"] or "").strip()
        if product and review:
            by_product.setdefault(product, []).append(review)
    for product, reviews in by_product.items():
        if split == f"reviews-{len(reviews)}":
            name = passage_id("phone", product)
            passages = [Document(f"{name}-{number}", review) for number, review in enumerate(reviews)]
            asked = f"What do customers like about {product}, and what do they complain about?"
            yield _with_pool(name, asked, (), [passage.id for passage in passages], passages, product=product)


# --- Statements to be verified: the question is a statement, the answer `true` or `false` ---


def halueval(files: Files, split: str) -> Iterator[Question]:
    """Convert HaluEval, question answering; the field `hallucinated_answer` is the wrong one."""
    for number, row in enumerate(files.rows(split)):
        passage = Document(passage_id("halueval", row["knowledge"]), row["knowledge"])
        extra = {"hallucinated_answer": row["hallucinated_answer"]}
        yield _about(passage, f"halueval-{number}", row["question"], row["right_answer"], **extra)


def felm(files: Files, split: str) -> Iterator[Question]:
    """Convert FELM: each segment of a response, with the prompt and the annotators' links. It has no passages."""
    for row in files.rows(split):
        extra = {"prompt": row["prompt"], "response": row["response"], "links": list(row["ref"] or ())}
        for number, (segment, label) in enumerate(zip(row["segmented_response"], row["labels"], strict=True)):
            # The source writes some line breaks as a backslash and an n.
            if statement := segment.replace("\\n", "\n").strip():
                name = f"felm-{split}-{row['index']}-{number}"
                yield Question(name, statement, ["true" if label else "false"], extra=extra)


def wikibio(files: Files, split: str) -> Iterator[Question]:
    """Convert WikiBio GPT-3 hallucination: each sentence of a biography by GPT-3, beside the one of Wikipedia.

    A sentence that is inaccurate in a major or minor way is false, as in SelfCheckGPT; `annotation` says which.
    """
    for row in files.rows(split):
        passage = Document(f"wikibio-{row['wiki_bio_test_idx']}", row["wiki_bio_text"])
        for number, (sentence, label) in enumerate(zip(row["gpt3_sentences"], row["annotation"], strict=True)):
            answer = "true" if label == "accurate" else "false"
            extra = {"annotation": label, "response": row["gpt3_text"]}
            yield _about(passage, f"{passage.id}-{number}", sentence, answer, **extra)


# --- Long contexts (Adaptive-k, section 4.1) ---


def helmet(files: Files, split: str) -> Iterator[Question]:
    """Convert a task of HELMET's RAG part: up to 1,000 passages of Wikipedia a question.

    The source repeats a question with its evidence at other depths; passages have no depth here, so it comes once.
    """

    def passage(context: Row) -> Document:
        return _passage("helmet", context["title"], context["text"])

    seen: set[str] = set()
    for row in files.rows(split):
        if row["question"] in seen:
            continue
        seen.add(row["question"])
        passages = {part.id: part for part in map(passage, row["ctxs"])}
        gold = [part.id for part in map(passage, row["positive_ctxs"]) if part.id in passages]
        name = f"{split}-{len(seen) - 1}"
        yield _with_pool(name, row["question"], row["answers"], gold, list(passages.values()))


def holobench(files: Files, split: str) -> Iterator[Question]:
    """Convert HoloBench: a question over rows of a database, each put as a sentence.

    As in the source, rows are taken in turn from all tables, those that the query names up to the amount of the split,
    the others up to the rest, and the answer is that of the SQL query over the rows taken. Sizes are estimated from
    characters. Evidence is every row of a table that the query names.
    """
    for database in HOLOBENCH_DATABASES:
        tables: dict[str, list[Row]] = {}
        for row in files.rows(database):
            tables.setdefault(row["file"], []).append(row)
        for number, row in enumerate(files.rows(f"queries-{database}")):
            named = re.findall(r"\b(?:from|join)\s+[\"`\[]?(\w+)", row["query"], re.IGNORECASE)
            main = [table for table in tables if table.lower() in map(str.lower, named)]
            taken = _take(tables, main, HOLOBENCH_AMOUNTS[split])
            pool = [Document(f"{database}-{table}-{i}", of["verbalized_text"], table) for table, i, of in taken]
            gold = [passage.id for passage in pool if passage.title in main]
            rows = {name: [json.loads(of["table_row"]) for table, _, of in taken if table == name] for name in main}
            answer = run_query(row["query"], rows)
            yield _with_pool(f"{database}-{number}-{split}", row["question"], [answer], gold, pool)


def _take(tables: Mapping[str, Sequence[Row]], main: Sequence[str], amount: int) -> list[tuple[str, int, Row]]:
    """Return table, index and row of the rows that make the context, in the order in which they are taken."""
    left = {True: float(amount), False: float(HOLOBENCH_TOKENS - amount)}
    taken = []
    for index in range(max(map(len, tables.values()), default=0)):
        for table, rows in tables.items():
            if index < len(rows) and left[table in main] > 0:
                left[table in main] -= len(rows[index]["verbalized_text"]) // _CHARACTERS_PER_TOKEN + 1
                if left[table in main] > 0:
                    taken.append((table, index, rows[index]))
    return taken


def run_query(query: str, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return the result of a query: a line a row, cells divided by commas; empty if SQLite cannot run it."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for table, rows in tables.items():
            columns = list(dict.fromkeys(name for row in rows for name in row))
            listed = ", ".join('"{}"'.format(name.replace('"', '""')) for name in columns) or '"empty"'
            connection.execute(f'CREATE TABLE "{table}" ({listed})')
            marks = ", ".join("?" * len(columns))
            connection.executemany(
                f'INSERT INTO "{table}" VALUES ({marks})', ([row.get(name) for name in columns] for row in rows)
            )
        try:
            result = connection.execute(query).fetchall()
        except sqlite3.Error:
            return ""
    return "\n".join(", ".join("" if cell is None else str(cell) for cell in row) for row in result)

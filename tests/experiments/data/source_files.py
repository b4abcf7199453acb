"""Small files in the form of each source, as its pages and programs describe it."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def parquet(path: Path, rows: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)


def text(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")


def lines(rows: list[dict]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


PARAGRAPHS = [
    ["Varn", ["Varn is an island.", " Its capital is Tolmere."]],
    ["Tolmere", ["Tolmere was founded in 1203.", " It has a choir."]],
    ["Kell", ["Kell is a village."]],
]


def hotpot_row(number: int) -> dict:
    return {
        "id": f"h{number}",
        "question": f"When was the capital of Varn founded ({number})?",
        "answer": "1203",
        "type": "bridge",
        "level": "hard",
        "supporting_facts": {"title": ["Varn", "Tolmere", "Tolmere"], "sent_id": [1, 0, 7]},
        "context": {"title": [one[0] for one in PARAGRAPHS], "sentences": [one[1] for one in PARAGRAPHS]},
    }


def hotpotqa(folder: Path) -> None:
    parquet(folder / "distractor" / "train-00000-of-00002.parquet", [hotpot_row(0), hotpot_row(1)])
    parquet(folder / "distractor" / "train-00001-of-00002.parquet", [hotpot_row(2)])
    parquet(folder / "distractor" / "validation-00000-of-00001.parquet", [hotpot_row(3)])


def two_wiki(folder: Path) -> None:
    context = [[title, [sentence.strip() for sentence in sentences]] for title, sentences in PARAGRAPHS]
    row = {
        "_id": "w0",
        "type": "compositional",
        "question": "When was the capital of Varn founded?",
        "context": json.dumps(context),
        "supporting_facts": json.dumps([["Varn", 1], ["Tolmere", 0]]),
        "evidences": json.dumps([["Varn", "capital", "Tolmere"]]),
        "answer": "1203",
    }
    parquet(folder / "train.parquet", [row])
    parquet(folder / "dev.parquet", [row | {"_id": "w1"}])


def musique(folder: Path) -> None:
    row = {
        "id": "2hop__1_2",
        "paragraphs": [
            {"idx": 0, "title": "Varn", "paragraph_text": "Its capital is Tolmere.", "is_supporting": True},
            {"idx": 1, "title": "Kell", "paragraph_text": "Kell is a village.", "is_supporting": False},
            {"idx": 2, "title": "Tolmere", "paragraph_text": "Founded in 1203.", "is_supporting": True},
        ],
        "question": "When was the capital of Varn founded?",
        "question_decomposition": [
            {"id": 1, "question": "Varn >> capital", "answer": "Tolmere", "paragraph_support_idx": 0},
            {"id": 2, "question": "#1 >> founded", "answer": "1203", "paragraph_support_idx": 2},
        ],
        "answer": "1203",
        "answer_aliases": ["in 1203", "1203"],
        "answerable": True,
    }
    text(folder / "musique_ans_v1.0_train.jsonl", lines([row]))
    text(folder / "musique_ans_v1.0_dev.jsonl", lines([row | {"id": "3hop1__1_2_3"}]))


def squad(folder: Path) -> None:
    context = "Varn is an island. Its capital is Tolmere."
    row = {
        "id": "s0",
        "title": "Island_of_Varn",
        "context": context,
        "question": "What is the capital of Varn?",
        "answers": {"text": ["Tolmere", "Tolmere"], "answer_start": [34, 34]},
    }
    parquet(folder / "plain_text" / "train-00000-of-00001.parquet", [row, row | {"id": "s1"}])
    parquet(folder / "plain_text" / "validation-00000-of-00001.parquet", [row | {"id": "s2"}])


def policyqa(folder: Path) -> None:
    asked = {
        "id": "p0",
        "question": "Do you ask for my address?",
        "type": "First Party Collection/Use|||Personal Information Type|||Contact",
        "answers": [{"text": "street address", "answer_start": 11}, {"text": "address", "answer_start": 18}],
    }
    segment = {"index": 0, "context": "We collect street address and name.", "summary": [], "qas": [asked]}
    for split in ("train", "dev"):
        one = segment | {"qas": [asked | {"id": f"{split}0"}]}
        whole = {"version": "v1.0", "data": [{"title": "varn.example", "paragraphs": [one]}]}
        text(folder / f"{split}.json", json.dumps(whole))


def tatqa(folder: Path) -> None:
    def asked(number: int, kind: str, answer: object, origin: str, *paragraphs: str) -> dict:
        return {
            "uid": f"q{number}", "order": number, "question": f"What was sold ({number})?", "answer": answer,
            "derivation": "", "answer_type": kind, "answer_from": origin, "rel_paragraphs": list(paragraphs),
            "req_comparison": False, "scale": "",
        }  # fmt: skip

    def report(split: str) -> dict:
        questions = [
            asked(1, "span", ["$ 12"], "table-text", "1"),
            asked(2, "multi-span", ["boats", "Varn"], "text", "1", "2"),
            asked(3, "arithmetic", 12, "table"),
        ]
        return {
            "table": {"uid": f"{split}-cd34", "table": [["", "2019"], ["Boats", "$ 12"]]},
            "paragraphs": [
                {"uid": "x", "order": 1, "text": "Sales of boats."},
                {"uid": "y", "order": 2, "text": "Varn."},
            ],
            "questions": [one | {"uid": f"{split}{one['uid']}"} for one in questions],
        }

    for split in ("train", "dev"):
        text(folder / f"tatqa_dataset_{split}.json", json.dumps([report(split)], indent=1))


def qed(folder: Path) -> None:
    row = {
        "example_id": -42,
        "title_text": "Varn",
        "url": "https://en.wikipedia.org/wiki/Varn",
        "question_text": "what is the capital of varn",
        "paragraph_text": "Varn is an island . Its capital is Tolmere .",
        "sentence_starts": [0, 20],
        "original_nq_answers": [
            [{"start": 35, "end": 42, "string": "Tolmere"}],
            [{"start": 0, "end": 4, "string": "Varn"}, {"start": 35, "end": 42, "string": "Tolmere"}],
        ],
        "annotation": {
            "referential_equalities": [],
            "answer": [],
            "explanation_type": "single_sentence",
            "selected_sentence": {"start": 20, "end": 44, "string": "Its capital is Tolmere ."},
        },
    }
    wrong = row | {"example_id": 43, "annotation": {"explanation_type": "none"}}
    several = row | {"example_id": 44, "annotation": {"explanation_type": "multi_sentence"}}
    text(folder / "qed-train.jsonlines", lines([row, wrong, several]))
    text(folder / "qed-dev.jsonlines", lines([row | {"example_id": 45}]))


def dpr(name: str, key: str):
    def write(folder: Path) -> None:
        def context(number: int, words: str, **more: object) -> dict:
            return {"title": "Varn", "text": words, "score": 12.5, "title_score": 0, key: str(number), **more}

        marked = {"score": 1000, "title_score": 1} if key == "passage_id" else {}
        rows = [
            {
                "dataset": name,
                "question": "what is the capital of varn",
                "answers": ["Tolmere"],
                "positive_ctxs": [context(7, "Tolmere rules Varn."), context(8, "Its capital is Tolmere.", **marked)],
                "negative_ctxs": [context(99, "Far away.")],
                "hard_negative_ctxs": [context(9, "Varn is an island."), context(8, "Its capital is Tolmere.")],
            }
        ] * 2
        for split in ("dev", "train"):
            path = folder / f"biencoder-{name}-{split}.json.gz"
            folder.mkdir(parents=True, exist_ok=True)
            with gzip.GzipFile(path, "wb", mtime=0) as file:
                file.write(json.dumps(rows, indent=1).encode())

    return write


def msmarco_qa(folder: Path) -> None:
    row = {
        "answers": ["Tolmere."],
        "passages": {
            "is_selected": [0, 1],
            "passage_text": ["Varn is an island.", "Its capital is Tolmere."],
            "url": ["http://a", "http://b"],
        },
        "query": "capital of varn",
        "query_id": 5,
        "query_type": "LOCATION",
        "wellFormedAnswers": ["The capital of Varn is Tolmere."],
    }
    without = row | {"query_id": 6, "answers": ["No Answer Present."], "wellFormedAnswers": []}
    without["passages"] = {**row["passages"], "is_selected": [0, 0]}
    parquet(folder / "v2.1" / "validation-00000-of-00001.parquet", [row, without])
    parquet(folder / "v2.1" / "train-00000-of-00001.parquet", [row])


def wikipassageqa(folder: Path) -> None:
    head = "QID\tQuestion\tDocumentID\tDocumentName\tRelevantPassages\n"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / "WikiPassageQA.zip", "w") as archive:
        archive.writestr("WikiPassageQA/train.tsv", head + '1\tWhat is "Varn"?\t12\tIsland_of_Varn.html\t0,2\n')
        archive.writestr("WikiPassageQA/dev.tsv", head + "1\tWhat is Kell?\t7\tKell.html\t0\n")
        archive.writestr("WikiPassageQA/test.tsv", head + "2\tWho rules Varn?\t12\tIsland_of_Varn.html\t1\n")
        pages = {"12": {"0": "Varn is an island.", "1": "A queen.", "2": "Large."}, "7": {"0": "Kell is a village."}}
        archive.writestr("WikiPassageQA/document_passages.json", json.dumps(pages))


def multihop_rag(folder: Path) -> None:
    articles = [
        {"title": "Varn votes", "author": "A", "source": "News", "published_at": "2023-10-01", "category": "x",
         "url": "https://a", "body": "The island votes. Varn chose Tolmere. More."},
        {"title": "Kell", "author": "B", "source": "News", "published_at": "2023-10-01", "category": "x",
         "url": "https://b", "body": "Kell is calm."},
    ]  # fmt: skip
    facts = [
        {"title": "Varn votes", "author": "A", "url": "https://a", "source": "News", "category": "x",
         "published_at": "2023-10-01", "fact": "Varn chose Tolmere."},
        {"title": "Kell", "author": "B", "url": "https://b", "source": "News", "category": "x",
         "published_at": "2023-10-01", "fact": "Kell was calm."},
    ]  # fmt: skip
    questions = [
        {"query": "What did Varn choose?", "answer": "Tolmere", "question_type": "inference_query",
         "evidence_list": facts},
        {"query": "Who left?", "answer": "Insufficient information.", "question_type": "null_query",
         "evidence_list": []},
    ]  # fmt: skip
    text(folder / "corpus.json", json.dumps(articles))
    text(folder / "MultiHopRAG.json", json.dumps(questions))


def clapnq(folder: Path) -> None:
    answerable = {
        "id": "138",
        "input": "what is varn known for",
        "passages": [{"title": "Varn", "text": "Varn is an island . It is known for glass .", "sentences": []}],
        "output": [
            {"answer": "For glass.", "selected_sentences": ["It is known for glass .&"], "meta": {"round": 2}},
            {"answer": "Its glass.", "selected_sentences": ["It is known for glass .&"], "meta": {"round": 2}},
        ],
    }
    unanswerable = {
        "id": 276,
        "input": "who left varn",
        "passages": [{"title": "Varn", "text": "Varn is an island .", "sentences": []}],
        "output": [{"answer": None, "meta": None}],
    }
    for split in ("train", "dev"):
        name = {"train": "1", "dev": "2"}[split]
        text(folder / f"clapnq_{split}_answerable.jsonl", lines([answerable | {"id": name}]))
        text(folder / f"clapnq_{split}_unanswerable.jsonl", lines([unanswerable | {"id": int(name) + 10}]))
        table = (
            f'id\tquestion\tdoc-id-list\tanswers\n{name}\twhat is varn known for\t82_1-9\t"For glass.::Its\nglass."\n'
        )
        text(folder / f"question_{split}_answerable.tsv", table)
    rows = 'id\ttext\ttitle\n82_1-9\t"Varn is an island . It is known for ""glass"" ."\tVarn\n82_10-20\tKell .\tKell\n'
    text(folder / "passages.tsv", rows)


def pubmedqa(folder: Path) -> None:
    row = {
        "pubid": 214,
        "question": "Does glass help?",
        "context": {
            "contexts": ["Glass is old.", "We tried."],
            "labels": ["BACKGROUND", "METHODS"],
            "meshes": ["Glass"],
        },
        "long_answer": "It seems so.",
        "final_decision": "maybe",
    }
    parquet(folder / "pqa_labeled" / "train-00000-of-00001.parquet", [row])


def halueval(folder: Path) -> None:
    row = {
        "knowledge": "Varn is an island.",
        "question": "What is Varn?",
        "right_answer": "an island",
        "hallucinated_answer": "Varn is a city.",
    }
    parquet(folder / "qa" / "data-00000-of-00001.parquet", [row, row])


def felm(folder: Path) -> None:
    row = {
        "index": 3,
        "source": "quora",
        "prompt": "What is Varn?",
        "response": "Varn is an island. It has no capital.",
        "segmented_response": ["Varn is an island.", " ", "\\n\\nIt has no capital."],
        "labels": [True, True, False],
        "comment": ["", "", "It has one."],
        "type": [None, None, "knowledge_error"],
        "ref": ["https://en.wikipedia.org/wiki/Varn"],
    }
    for split in ("wk", "science"):
        parquet(folder / split / "test" / "0000.parquet", [row])


def wikibio(folder: Path) -> None:
    row = {
        "gpt3_text": "Ilsa Brandt was a queen. She was born in Varn. She had a cat.",
        "wiki_bio_text": "Ilsa Brandt was a queen and astronomer, born in Kell.",
        "gpt3_sentences": ["Ilsa Brandt was a queen.", "She was born in Varn.", "She had a cat."],
        "annotation": ["accurate", "major_inaccurate", "minor_inaccurate"],
        "wiki_bio_test_idx": 62464,
        "gpt3_text_samples": ["..."],
    }
    parquet(folder / "data" / "evaluation-00000-of-00001-e91191b8ff41afbe.parquet", [row])


def helmet(folder: Path) -> None:
    def context(words: str, **more: object) -> dict:
        return {"id": "1", "title": "Varn", "text": words, **more}

    row = {
        "question": "what is the capital of varn",
        "answers": ["Tolmere"],
        "ctxs": [context("An island."), context("Its capital is Tolmere."), context("A river.")],
        "positive_ctxs": [context("Its capital is Tolmere.", psg_id=8), context("Not among them.")],
        "hard_negative_ctxs": [],
    }
    deeper = row | {"ctxs": [row["ctxs"][1], row["ctxs"][0], row["ctxs"][2]]}
    files = {
        "nq-dev-multikilt_1000_k1000_dep6": [row, deeper, row | {"question": "who rules varn"}],
        "nq-dev-multikilt_1000_k20_dep6": [row],
        "popqa_test_1000_k1000_dep6": [row],
    }
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(folder / "data.tar.gz", "w:gz") as archive:
        for name, rows in files.items():
            content = lines(rows).encode()
            entry = tarfile.TarInfo(f"data/kilt/{name}.jsonl")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def holobench(folder: Path) -> None:
    def table(rows: list[dict]) -> str:
        cells = [(f"Wine {row['Name']} is from {row['Year']}.", json.dumps(row)) for row in rows]
        quoted = [",".join('"' + cell.replace('"', '""') + '"' for cell in pair) for pair in cells]
        return "\n".join(["verbalized_text,table_row", *quoted]) + "\n"

    for name in ("wine_1", "college_2", "flight_4", "store_1", "soccer_1"):
        query = 'question,query,db_id,difficulty\n"Which wines are old?","SELECT Name FROM Wine WHERE Year < 2009"'
        text(folder / "query" / f"{name}.csv", f"{query},{name},easy\n")
        wines = [{"Name": "Kell", "Year": 2008}, {"Name": "Oro", "Year": 2010}, {"Name": "Sable", "Year": 1999}]
        text(folder / name / "wine.csv", table(wines))
        text(folder / name / "grapes.csv", table([{"Name": "Grape", "Year": 1}]))


def edc2(folder: Path) -> None:
    def context(words: str, score: float) -> dict:
        return {"text": words, "score": score}

    row = {
        "question": "what is the capital of varn",
        "answers": ["Tolmere", "Tolmere"],
        "positive_passages": [context("Tolmere rules Varn.", 80.5), context("Its capital is Tolmere.", 82.0)],
        "negative_passages": [context("Tolmere has a choir.", 81.0), context("Kell is a village.", 70.25)],
    }
    for file in ("webq_results_w_negative_passages_full", "trivia_results_w_negative_passages_full"):
        text(folder / f"{file}.json", json.dumps([row, row], indent=4))


def amazon_phones(folder: Path) -> None:
    rows = [("Kell 1", f"Good battery, {number % 16}.") for number in range(17)]
    rows += [("Oro", "Works."), ("Sable", 'A "fine" phone,\nbut heavy.'), ("Oro", ""), ("", "Nameless.")]
    rows += [("Sable", "Works.")] * 3
    table = ["Product Name,Brand Name,Price,Rating,Reviews,Review Votes"]
    for product, review in rows:
        quoted = review.replace('"', '""')
        table.append(f'"{product}",Kell,99.0,4,"{quoted}",0')
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / "amazon-unlocked-mobilecsv", "w") as archive:
        archive.writestr("Amazon_Unlocked_Mobile.csv", "\n".join(table) + "\n")


WRITERS = {
    "wikipassageqa": wikipassageqa,
    "msmarco-qa": msmarco_qa,
    "hotpotqa": hotpotqa,
    "2wikimultihopqa": two_wiki,
    "musique": musique,
    "natural-questions": dpr("nq", "passage_id"),
    "nq_qed": qed,
    "triviaqa": dpr("trivia", "psg_id"),
    "edc2-rag": edc2,
    "amazon-phones": amazon_phones,
    "squad": squad,
    "policyqa": policyqa,
    "tatqa": tatqa,
    "multihop-rag": multihop_rag,
    "multihoprag_facts": multihop_rag,
    "clapnq": clapnq,
    "pubmedqa": pubmedqa,
    "halueval": halueval,
    "felm": felm,
    "wikibio": wikibio,
    "helmet-rag": helmet,
    "holobench": holobench,
}
"""Sets by name; `msmarco` and the others of ir_datasets have tests of their own."""

"""A small data folder with known evidence, tables and checkpoints worked out by hand, and the real command line."""

import json
import math
import re
from pathlib import Path

import agent
import corag
from agent import AgentConfig, Configuration, Fallback, Ranges
from corag.selectors.corag.features import TEXTS
from corag.types import Answer
from experiments.labels.table import VECTORS, read_labels
from experiments.labels.table import write_labels as write_table
from experiments.report.measures import MEASURES
from tests.agent.worlds import random_agent

DOCUMENTS = [
    {"id": name, "title": title, "text": text}
    for name, title, text in [
        ("varn", "Varn", "Varn is an island in the northern sea. Its capital is Tolmere. It has two volcanoes."),
        ("tolmere", "Tolmere", "Tolmere is the capital of Varn. It was founded in 1203 by the queen Ilsa Brandt."),
        ("ilsa", "Ilsa Brandt", "Ilsa Brandt was a queen and astronomer. She was born in the village of Kell."),
        ("kell", "Kell", "Kell is a village on the river Oro. It is known for blue glass. 400 people live there."),
        ("oro", "Oro", "The Oro is a river of Varn. It is 80 kilometres long and ends in Lake Sable."),
        ("sable", "Lake Sable", "Lake Sable is the deepest lake of Varn. It is 310 metres deep and salty."),
        ("glass", "Blue glass", "Blue glass gets its colour from cobalt. Workshops melt it at 1100 degrees."),
        ("cobalt", "Cobalt", "Cobalt is mined on the slopes of mount Harrow. The mine opened in 1871."),
        ("harrow", "Mount Harrow", "Mount Harrow is the higher of two volcanoes of Varn. It last erupted in 1902."),
        ("finch", "Mount Finch", "Mount Finch is the lower volcano. Its crater holds a forest of pines."),
        ("railway", "Varn Railway", "The Varn Railway runs from Tolmere to Kell. It was built by Otto Lind."),
        ("otto", "Otto Lind", "Otto Lind was an engineer. He also designed the lighthouse of Port Emory."),
        ("emory", "Port Emory", "Port Emory is a harbour in the south. Its lighthouse is 61 metres high."),
        ("puffin", "Puffins", "Puffins nest on the cliffs of Port Emory from April to July. They eat herring."),
        ("herring", "Herring", "Herring is the main catch of the fishing fleet. It is smoked over pine wood."),
        ("pine", "Pines", "The pines of Varn grow to 40 metres. Their resin is used for varnish."),
        ("varnish", "Varnish", "Varnish made of resin protects the hulls of boats. It dries in three days."),
        ("choir", "The Choir", "The choir of Tolmere sings on the first of May. Its songs are about the sea."),
        ("mayor", "Mayors", "Runa Holt has been mayor of Tolmere since 2019. Before that she was a teacher."),
        ("bread", "Salt bread", "Salt bread is baked with salt of Lake Sable. It keeps for a month."),
    ]
]


_QUERIES = [
    ("Who founded the capital of Varn?", ["Ilsa Brandt", "Queen Ilsa Brandt"], "varn tolmere",
     "varn tolmere choir mayor bread pine", "train"),
    ("How deep is the lake in which the Oro ends?", ["310 metres"], "oro sable",
     "oro sable kell bread harrow emory", "train"),
    ("What gives the glass of Kell its colour?", ["cobalt"], "kell glass",
     "kell glass cobalt varnish ilsa pine", "train"),
    ("When did the mine for cobalt open?", ["1871"], "cobalt",
     "cobalt glass harrow railway mayor finch", "train"),
    ("How high is the lighthouse that Otto Lind designed?", ["61 metres"], "otto emory",
     "otto emory railway harrow puffin pine", "train"),
    ("Who built the railway to Kell?", ["Otto Lind"], "railway", "railway kell otto oro tolmere choir", "dev"),
    ("What do the puffins of Port Emory eat?", ["herring"], "puffin",
     "puffin emory herring bread sable otto", "dev"),
    ("When did mount Harrow last erupt?", ["1902"], "harrow", "harrow finch cobalt varn emory sable", "dev"),
    ("Is there anything to see in the south?", [], "", "emory puffin choir varn finch oro", "dev"),
    ("What protects the hulls of boats?", ["varnish made of resin"], "varnish",
     "varnish pine herring emory glass bread", "test"),
    ("Who is mayor of the capital of Varn?", ["Runa Holt"], "mayor varn",
     "mayor varn tolmere choir ilsa railway", "test"),
    ("Which salt is used for salt bread?", ["salt of Lake Sable"], "bread",
     "bread sable glass herring choir kell", "test"),
]  # fmt: skip
QUERIES = [
    {"id": f"q{number}", "question": question, "answers": answers, "gold": gold.split(),
     "candidates": candidates.split(), "split": split}
    for number, (question, answers, gold, candidates, split) in enumerate(_QUERIES, start=1)
]  # fmt: skip

MANY_QUERIES = [{**QUERIES[number % 8], "id": f"q{number}", "split": "train"} for number in range(24)]
"""Enough for `corag tune`: the first eight, three times each."""


def write_folder(path, documents=DOCUMENTS, queries=QUERIES):
    """Write a data folder and return its path."""
    path.mkdir(parents=True, exist_ok=True)
    for name, rows in (("corpus", documents), ("queries", queries)):
        (path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def label_row(query, reranker, rougeL, *, iterations=2, exploration=0.1, cost_weight=0.0, **changes):  # noqa: N803
    """One row of a label table, of a cell of the grid."""
    return {
        "data": "folder",
        "kind": "folder",
        "query": query,
        "split": "train",
        "configuration": Configuration("corag", {"unit": "passage", "reranker": reranker}).with_search(
            iterations, exploration, cost_weight
        ),
        "budget_tokens": 64,
        "rougeL": rougeL,
        "f1": rougeL,
        "evidence_recall": 1.0,
        "answer_recall": rougeL,
        "cost_tokens": 50,
        "orders_scored": 10 * iterations,
        "error": None,
        **changes,
    }


def training_question(number):
    """The question of a number: even ones count something."""
    return f"how many of item {number}?" if number % 2 == 0 else f"who painted picture {number}?"


def training_rows(num_questions=12):
    """A separable table: bm25 answers what is asked about numbers, minilm-softsim the rest; half of it is dev."""
    rows = []
    for number in range(num_questions):
        split = "train" if number < num_questions // 2 else "dev"
        for reranker in ("bm25", "minilm-softsim"):
            values = (0.5, 0.8) if (reranker == "bm25") == (number % 2 == 0) else (0.2, 0.2)
            for iterations, value in zip((2, 8), values, strict=True):
                rows.append(label_row(f"q{number}", reranker, value, iterations=iterations, split=split))
    return rows


def question_row(query, question, vector, **changes):
    """One row of a table of questions."""
    return {
        "data": "folder",
        "query": query,
        "split": "train",
        "group": f"folder/{query}",
        "question": question,
        "similarities": [0.9, 0.5, 0.4],
        "query_vector": [float(number) for number in vector],
        "candidates_vector": [float(number) / 2 for number in vector],
        "texts_vector": [0.25] * len(TEXTS),
        "long_form": False,
        "num_candidates": 3,
        **changes,
    }


def training_questions(num_questions=12):
    """The questions of `training_rows`, embedded by MiniLM."""
    vectors = corag.embedder().embed([training_question(number) for number in range(num_questions)])
    return [
        question_row(
            f"q{number}", training_question(number), vector, split="train" if number < num_questions // 2 else "dev"
        )
        for number, vector in enumerate(vectors)
    ]


def write_labels(path, rows=None, questions=None, **changes):
    """Write a label table, the vectors of each question in its first row, and return its path."""
    settings = {"data": "some/folder", "reader": "extractive", "budget": 64, "num_candidates": 6, "max_tokens": 96}
    known = {row["query"]: row for row in (training_questions() if questions is None else questions)}
    written, seen = [], set()
    for row in training_rows() if rows is None else rows:
        of_question = dict(known.get(row["query"], {}))
        for name in (*VECTORS, "long_form"):
            if row["query"] in seen:
                of_question.pop(name, None)
        seen.add(row["query"])
        written.append({"group": row["query"], **of_question, **row})
    write_table(path, written, {"work": "w", "embedder": "minilm", "settings": settings, **changes})
    return path


def save_small_agent(path):
    """Write the checkpoint of an agent over MiniLM's vectors with random weights, and return its folder."""
    configurations = tuple(f"corag(unit=passage, reranker={name})" for name in ("bm25", "minilm-softsim"))
    ranges = Ranges(iterations=(1, 8), exploration=(0.0, 1.0), cost_weight=(0.0, 0.5))
    fallback = Fallback(configurations[0], 4, 0.3, 0.1)
    config = AgentConfig(configurations, fallback, 384, "minilm", hidden=(4,), map_dim=2, ranges=ranges)
    agent.save(path, random_agent(config), "# An agent for tests\n")
    return path


def same(one, other):
    """Tell whether two results agree; numbers to six digits, as the texts of a batch change a vector's last bits."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-6)
    return one == other


def untimed(content):
    """Return JSON without figures of time."""
    if isinstance(content, dict):
        return {
            key: untimed(one) for key, one in content.items() if not re.search(r"latency|seconds|_s$|_ms|work", key)
        }
    return [untimed(one) for one in content] if isinstance(content, list) else content


def rows_of(out):
    """The rows beside a result of `evaluate`."""
    return [json.loads(line) for line in Path(out).with_suffix(".rows.jsonl").read_text().splitlines()]


def listing(folder):
    """Return what lies in a folder: contents by path."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(Path(folder).rglob("*"))
    }


SETTINGS = [(2, 0.1, 0.3), (8, 0.5, 0.0)]


def labels_of(tmp_path, table, **figures):
    """Labels from `{query: [a with few, a with many, b with few, b with many]}`, and other figures alike."""
    rows = []
    for query, values in table.items():
        for place, value in enumerate(values):
            iterations, exploration, cost_weight = SETTINGS[place % 2]
            changes = {name: of_query[query][place] for name, of_query in figures.items()}
            rows.append(
                label_row(
                    query, "ab"[place // 2], value,
                    iterations=iterations, exploration=exploration, cost_weight=cost_weight, **changes,
                )
            )  # fmt: skip
    questions = [question_row(query, f"what about {query}?", [1.0, number]) for number, query in enumerate(table)]
    return read_labels(str(write_labels(tmp_path / "labels.parquet", rows, questions)))


class FirstWords:
    """Answers with the first words of the context, remembers what it was asked, and may get tired of it."""

    name = "first-words"

    def __init__(self):
        self.asked = []
        self.patience = 10**9

    def answer(self, query, context):
        if len(self.asked) >= self.patience:
            raise KeyboardInterrupt
        self.asked.append((query, context))
        return Answer(" ".join(context.split()[:8]))


def result_of(budget_tokens=64, methods=("top-k", "corag")):
    """A result file in which each measure of a method is its index, but for its tokens."""
    names = [one.name for one in MEASURES.values() if not one.partial]
    rows = [
        {
            "method": method,
            **dict.fromkeys(names, float(index)),
            "cost_tokens": budget_tokens / (index + 2),
            "failed": 0,
        }
        for index, method in enumerate(methods)
    ]
    return {
        "data": "d", "split": "test", "budget_tokens": budget_tokens, "queries": 7, "pool": "candidates",
        "methods": rows, "config": {}, "versions": {"python": "3.11"}, "seed": 0,
    }  # fmt: skip

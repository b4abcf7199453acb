"""A small data folder with known evidence (`island`), and tables and checkpoints worked out by hand."""

import json
import math
import re
from pathlib import Path

import numpy as np

import agent
import corag
from agent import AgentConfig, Configuration, Ranges
from experiments.evaluation.comparison import compare
from experiments.labels.table import VECTORS, read_labels
from experiments.labels.table import write_labels as write_table
from tests.agent.worlds import random_agent

ISLAND = Path(__file__).with_name("island")
DOCUMENTS, QUERIES = (
    [json.loads(line) for line in (ISLAND / name).read_text("utf-8").splitlines()]
    for name in ("corpus.jsonl", "queries.jsonl")
)
MANY_QUERIES = [
    {**row, "id": f"q{number}", "split": "train", "candidates": row["candidates"][:3]}
    for number, row in enumerate([*QUERIES[:8], *QUERIES[:8], *QUERIES[:4]])
]
"""As few as `corag tune` takes, with few candidates."""


def evaluate(config):
    """Compare methods on one data folder at one budget, and return what `--out` writes."""
    [[result]] = compare(config).values()
    return dict(result.record)


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
        for name in VECTORS:
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
    config = AgentConfig(
        configurations, configurations[0], 384, "minilm", hidden=(4,), map_dim=2, ranges=ranges,
        fallback_settings=(4, 0.3, 0.1),
    )  # fmt: skip
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


def labels_of_methods(tmp_path, values, tokens, names):
    """Labels of what is kept `[n, C]`, each question about a document of its own; `tokens` of configurations."""
    rows = [
        label_row(f"q{row}", "a", value, configuration=name, evidence_recall=value, cost_tokens=cost)
        for row, of_row in enumerate(values)
        for name, value, cost in zip(names, of_row, tokens, strict=True)
    ]
    questions = [question_row(f"q{row}", "?", np.eye(4)[row % 4]) for row in range(len(values))]
    return read_labels(str(write_labels(tmp_path / "labels.parquet", rows, questions)))

"""What a language model answers from contexts of several sizes: draws the questions, and reports the answers.

    python -m experiments.evaluation.reading draw DATA RUNS 40        # questions, gold contexts, a config for each run
    corag evaluate --config RUNS/filling.yaml                         # likewise gold, top-k, corag, keep
    python -m experiments.evaluation.reading report RUNS RESULTS      # rows, table, figure

Each run resumes, and a report shows the sets that have been measured so far. Questions are in a drawn order, so that a
run with a higher `limit` in its config adds questions to those already answered. Sealed questions are left out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from corag.cli.page import markdown_table
from corag.text.data import DataFolder, find_file, read_lines
from corag.text.visible import to_json
from experiments.data.folder import write_data
from experiments.data.splits import questions_of
from experiments.data.trec import run_lines
from experiments.evaluation.methods import FILLING
from experiments.evaluation.metrics import LONG_ANSWER_WORDS, answer_recall, answer_words
from experiments.protocol.held_out import held_out_ids
from experiments.report.drawing import COLORS, Line, against_tokens
from experiments.report.measures import measure

SETS = {
    "hotpotqa": "dev", "xquad_de": "dev", "tatqa": "dev", "xquad_zh": "dev", "policyqa": "dev",
    "ottqa": "dev", "fairytale": "dev", "halueval_sample": "all", "lihua": "dev", "medquad": "dev",
    "mtrag": "dev", "2wikimultihopqa": "train", "clapnq": "dev", "friendsqa": "dev",
}  # fmt: skip
LEFT_OUT = ("xquad_de", "xquad_zh", "ottqa", "halueval_sample", "medquad")
"""Kinds that the shipped value has not learned from."""
PART_OF_CORPUS = 400
"""Documents besides the gold of those corpora that are too large to encode for a few questions."""
DRAWN = 60
"""Questions that are drawn of each set, of which a run reads the first ones; more, if it is to read more."""
LARGE = ("halueval_sample", "medquad", "mtrag", "ottqa")
READER = "openai(base_url=http://127.0.0.1:8091/v1, model=qwen, max_answer_tokens=64, max_concurrent=1, timeout_s=3600)"
RUNS: Mapping[str, Mapping[str, Any]] = {
    "gold": {"methods": "none,full", "budgets": [1024]},
    "filling": {"methods": FILLING, "budgets": [256, 512, 1024]},
    "top-k": {"methods": "top-k", "budgets": [1024]},
    "corag": {"methods": "corag", "budgets": [256, 512, 1024, 4096]},
    "keep": {"methods": "corag(keep=0.95),corag(keep=0.9)", "budgets": [1024]},
    "papers": {"methods": "adaptive-k,car", "budgets": [1024]},
}
CONDITIONS = {
    "none": "nothing", "full": "gold alone", "top-k": "five best passages", FILLING: "filling", "corag": "corag",
    "corag(keep=0.95)": "corag keep=.95", "corag(keep=0.9)": "corag keep=.9",
    "adaptive-k": "Adaptive-k", "car": "CAR",
}  # fmt: skip
ORDER = (
    "nothing", "gold alone", "five best passages", "corag 256", "corag 512", "corag 1024", "corag 4096",
    "corag keep=.95", "corag keep=.9", "filling 256", "filling 512", "filling 1024", "Adaptive-k", "CAR",
)  # fmt: skip
IN_FIGURE = (
    "nothing", "gold alone", "five best passages", "corag 256", "corag 512", "corag 1024", "corag 4096",
    "corag keep=.9", "corag keep=.95", "filling 256", "filling 1024",
)  # fmt: skip
"""Those that most questions have: a figure is of the questions that have all of its conditions."""
PAIRS = (
    *((one, "filling 1024") for one in ORDER if one != "filling 1024"),
    *((one, "five best passages") for one in ORDER if one.startswith("corag")),
    *(("corag 256", "filling 256"), ("corag 512", "filling 512")),
    *((f"corag {one}", "corag 1024") for one in ("256", "keep=.95", "keep=.9")),
)
"""Conditions that are compared: the first less the second."""
SEVERAL_BUDGETS = (FILLING, "corag")
MEASURES = ("answer_words_in_context", "f1", "rougeL", "answer_words_in_answer")


def draw(data: Path, runs: Path, limit: int, sets: Mapping[str, str] = SETS) -> None:
    """Write a data folder with drawn questions for each set, a TREC run of its gold, and the configs."""
    for name, split in sets.items():
        folder, target = DataFolder.open(str(data / name)), runs / "data" / name
        sealed, documents = held_out_ids().get(name, frozenset()), list(folder.documents.values())
        queries = [
            one
            for one in questions_of(folder, split)
            if one.id not in sealed and (one.answers or not one.extra.get("answerable", True))
        ]
        drawn = [queries[row] for row in np.random.default_rng(0).permutation(len(queries))[: max(DRAWN, limit)]]
        if name in LARGE:
            gold = {entry.partition("#")[0] for query in drawn for entry in query.gold}
            others = [one.id for one in documents if one.id not in gold]
            gold.update(others[row] for row in np.random.default_rng(0).permutation(len(others))[:PART_OF_CORPUS])
            documents = [one for one in documents if one.id in gold]
        rows = {row["id"]: row for _, row in read_lines(find_file(folder.path, "queries"), json.loads)}
        write_data(target, corpus=map(asdict, documents), queries=(rows[query.id] for query in drawn))
        run = {query.id: query.gold for query in drawn}
        (runs / "data" / f"{name}.gold.run").write_text("".join(run_lines(run, "gold")), encoding="utf-8")
    (runs / "out").mkdir(exist_ok=True)
    for run_name, settings in RUNS.items():
        of_run: list[dict[str, Any]] = [
            {"name": name, "data": name, "split": split, "limit": limit}
            | ({"run": str(runs / "data" / f"{name}.gold.run")} if run_name == "gold" else {})
            for name, split in sets.items()
        ]
        common = {
            "data": str(runs / "data"), "reader": READER, "tokenizer": "minilm", "budget_for": "context",
            "curves": False, "latency_questions": 0, "measures": "", "out": str(runs / "out" / run_name),
        }  # fmt: skip
        config = to_json({**common, **settings, "sets": of_run}, indent=1)  # which is YAML, too
        (runs / f"{run_name}.yaml").write_text(config, encoding="utf-8")


def rows_of(runs: Path) -> Iterator[dict[str, Any]]:
    """Yield a row for each answer of the sets and budgets that have been measured."""
    for file in sorted(runs.glob("out/*/*.rows.jsonl"), key=lambda file: file.name):
        name, _, budget = file.name.removesuffix(".rows.jsonl").rpartition("-")
        queries = {query.id: query for query in DataFolder.open(str(runs / "data" / name)).queries}
        for row in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
            query, answer, method = queries[row["query"]], row.get("answer"), row["method"]
            yield {
                "set": name, "left_out": name in LEFT_OUT, "query": query.id, "group": f"{name} {row['group']}",
                "condition": CONDITIONS[method] + (f" {budget}" if method in SEVERAL_BUDGETS else ""),
                "tokens": row.get("cost_tokens"), "answerable": bool(query.extra.get("answerable", True)),
                "answer": answer, "long": answer_words(query.answers) >= LONG_ANSWER_WORDS,
                "answer_words_in_context": row.get("answer_recall"),
                "f1": row.get("f1"), "em": row.get("em"), "rougeL": row.get("rougeL"),
                "answer_words_in_answer": None if answer is None else answer_recall(answer, query.answers),
            }  # fmt: skip


def tables(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return two Markdown tables: the means of each condition over its questions, and differences of two conditions.

    Differences are over the answerable questions that both have, with 95% intervals by a bootstrap over groups of
    shared documents.
    """
    by_condition: dict[str, dict[tuple[str, str], Mapping[str, Any]]] = {}
    for row in rows:
        if row["answer"] is not None:
            by_condition.setdefault(row["condition"], {})[row["set"], row["query"]] = row
    answerable: dict[str, dict[tuple[str, str], Mapping[str, Any]]] = {}
    means_of, less = list[list[str]](), list[list[str]]()
    for condition in (one for one in ORDER if one in by_condition):
        of = answerable[condition] = {key: one for key, one in by_condition[condition].items() if one["answerable"]}
        without = [one for one in by_condition[condition].values() if not one["answerable"]]
        means = [_mean(of.values(), name) for name in ("tokens", *MEASURES, "em")]
        cells = [condition, str(len(of)), f"{means[0]:.0f}", *(f"{mean:.3f}" for mean in means[1:])]
        cells.append(f"{sum(not one['answer'] for one in of.values())} of {len(of)}")
        cells.append(f"{sum(bool(one['answer']) for one in without)} of {len(without)}")
        means_of.append(cells)
    for one, other in PAIRS:
        if both := sorted(answerable.get(one, {}).keys() & answerable.get(other, {}).keys()):
            ours, theirs = ([answerable[of][key] for key in both] for of in (one, other))
            cells = [one, other, str(len(both))]
            for name in MEASURES:
                found = measure(name).difference(ours, theirs)
                cells.append("-" if found is None else f"{found.mean:+.3f} ({found.low:+.2f} to {found.high:+.2f})")
            less.append(cells)
    measures = [name.replace("_", " ") for name in MEASURES]
    headings = ["context", "questions", "tokens", *measures, "em", "not found", "wrongly answered"]
    differences = markdown_table(["context", "less", "questions", *measures], less)
    return f"{markdown_table(headings, means_of)}\n\n{differences}"


def _mean(rows: Iterable[Mapping[str, Any]], name: str) -> float:
    """Return the mean of a measure over the rows that have it: answers of yes and no are not looked for in contexts."""
    return float(np.mean([row[name] for row in rows if row[name] is not None] or [np.nan]))


def figure(rows: Sequence[Mapping[str, Any]], conditions: Sequence[str]) -> str:
    """Return an SVG: the answer's words in the context, and the answer's F1, against the context's tokens.

    The budgets of one method are joined by a line.
    """
    of_methods: dict[str, list[str]] = {}
    for condition in conditions:
        method, _, budget = condition.rpartition(" ")
        of_methods.setdefault(method if budget.isdecimal() else condition, []).append(condition)
    panels: dict[str, list[Line]] = {}
    for name, title in (("answer_words_in_context", "answer's words in the context"), ("f1", "F1 of the answer")):
        for number, (method, of_method) in enumerate(of_methods.items()):
            points = []
            for condition in of_method:
                of = [one for one in rows if one["condition"] == condition and one["answerable"]]
                points.append([_mean(of, key) for key in ("tokens", name)])
            style = {"color": COLORS[number % len(COLORS)], "marker": "o"}
            panels.setdefault(title, []).append((method, np.array(points), style))
    return against_tokens(panels)


def report(runs: Path, results: Path) -> None:
    """Write `reading.rows.jsonl`, `reading.md` and `reading.svg` of what has been measured so far.

    Rows that are in `results` stay, unless the runs have the same question under the same condition.
    """
    file = results / "reading.rows.jsonl"
    earlier = map(json.loads, file.read_text(encoding="utf-8").splitlines()) if file.exists() else ()
    rows = list({(row["set"], row["query"], row["condition"]): row for row in (*earlier, *rows_of(runs))}.values())
    file.write_text("".join(to_json(row) + "\n" for row in rows), encoding="utf-8")
    parts = [tables(rows)]
    for left_out, title in ((False, "Kinds that the value learned from"), (True, "Kinds left out of its training")):
        parts.append(f"{title}:\n\n" + tables([row for row in rows if row["left_out"] == left_out]))
    (results / "reading.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    known = {row["condition"] for row in rows}
    conditions = [one for one in IN_FIGURE if one in known]
    shared = set.intersection(*({(r["set"], r["query"]) for r in rows if r["condition"] == one} for one in conditions))
    paired = [row for row in rows if (row["set"], row["query"]) in shared]
    (results / "reading.svg").write_text(figure(paired, conditions), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1] == "draw":
        draw(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
    else:
        report(Path(sys.argv[2]), Path(sys.argv[3]))

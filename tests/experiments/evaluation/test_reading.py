"""Questions are drawn, and answers of a language model are compared."""

import json

import pytest

from experiments.evaluation.comparison import compare
from experiments.evaluation.config import EvaluateConfig
from experiments.evaluation.reading import draw, report

pytestmark = pytest.mark.slow

FACTS = {"Everest": "8,849 metres", "K2": "8,611 metres", "Lhotse": "8,516 metres"}


def world(folder):
    """Three mountains with a question each, and a fourth question that no document answers."""
    folder.mkdir(parents=True)
    documents = [{"id": name, "title": name, "text": f"{name} is {high} high."} for name, high in FACTS.items()]
    queries = [
        {"id": f"q-{name}", "question": f"How high is {name}?", "answers": [high], "gold": [name], "split": "dev"}
        for name, high in FACTS.items()
    ]
    missing = {"id": "q-none", "question": "Who climbed it?", "answers": ["nobody knows"], "gold": [], "split": "dev"}
    queries.append(missing | {"answerable": False})
    for name, rows in (("corpus", documents), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def runs(tmp_path):
    world(tmp_path / "data" / "mountains")
    draw(tmp_path / "data", tmp_path / "runs", 4, {"mountains": "dev"})
    return tmp_path / "runs"


def test_gold_alone_is_the_gold_and_nothing_is_no_context(runs):
    config = json.loads((runs / "gold.yaml").read_text())
    config["sets"][0].pop("split")
    config |= {"reader": "extractive", "quiet": True}
    [one] = config.pop("sets")
    config |= {"run": one["run"], "data": str(runs / "data" / "mountains"), "budgets": (1024,)}
    [[result]] = compare(EvaluateConfig(**{**config, "out": None})).values()
    chosen = {method: {row["query"]: row["ids"] for row in rows} for method, rows in result.rows.items()}
    assert chosen["full"] == {f"q-{name}": [name] for name in FACTS} | {"q-none": []}
    assert set(map(len, chosen["none"].values())) == {0}


def test_answers_are_compared_on_the_questions_that_all_conditions_have(runs, tmp_path):
    def write(run, method, answers):
        (runs / "out" / run).mkdir(exist_ok=True)
        rows = [
            {"method": method, "query": f"q-{name}", "group": name, "cost_tokens": cost, "answer_recall": 1.0,
             "answer": answer, "f1": score, "em": score, "rougeL": score}
            for name, (cost, answer, score) in answers.items()
        ]  # fmt: skip
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (runs / "out" / run / "mountains-1024.rows.jsonl").write_text(lines)

    right = {name: (100, high, 1.0) for name, high in FACTS.items()}
    write("gold", "full", {"Everest": (10, "8,849 metres", 1.0), "K2": (30, "", 0.0), "none": (0, "Ada", 0.0)})
    write("filling", "naive(reranker=minilm-softsim)", right | {"none": (100, "", 0.0)})
    report(runs, tmp_path)
    # Lhotse has not been answered from its gold alone, so two questions are compared, and one without an answer.
    table = (tmp_path / "reading.md").read_text().split("\n\nKinds")[0]
    assert table.startswith("2 questions of 1 kinds with an answer, 1 without")
    cells = {row.split(" | ")[0]: row.strip("| ").split(" | ") for row in table.splitlines() if row.startswith("| ")}
    gold, filling = cells["| gold alone"], cells["| filling 1024"]
    assert (gold[1], gold[3].split()[0], gold[-2], gold[-1]) == ("20", "0.500", "1 of 2", "1 of 1")
    assert (filling[1], filling[3], filling[-2], filling[-1]) == ("100", "1.000", "0 of 2", "0 of 1")
    assert len((tmp_path / "reading.rows.jsonl").read_text().splitlines()) == 7
    assert (tmp_path / "reading.svg").read_text().startswith("<svg")

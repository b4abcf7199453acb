"""Questions are drawn, and answers of a language model are compared."""

import json

import pytest

from experiments.evaluation.comparison import compare
from experiments.evaluation.config import EvaluateConfig
from experiments.evaluation.reading import draw, report
from tests.experiments.worlds import write_folder

pytestmark = pytest.mark.slow

FACTS = {"Everest": "8,849 metres", "K2": "8,611 metres", "Lhotse": "8,516 metres"}


@pytest.fixture
def runs(tmp_path):
    """Three mountains with a question each, and a fourth question that no document answers."""
    documents = [{"id": name, "title": name, "text": f"{name} is {high} high."} for name, high in FACTS.items()]
    queries = [
        {"id": f"q-{name}", "question": f"How high is {name}?", "answers": [high], "gold": [name], "split": "dev"}
        for name, high in FACTS.items()
    ]
    missing = {"id": "q-none", "question": "Who climbed it?", "answers": ["nobody knows"], "gold": [], "split": "dev"}
    write_folder(tmp_path / "data" / "mountains", documents, [*queries, missing | {"answerable": False}])
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


def test_answers_are_compared_on_the_questions_that_both_conditions_have(runs, tmp_path):
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
    means, differences = (tmp_path / "reading.md").read_text().split("\n\n")[:2]
    cells = {row.split(" | ")[0]: row.strip("| ").split(" | ") for row in means.splitlines()}
    gold, filling = cells["| gold alone"], cells["| filling 1024"]
    assert (*gold[1:3], gold[4], *gold[-2:]) == ("2", "20", "0.500", "1 of 2", "1 of 1")
    assert (*filling[1:3], filling[4], *filling[-2:]) == ("3", "100", "1.000", "0 of 3", "0 of 1")
    # Lhotse has not been answered from its gold alone.
    assert "\n| gold alone | filling 1024 | 2 | +0.000 (+0.00 to +0.00) | -0.500 (-1.00 to +0.00) |" in differences
    rows = (tmp_path / "reading.rows.jsonl").read_text()
    assert len(rows.splitlines()) == 7
    assert (tmp_path / "reading.svg").read_text().startswith("<svg")
    # Rows stay where the results they are from are gone, and an answer that is given anew takes its row's place.
    (runs / "out" / "gold" / "mountains-1024.rows.jsonl").unlink()
    write("filling", "naive(reranker=minilm-softsim)", right | {"none": (100, "Ada", 0.0)})
    report(runs, tmp_path)
    changed = zip(rows.splitlines(), (tmp_path / "reading.rows.jsonl").read_text().splitlines(), strict=True)
    assert [json.loads(now)["query"] for before, now in changed if before != now] == ["q-none"]

"""The page of records: a line from results, worked out by hand."""

import json

import pytest

from corag.errors import InputError
from experiments.report.records import (
    BUDGETS,
    FILLING,
    METHODS,
    kept_curves,
    new_line,
    page,
    question_rows,
    table,
)
from tests.experiments.worlds import result_of


def write_results(folder, methods=METHODS):
    paths = []
    for number, data in enumerate(("first", "second")):
        for budget in BUDGETS:
            result = result_of(budget, methods) | {"data": data, "config": {"reader": "none"}}
            for row in result["methods"]:
                row |= {"evidence_recall": 0.5 + 0.25 * number, "cost_tokens": budget / 2, "answer_recall": None}
            paths.append(folder / f"{data}-{budget}.json")
            paths[-1].write_text(json.dumps(result, indent=2))
    return paths


def test_a_line_has_the_means_over_sets_at_each_budget(tmp_path):
    line = new_line(write_results(tmp_path), "a new value")
    assert line["questions"] == "first 7, second 7" and set(line["figures"]) == {
        f"{method}, {budget}" for method in METHODS for budget in BUDGETS
    }
    of = line["figures"]["corag, 1024"]
    assert of["evidence_recall"] == 0.625 and of["cost_tokens"] == 512 and "answer_recall" not in of
    text = page([{**line, "date": "2020-01-01", "changed": "the first"}, line])
    assert text.index("a new value") < text.index("the first")
    assert "| corag, 1024 | - | 0.625 | 512 |" in text
    with pytest.raises(InputError, match="naive"):
        new_line(write_results(tmp_path, METHODS[:2]), "one is missing")


def test_the_table_of_the_readme_by_hand(tmp_path):
    figures = {"corag": (0.75, 1.0, 50), FILLING: (0.79, 0.5, 100)}
    rows = [
        {"data": data, "budget": budget, "method": method, "query": f"q{number}", "answer_recall": answer,
         "evidence_recall": evidence if data == "squad" else None, "cost_tokens": spent + 10 * number}
        for data in ("squad", "mine") for budget in BUDGETS
        for method, (answer, evidence, spent) in figures.items() for number in range(2)
    ]  # fmt: skip
    lines = table(rows).splitlines()
    assert lines[2] == "| SQuAD | 2 | .75 / 1.00 @55 | .79 / .50 @105 | .75 / 1.00 @55 | .79 / .50 @105 |"
    assert lines[3].startswith("| mine | 2 | .75 / - @55 |")
    assert lines[4].startswith("| **mean of 2 sets** |  | .75 / 1.00 @55")
    # .04 less of the answer's words than filling.
    assert "at 256 tokens on 0 of 2 sets, with 52% of its tokens" in lines[-1]
    assert table(rows, ["squad"]).splitlines() == [line for line in lines if "mine" not in line]
    file = tmp_path / "squad-256.json"
    written = [{**row, "chunks": 1} for row in rows[:2]] + [{**rows[0], "method": "mmr"}]
    file.with_suffix(".rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in written))
    assert question_rows([file]) == rows[:2]


def test_the_picture_by_hand():
    rows = [
        {"data": data, "budget": budget, "method": method, "query": "q", "answer_recall": 0.25 + held,
         "evidence_recall": 0.75 + held, "cost_tokens": budget / 2}
        for data, held in (("one", 0.0), ("two", 0.125)) for budget in BUDGETS for method in METHODS
    ]  # fmt: skip
    curves = kept_curves(rows)
    # (.25 + .75) / 2 and (.375 + .875) / 2 give .5625.
    assert curves["filling by token likeness"] == [(128, 0.5625, None), (512, 0.5625, None)]
    assert len(curves["corag by promise, 1,024"]) == 3

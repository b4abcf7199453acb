"""The page of records: a line from results, worked out by hand."""

import json

import pytest

from corag.errors import InputError
from experiments.report.records import BUDGETS, METHODS, figure, new_line, page
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
    assert "<svg" in figure([line])
    with pytest.raises(InputError, match="naive"):
        new_line(write_results(tmp_path, METHODS[:2]), "one is missing")

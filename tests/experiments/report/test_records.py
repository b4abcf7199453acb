"""The page of records: a line from results, worked out by hand."""

import json

import pytest

from corag.errors import InputError
from experiments.report import records
from experiments.report.equal import curves, needs, needs_table
from experiments.report.records import BUDGETS, FILLING, METHODS, front, main, table


def write_rows(folder, methods=METHODS):
    """What `corag evaluate` writes of two sets, whose questions have .5 and .75 of the evidence."""
    folder.mkdir()
    for number, data in enumerate(("squad", "mine")):
        for budget in BUDGETS:
            figures = {"query": "q", "group": "g", "evidence_recall": 0.5 + 0.25 * number, "cost_tokens": budget / 2}
            rows = [{"method": method, **figures, "chunks": 1} for method in (*methods, "mmr")]
            lines = "".join(json.dumps(row) + "\n" for row in rows)
            (folder / f"{data}-{budget}.rows.jsonl").write_text(lines)
    return str(folder)


def test_a_record_has_the_means_over_sets_at_each_budget_and_comes_before_older_ones(tmp_path, monkeypatch):
    pages = {"README": "Start\n{0}\nold\n{1}\nEnd\n", "PAGE": "Head\n{0}\nold\n{1}\n\n## before\n"}
    for name, text in pages.items():
        (tmp_path / name).write_text(text.format(records.BEGIN, records.END))
    for name in (*pages, "ROWS", "PICTURE"):
        monkeypatch.setattr(records, name, tmp_path / name)
    with pytest.raises(InputError, match="changed"):
        main(write_rows(tmp_path / "known"))
    main(str(tmp_path / "known"), write_rows(tmp_path / "left-out"), "a new value")
    text = (tmp_path / "PAGE").read_text()
    assert text.index("of 2 sets, with 100% of its tokens") < text.index(": a new value") < text.index("## before")
    assert "| corag | - / .62 @128 | - / .62 @512 |" in text and "2 questions of 2 sets" in text
    assert text.count("- / .50 @128") == 2 and "old" not in text.split()
    assert (tmp_path / "README").read_text().endswith(f"{records.END}\nEnd\n")
    main()
    assert (tmp_path / "PAGE").read_text() == text
    with pytest.raises(InputError, match="top-k"):
        main(write_rows(tmp_path / "few", METHODS[:-1]), changed="one is missing")


def test_the_table_of_data_sets_by_hand():
    figures = {"corag": (0.75, 1.0, 50), FILLING: (0.79, 0.5, 100)}
    rows = [
        {"kinds": "known", "data": data, "budget": budget, "method": method, "query": f"q{number}", "group": "g",
         "answer_recall": answer,
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


def held(budget, method, answer, evidence, tokens, groups=("a", "b")):
    """Rows of a question a group, with what each holds."""
    return [
        {"kinds": "known", "data": "squad", "budget": budget, "method": method, "query": f"q{number}", "group": group,
         "answer_recall": answer, "evidence_recall": evidence, "cost_tokens": tokens}
        for number, group in enumerate(groups)
    ]  # fmt: skip


def test_tokens_for_what_another_method_holds_by_hand():
    ours = held(64, "corag", 0.2, 0.6, 50) + held(256, "corag", 0.6, 1.0, 200) + held(1024, "corag", 0.5, 0.9, 800)
    theirs = held(256, FILLING, 0.4, 0.8, 240) + held(1024, FILLING, 0.9, 0.9, 1000)
    # .6 is half way between .4 at 50 and .8 at 200 tokens, over their logarithm: 100. More tokens hold no less.
    [first, second] = needs(curves(ours + theirs), "corag", FILLING)
    assert (first.budget, first.tokens) == (256, 240)
    assert str(first) == "240: 100 (100 to 100)" and str(second) == "1000: not held"
    # A question without gold counts in the answers alone, and another document moves the interval.
    other = [{**row, "evidence_recall": None, "answer_recall": 1.0} for row in held(256, FILLING, 0, 0, 240, "c")]
    more = [{**row, "query": "q2", "group": "c"} for row in ours if row["query"] == "q0"]
    [wider] = needs(
        curves(ours + more + held(256, FILLING, 0.4, 0.8, 240) + [{**other[0], "query": "q2"}]), "corag", FILLING
    )
    # It holds .7, three quarters of the way from .4 to .8: 50 times 4 to the power of .75.
    assert str(wider) == "240: 141 (100 to more)"
    table = needs_table({"known": curves(ours + theirs)}, "corag", {FILLING: "filling"})
    assert table.rows == [["256, known", "240: 100 (100 to 100)"], ["1,024, known", "1000: not held"]]
    less = needs_table({"": curves(ours + held(256, FILLING, 0.1, 0.3, 240))}, "corag", {FILLING: "filling"})
    assert less.rows == [["256", "240: fewer than 50"]]
    # What is held with few tokens already, and with many no better.
    level = held(64, "corag", 0, 0, 50) + held(256, "corag", 1, 1, 200) + held(1024, "corag", 1, 1, 800)
    [first] = needs(curves(level + held(1024, FILLING, 1, 1, 1000)), "corag", FILLING)
    assert str(first) == "1000: 200 (200 to 200)"
    # Nothing fits the smallest budget.
    none = held(64, "corag", 0, 0, 0) + held(256, "corag", 0.8, 1, 100)
    [half] = needs(curves(none + held(256, FILLING, 0.4, 0.5, 60)), "corag", FILLING)
    assert str(half) == "60: 10 (10 to 10)"
    lead = (
        "**Tokens in which the default holds what filling holds in 240: 100 on kinds known; "
        "in 1000: not held on kinds known.**"
    )
    assert front({"known": curves(ours + theirs)}).startswith(lead)

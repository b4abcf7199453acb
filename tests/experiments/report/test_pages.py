"""Pages and their renderings, and the page of a comparison."""

import json
import re
from xml.etree import ElementTree

import pytest
from bs4 import BeautifulSoup

from corag.cli.main import main
from corag.cli.page import Figure, Page, Quote, Section, Table
from corag.errors import DataError
from corag.text.visible import visible
from experiments.report.comparison import headline, held_by, measures_table, remarks, results_page
from experiments.report.equal import needs_table, plot, points_of
from experiments.report.measures import MEASURES
from experiments.report.results import Result

SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="300pt"></svg>'


def measured(values, budget=64, **fields):
    """A result whose methods have these F1 on questions q0, q1, ...; other measures are 0."""
    rows = {
        method: [
            {"query": f"q{number}", "f1": value, "evidence_recall": value, "cost_tokens": 40, "answer": f"a {value}",
             "ids": ["d1"] if value else ["d2"]}
            for number, value in enumerate(of_one)
        ]
        for method, of_one in values.items()
    }  # fmt: skip
    zeros = dict.fromkeys((one.name for one in MEASURES.values() if not one.partial), 0.0)
    means = {method: sum(of_one) / len(of_one) for method, of_one in values.items()}
    methods = [
        {"method": method, **zeros, "f1": mean, "evidence_recall": mean, "cost_tokens": 40.0, "failed": 0}
        for method, mean in means.items()
    ]
    record = {
        "data": "d", "split": "test", "budget_tokens": budget, "queries": len(next(iter(values.values()))),
        "pool": "candidates", "methods": methods, "config": {}, "versions": {"python": "3.11"}, "seed": 0,
    }  # fmt: skip
    return Result(record | fields, rows)


PAGE = Page(
    "<T>",
    "a & **b**",
    [
        Section("Lead", [Figure(SVG, "Lead", "below")]),
        Section(
            "Methods", [Table(["method", "F1"], [["<m>", "**1**"]], "All", "note"), "one | remark", "`<c>`"], anchor="m"
        ),
        Section(
            "More", [Figure(SVG, "Second"), Section("c", ["line", Quote("**x** <i>", "a.md")], unfolded=True)], True
        ),
    ],
    "versions",
)


def test_html_escapes_all_and_needs_nothing_else():
    html = PAGE.html()
    soup = BeautifulSoup(html, "html.parser")
    assert html.startswith("<!doctype html>") and "<title>&lt;T&gt;</title>" in html
    order = [html.index(text) for text in ("a &amp; <b>b</b>", "<svg", ">below<", "&lt;m&gt;", "<summary>More")]
    assert order == sorted(order)
    assert "<code>&lt;c&gt;</code>" in html
    assert not re.search(r'(src|href)="(?!#)', html) and "@import" not in html
    assert "<cite>a.md</cite>**x** &lt;i&gt;" in html
    assert len(soup.find_all("details")) == 2 and html.count("<details open>") == 1 and not soup.find("script")


def test_markdown_and_terminal_show_the_same_texts(capsys):
    text = PAGE.markdown()
    assert "# <T>\n\na & **b**" in text and "| <m> | **1** |" in text
    # The heading of what only a figure shows is left out with it.
    assert "## Lead" not in text and "## More" in text
    PAGE.show()
    printed = capsys.readouterr().out
    assert "<m>" in printed and "one | remark" in printed and printed.startswith("a & b\n")
    assert "line" not in printed


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"corag(agent=none)": [1.0], "top-k": [0.0], "mmr": [0.5], "corag": [0.75], "upper": [1.0]}, ("corag", "mmr")),
        ({"top-k": [0.0, 1.0], "mmr": [1.0, 1.0]}, ("mmr", "top-k")),  # without corag, the best
        ({"corag": [0.5], "top-k": [0.75], "mmr": [0.75]}, ("corag", "mmr")),  # of equals, that of fewer tokens
        # Without others, its own variants.
        ({"corag": [0.5, 0.5], "corag(agent=none)": [0.0, 1.0]}, ("corag", "corag(agent=none)")),
        ({"corag": [0.5, 0.5], "upper": [1.0, 1.0]}, None),
        ({"corag": [0.5, 0.5]}, None),
    ],
)
def test_who_meets_whom(values, expected):
    result = measured(values)
    result.record["methods"][-1]["cost_tokens"] = 20.0
    assert result.contest() == expected


def test_each_budget_has_its_ranking_and_its_differences():
    low = measured({"corag": [1.0] * 9, "mmr": [0.0] * 9}, 64)
    high = measured({"corag": [0.0] * 9, "mmr": [1.0] * 9, "top-k": [0.5] * 9}, 128)
    page = results_page({"a": [high, low]})
    lines = page.lead.splitlines()
    assert lines[0].startswith("At 64 tokens: **corag** against mmr, F1: +1.000") and "better; 40 and 40" in lines[0]
    assert lines[1].startswith("At 128 tokens: **corag** against mmr, F1: -1.000") and "significantly worse" in lines[1]
    rows = headline([low, high]).rows
    assert [row[:2] for row in rows] == [
        ["64", "**corag**"], ["", "mmr"], ["128", "mmr"], ["", "top-k"], ["", "**corag**"],
    ]  # fmt: skip
    assert rows[0][2].replace("\u00a0", " ") == "1.000 (1.000 to 1.000)"
    leads = ["-", "+1.000 (+1.000 to +1.000)", "-1.000 (-1.000 to -1.000)", "-0.500 (-0.500 to -0.500)", "-"]
    assert [row[-2] for row in rows] == leads and [row[-1] for row in rows] == ["-", *["0.0005"] * 3, "-"]
    over = results_page({"a": [low], "b": [high]}).markdown()
    assert "## a: 9 questions" in over and "## b: 9 questions" in over


def test_a_method_that_failed_on_questions_ranks_last():
    result = measured({"corag": [0.5] * 4, "mmr": [0.25] * 4, "upper": [1.0] * 4})
    result.record["methods"][2]["failed"] = 3
    result.rows["upper"][1:] = [{"query": f"q{number}", "failed": 1} for number in range(1, 4)]
    assert result.ranked(result.methods, "f1") == ["corag", "mmr", "upper"]
    table = headline([result])
    assert [row[1] for row in table.rows] == ["**corag**", "mmr", "upper"] and "failed" in table.note
    assert table.rows[2][list(table.headings).index("failed")] == "3"
    [f1] = [row[1:] for row in measures_table(result).rows if row[0] == "F1"]
    assert f1 == ["**0.500**", "0.250", "1.000"]
    assert list(held_by({"a": [result]})) == [("corag", 64), ("mmr", 64)]


def test_a_page_says_of_how_many_questions_a_measure_is():
    result = measured({"corag": [0.5] * 3, "mmr": [0.5] * 3})
    for rows in result.rows.values():
        del rows[0]["evidence_recall"]
    assert remarks([result]) == ["measures of evidence: of the 2 of 3 questions with gold passages"]


def test_what_is_held_is_of_the_methods_and_budgets_that_all_sets_have():
    one, other = measured({"corag": [1.0, 0.5], "mmr": [0.0, 0.5]}), measured({"corag": [0.25, 0.25]})
    alone = held_by({"a": [one]})
    assert {cell: of[0].tolist() for cell, of in alone.items()} == {("corag", 64): [0.75, 40], ("mmr", 64): [0.25, 40]}
    assert points_of(alone, "corag").tolist() == [[40, 0.75, 0.5, 1.0]]
    assert [of[0].tolist() for of in held_by({"a": [one], "b": [other]}).values()] == [[0.5, 40]]


def test_the_command_writes_pages_and_pictures(tmp_path, capsys):
    result, files = measured({"corag": [1.0, 0.5], "mmr": [0.5, 0.5]}), [tmp_path / "a.json", tmp_path / "b.json"]
    for name, file in zip("ab", files, strict=True):
        Result(result.record | {"data": name}, result.rows).write(file)
        assert Result.read(file).rows == result.rows
    both = ",".join(map(str, files))
    for out, text in (("mean.svg", "<svg"), ("page.html", "All data sets"), ("page.md", "## a, test: 2 questions")):
        assert main(["report", both, "--out", str(tmp_path / out)]) == 0
        assert text in (tmp_path / out).read_text("utf-8")
    capsys.readouterr()
    for wrong, said in ((str(tmp_path / "none.json"), "there is no file"), ("", "--results")):
        assert main(["report", "--results", wrong]) == 2
        assert said in (error := capsys.readouterr().err) and error.count("\n") == 1


def test_results_before_and_after_a_change_are_on_one_page_and_other_questions_are_another_set(tmp_path):
    before = measured({"corag": [0.5, 0.5], "mmr": [0.5, 0.0]})
    after = measured({"corag": [1.0, 0.5], "corag(agent=own)": [1.0, 1.0]})
    fewer, more = measured({"corag": [0.25]}, 128), measured({"corag": [1.0, 1.0], "mmr": [0.5, 0.5]}, 128)
    files = [tmp_path / f"{number}.json" for number in range(4)]
    for result, file in zip((before, after, fewer, more), files, strict=True):
        result.write(file)
    assert main(["report", ",".join(map(str, files)), "--out", str(tmp_path / "page.md")]) == 0
    text = (tmp_path / "page.md").read_text("utf-8")
    assert "## d, test: 2 questions" in text and "## d, test (2): 1 questions" in text
    assert held_by({"d": [before, after]})["corag", 64][0].tolist() == [0.75, 40]
    rows = needs_table({"": held_by({"d": [before, more]})}, "corag", {"mmr": "MMR", "x": "X"}).rows
    assert [[row[0], row[-1]] for row in rows] == [["128", "not measured"]]


def test_a_method_of_any_name_is_shown_and_drawn():
    name = "$\\frac$ a\x1b[31m\x00\u202eb \ud83d </p><script>é</script>&amp;"
    result = measured({name: [0.5], "corag": [0.5]})
    soup = BeautifulSoup(results_page({"a": [result]}).html(), "html.parser")
    text = soup.get_text()
    assert text.count(visible(name)) >= 3 and visible(text) == text and not soup.find("script")
    ElementTree.fromstring(plot(held_by({"a": [result]})))


RECORD = measured({"corag": [1.0] * 7}).record
ROWS = '{"method": "corag", "query": "q0", "f1": 1.0}\n'


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        ("{", None), ("3", None),
        (json.dumps(RECORD | {"methods": []}), None),
        (json.dumps(RECORD | {"methods": [{"method": "corag", "cost_tokens": 1.0, "f1": "high"}]}), None),
        (json.dumps(RECORD | {"methods": 2 * RECORD["methods"]}), None),
        # Rows of fewer questions, rows that are cut off, and none at all.
        (json.dumps(RECORD), ROWS),
        (json.dumps(RECORD), ROWS * 6 + ROWS[:9]),
    ],
)  # fmt: skip
def test_what_is_no_result_or_has_other_rows_is_refused(tmp_path, content, rows):
    path = tmp_path / "result.json"
    path.write_text(content)
    path.with_suffix(".rows.jsonl").write_text(ROWS * 7 if rows is None else rows)
    with pytest.raises(DataError):
        Result.read(path)
    path.write_text(json.dumps(RECORD))
    path.with_suffix(".rows.jsonl").write_text(ROWS * 7)
    assert Result.read(path).questions == 7
    path.with_suffix(".rows.jsonl").unlink()
    with pytest.raises(DataError, match=r"no result\.rows\.jsonl"):
        Result.read(path)

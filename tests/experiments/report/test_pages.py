"""Pages and their renderings, and the page of a comparison."""

import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from corag.cli.page import Figure, Page, Quote, Section, Table
from corag.errors import DataError
from corag.text.visible import visible
from experiments.report.comparison import decision, headline, result_page, sets_page
from experiments.report.drawing import quality_plot
from experiments.report.results import Result
from tests.experiments.worlds import result_of, write_folder

SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="300pt"></svg>'
DOCUMENTS = [
    {"id": "d1", "title": "", "text": "The capital is Ulaanbaatar, and ulaanbaatar is cold."},
    {"id": "d2", "title": "", "text": "<script>alert(1)</script> Zstd is a format."},
]


class Checker(HTMLParser):
    """Collects what a page holds; every tag has to be closed in its turn."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.text = [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def parsed(html):
    checker = Checker()
    checker.feed(html)
    checker.close()
    assert not checker.open
    return checker


def measured(values, budget=64, **fields):
    """A result whose methods have these F1 on questions q0, q1, ..."""
    rows = {
        method: [
            {"query": f"q{number}", "f1": value, "evidence_recall": value, "cost_tokens": 40, "answer": f"a {value}",
             "ids": ["d1"] if value else ["d2"]}
            for number, value in enumerate(of_one)
        ]
        for method, of_one in values.items()
    }  # fmt: skip
    record = result_of(budget, methods=tuple(values)) | {"queries": len(next(iter(values.values()))), **fields}
    for row in record["methods"]:
        mean = sum(values[row["method"]]) / record["queries"]
        row.update(f1=mean, evidence_recall=mean, cost_tokens=40.0)
    return Result(record, rows)


PAGE = Page(
    "<T>",
    "a & **b**",
    [
        Section("Lead", [Figure(SVG, "Lead", "below", "lead.svg")]),
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
    checker = parsed(html)
    assert html.startswith("<!doctype html>") and "<title>&lt;T&gt;</title>" in html
    order = [html.index(text) for text in ("a &amp; <b>b</b>", "<svg", ">below<", "&lt;m&gt;", "<summary>More")]
    assert order == sorted(order)
    assert "<code>&lt;c&gt;</code>" in html
    assert not re.search(r'(src|href)="(?!#)', html) and "@import" not in html
    assert "<cite>a.md</cite>**x** &lt;i&gt;" in html
    assert checker.tags.count("details") == 2 and html.count("<details open>") == 1 and "script" not in checker.tags


def test_markdown_and_terminal_show_the_same_texts(capsys):
    text = PAGE.markdown()
    assert "# <T>\n\na & **b**" in text and "| <m> | **1** |" in text and "![Lead](lead.svg)" in text
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


def test_each_budget_has_its_decision_and_its_ranking():
    low = measured({"corag": [1.0] * 9, "mmr": [0.0] * 9}, 64)
    high = measured({"corag": [0.0] * 9, "mmr": [1.0] * 9}, 128)
    lines = decision([low, high]).splitlines()
    assert lines[0].startswith("At 64 tokens: **Better answers") and lines[1].startswith("At 128 tokens: **Worse")
    assert decision([Result(low.record)]) == ""  # nothing is known of single questions
    page = result_page([low, high], title="T")
    text = page.markdown()
    assert page.lead == decision([low, high]) and text.index("Better answers") < text.index("| budget")
    assert text.index("All measures") > text.index("95% interval") > text.index("| budget")
    rows = headline([low, high]).rows
    assert [row[:2] for row in rows] == [["64", "corag"], ["", "mmr"], ["128", "mmr"], ["", "corag"]]
    assert rows[0][2].replace("\u00a0", " ") == "1.000 (1.000 to 1.000)"
    for row in (unread := measured({"corag": [1.0] * 4, "mmr": [0.0] * 4})).record["methods"]:
        row["f1"] = None
    assert "Better evidence" in decision([unread])
    over = sets_page({"a": [low], "b": [high], "c": [low]}, title="T").lead.splitlines()
    assert len(over) == 2 and "a at 64 tokens" in over[0] and "; c at 64" in over[0] and "b at 128 tokens" in over[1]


def test_questions_that_differ_are_listed(tmp_path):
    queries = [{"id": f"q{number}", "question": f"What is {number} <b>?", "gold": ["d1"]} for number in range(4)]
    folder = write_folder(tmp_path / "data", DOCUMENTS, queries)
    result = measured({"corag": [1.0, 0.0, 0.5, 0.5], "mmr": [0.0, 1.0, 0.25, 0.5]}, data=str(folder))
    text = " ".join(parsed(result_page([result], title="T").html()).text)
    assert "64 tokens: 2 won, 1 lost, 1 alike" in text
    order = [text.index(f"What is {part} <b>?") for part in (0, 2, 1)]
    assert order == sorted(order) and "What is 3" not in text
    # Without the data folder, ids stand for texts.
    page = result_page([Result(result.record | {"data": str(tmp_path / "nowhere")}, result.rows)], title="T").html()
    assert "q0" in page and "What is" not in page


def test_a_method_of_any_name_is_shown_and_drawn():
    name = "$\\frac$ a\x1b[31m\x00\u202eb \ud83d </p><script>é</script>&amp;"
    result = Result(result_of(methods=(name, "corag")))
    checker = parsed(result_page([result], title=name).html())
    text = "".join(checker.text)
    assert text.count(visible(name)) >= 3 and visible(text) == text and "script" not in checker.tags
    ElementTree.fromstring(quality_plot([result], "f1"))


ROWS = '{"method": "corag", "query": "q0", "f1": 1.0}\n'


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        ("{", None), ("3", None), ("{}", None),
        (json.dumps(result_of() | {"methods": []}), None),
        (json.dumps(result_of() | {"methods": [{"method": "corag", "cost_tokens": 1.0, "f1": "high"}]}), None),
        (json.dumps(result_of(methods=("corag", "corag"))), None),
        # Rows of fewer questions, rows that are cut off, and none at all.
        (json.dumps(result_of(methods=("corag",))), ROWS),
        (json.dumps(result_of(methods=("corag",))), ROWS * 6 + ROWS[:9]),
        (json.dumps(result_of(methods=("corag",))), "[1]"),
    ],
)  # fmt: skip
def test_what_is_no_result_or_has_other_rows_is_refused(tmp_path, content, rows):
    path = tmp_path / "result.json"
    path.write_text(content)
    if rows is not None:
        path.with_suffix(".rows.jsonl").write_text(rows)
    with pytest.raises(DataError):
        Result.read(path)
    if rows is not None:
        path.with_suffix(".rows.jsonl").write_text(ROWS * 7)
        assert Result.read(path).questions == 7

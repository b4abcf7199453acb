import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

import corag
from corag.budget import Counts
from corag.errors import DataError, InputError
from corag.reply import Reply
from corag.text.visible import visible
from corag.types import Answer, Candidate, Chunk
from experiments.run.drawing import MAX_CHILDREN_DRAWN, _mean_result, overview_plot, quality_plot, tree_plot
from experiments.run.report import ReportConfig, read_result, report, write_report
from experiments.run.tables import FIGURES, MOST_COLUMNS, replace_table
from tests.corag.table_reranker import TableReranker

COLUMNS = {name: figure.heading for name, figure in FIGURES.items() if not figure.optional}

SVG = "{http://www.w3.org/2000/svg}"
VOID = {"meta", "br", "link", "img"}


class Checker(HTMLParser):
    """Collects what a page holds; every tag has to be closed in its turn."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.text, self.best = [], [], [], []
        self.is_best = False

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        self.is_best = ("class", "best") in attributes

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)
        if self.is_best and data.strip():
            self.best.append(data)


def parsed(html):
    checker = Checker()
    checker.feed(html)
    checker.close()
    assert not checker.open
    return checker


def result_of(budget_tokens=64, methods=("top-k", "corag")):
    """A result in which each figure of a method is its place, but for its tokens."""
    rows = [
        {"method": method, **dict.fromkeys(COLUMNS, float(place)), "cost_tokens": budget_tokens / (place + 2)}
        for place, method in enumerate(methods)
    ]
    return {
        "data": "d", "split": "test", "budget_tokens": budget_tokens, "queries": 7, "pool": "candidates",
        "methods": rows, "config": {}, "versions": {"python": "3.11"}, "seed": 0,
    }  # fmt: skip


def reply_of(num_candidates=3, budget_tokens=40, chunk_words=10, iterations=4, question="Where <is> it?"):
    """A reply of method corag over chunks of so many words, of which the last is worth most."""
    names = [f"c{number}" for number in range(num_candidates)]
    table = TableReranker({(name,): number / 100 for number, name in enumerate(names)}, default=0.5)
    candidates = [
        Candidate(Chunk(name, f"<b>{name}</b> & " + "word " * chunk_words), 0.5 - number / 100)
        for number, name in enumerate(names)
    ]
    selector = corag.selector("corag", policy="paper", reranker=table, iterations=iterations)
    selection = selector.select(question, candidates, budget_tokens)
    return Reply(question, Answer("a <script>"), selection, {"select": 0.1}, Counts(64, "prompt", None, "minilm", True))


@pytest.mark.parametrize("budgets", [[64], [64, 128], [512, 64, 256]])
def test_a_page_has_a_table_for_each_budget_and_one_plot_leads(tmp_path, budgets):
    page = write_report(tmp_path / "new" / "report.html", [result_of(budget) for budget in budgets], title="T")
    checker = parsed(page.read_text(encoding="utf-8"))
    text = " ".join(checker.text)
    assert checker.tags.count("table") == 1 + len(budgets)
    assert checker.tags.count("svg") == 2  # F1 leads, evidence recall is folded
    assert re.findall(r"Budget (\d+) tokens", text) == [str(budget) for budget in sorted(budgets)]
    assert all(heading in text for heading in (*COLUMNS.values(), "top-k", "corag"))
    assert "7 questions of split test" in text and "python 3.11" in text
    # The headline has a row for each budget and method.
    assert checker.tags.count("tr") == 1 + 2 * len(budgets) + len(budgets) * (1 + len(COLUMNS))


def test_the_better_figures_are_bold(tmp_path):
    methods = result_of()["methods"]
    better = {"f1": (0.4, 0.6), "cost_tokens": (30.0, 20.0), "latency_ms_median": (5.0, 5.0), "chunks": (1.0, 2.0)}
    for place, method in enumerate(methods):
        method.update(dict.fromkeys(COLUMNS, 0.0) | {name: pair[place] for name, pair in better.items()})
    page = write_report(tmp_path / "r.html", [result_of() | {"methods": methods}], title="T")
    # Equals are not, nor are figures of which neither more nor less is better.
    assert parsed(page.read_text()).best == ["0.600", "20.0"]


@pytest.mark.slow
def test_many_methods_have_a_line_each(tmp_path):
    names = [f"m{number}" for number in range(MOST_COLUMNS + 1)]
    result = result_of(methods=names)
    for place, method in enumerate(result["methods"]):
        method.update(tes=0.1 * place, diff_k=None if place else 3.0, answer_similarity=None, failed=0)
    # On every question: no figure of it is one.
    result["methods"][0].update(failed=7, cost_tokens=0.0)
    checker = parsed(write_report(tmp_path / "r.html", [result], title="T").read_text())
    assert checker.tags.count("tr") == 2 * (1 + len(names))
    text = "".join(checker.text)
    assert all(heading in text for heading in (*COLUMNS.values(), "TES", "diff-k"))
    assert "answer similarity" not in text  # no method has one
    assert "0.800" in checker.best and "3.00" not in checker.best and "6.4" in checker.best
    assert "0.0" not in checker.best
    # Its place in the legend stays, without a mark in the panel.
    assert "m0" in texts_of(quality_plot({"": [result]}))


def test_results_of_older_versions_lack_some_figures(tmp_path):
    old, new = result_of(64), result_of(128)
    for method in new["methods"]:
        method["tes"] = 0.5
    text = "".join(parsed(write_report(tmp_path / "r.html", [old, new], title="T").read_text()).text)
    assert text.count("TES") == 1


def test_everything_is_escaped(tmp_path):
    nasty = "</p><script>alert('é')</script>&amp;"
    result = result_of(methods=(nasty, "corag")) | {"split": nasty, "versions": {nasty: nasty}}
    page = write_report(tmp_path / "r.html", [result], title=nasty, reply=reply_of(question=nasty))
    checker = parsed(page.read_text(encoding="utf-8"))
    assert "script" not in checker.tags and "b" not in checker.tags
    assert "".join(checker.text).count(nasty) >= 5


@pytest.mark.parametrize("name", ["$\\frac$", "$x$ $", "a\x1b[31m\x00\u202eb", "\ud83d", "<&>"])
def test_a_method_of_any_name_is_shown_and_drawn(tmp_path, name):
    result = result_of(methods=(name, "corag"))
    page = write_report(tmp_path / "r.html", [result], title=name, reply=reply_of(question=name))
    text = "".join(parsed(page.read_text(encoding="utf-8")).text)
    assert text.count(visible(name)) >= 3 and visible(text) == text
    ElementTree.fromstring((tmp_path / "r-quality.svg").read_text(encoding="utf-8"))


def test_a_page_loads_nothing(tmp_path):
    page = write_report(tmp_path / "r.html", [result_of()], title="T", reply=reply_of())
    html = page.read_text()
    assert not re.search(r"(src|href)=\"(?!#)", html) and "@import" not in html and "url(#" in html


def test_a_page_with_a_reply_shows_its_tree_and_chunks(tmp_path):
    reply = reply_of()
    page = write_report(tmp_path / "r.html", [result_of()], title="T", reply=reply)
    checker = parsed(page.read_text())
    assert checker.tags.count("svg") == 3
    assert checker.tags.count("li") == len(reply.selection) > 0
    text = "".join(checker.text)
    assert "Where <is> it?" in text and "a <script>" in text
    assert all(chunk.text in text for chunk in reply.selection.chunks)


def test_a_reply_without_a_search_has_no_tree(tmp_path):
    reply = reply_of(num_candidates=0)
    assert reply.selection.trace.result is None
    checker = parsed(write_report(tmp_path / "r.html", [result_of()], title="T", reply=reply).read_text())
    assert (checker.tags.count("svg"), checker.tags.count("li")) == (2, 0)


def texts_of(svg):
    """Return the comments in which matplotlib repeats every text that it draws."""
    ElementTree.fromstring(svg)  # it is whole
    return re.findall(r"<!-- (.*?) -->", svg)


@pytest.mark.slow
def test_the_quality_plot_has_a_line_for_each_method_in_any_result():
    results = [result_of(64), result_of(128, methods=("top-k", "other"))]
    svg = quality_plot({"": results}, metrics=("f1",))
    assert [name for name in texts_of(svg) if name in ("top-k", "corag", "other")] == ["top-k", "corag", "other"]
    assert quality_plot({"": [result_of()]}).startswith("<svg")
    many = quality_plot({"": [result_of(methods=tuple(f"m{number}" for number in range(12)))]})
    assert {f"m{number}" for number in range(12)} <= set(texts_of(many))
    # The ninth has the colour of the first and another mark.
    assert len(set(re.findall(r'id="m[0-9a-f]{10}"', many))) >= 2


def test_an_overview_is_the_mean_of_the_sets_that_have_a_figure():
    few, many = result_of(64), result_of(64)
    few["methods"][0] |= {"f1": 0.2, "answer_in_context": None, "cost_tokens": 40.0}
    many["methods"][0] |= {"f1": 0.6, "answer_in_context": 0.7, "cost_tokens": 60.0}
    (mean,) = [_mean_result([few, many])]
    assert mean["queries"] == few["queries"] + many["queries"]
    assert [row["method"] for row in mean["methods"]] == [row["method"] for row in few["methods"]]
    first = mean["methods"][0]
    assert (first["f1"], first["answer_in_context"], first["cost_tokens"]) == pytest.approx((0.4, 0.7, 50.0))
    svg = overview_plot({"few": [few], "many": [many]})
    assert f"mean of 2 sets ({mean['queries']} questions)" in texts_of(svg)
    assert {"F1 of the answer", "answer in context"} <= set(texts_of(svg))


@pytest.mark.parametrize(
    ("settings", "num_nodes"),
    [
        ({"num_candidates": 1}, 2),
        ({"num_candidates": 2, "budget_tokens": 60}, 5),
        ({"num_candidates": 3, "budget_tokens": 3}, 1),  # none of them fits: the root alone
    ],
)
def test_small_trees_are_drawn_whole(settings, num_nodes):
    reply = reply_of(**settings)
    tree = reply.selection.trace.result.tree
    assert len(tree) == num_nodes
    svg = tree_plot(reply)
    texts = texts_of(svg)
    assert texts.count("?") == 1
    assert len([text for text in texts if re.fullmatch(r"\d+", text)]) == num_nodes - 1
    assert len([text for text in texts if re.fullmatch(r"\d+\.\d\d", text)]) == num_nodes - 1
    assert svg.count("#d55e00") > 0


def test_of_many_children_the_best_are_drawn():
    reply = reply_of(num_candidates=20, iterations=1, budget_tokens=25)
    texts = texts_of(tree_plot(reply))
    numbers = {int(text) for text in texts if re.fullmatch(r"\d+", text)}
    assert numbers == set(range(21 - MAX_CHILDREN_DRAWN, 21))


def test_plots_leave_nothing_open():
    from matplotlib import pyplot

    backend = pyplot.get_backend()
    quality_plot({"": [result_of()]})
    tree_plot(reply_of())
    assert pyplot.get_fignums() == []
    assert pyplot.get_backend() == backend


def test_results_are_read_from_files(tmp_path):
    paths = []
    for budget in (128, 64):
        paths.append(tmp_path / f"{budget}.json")
        paths[-1].write_text(json.dumps(result_of(budget)))
    page = report(ReportConfig(f"{paths[0]}, {paths[1]}", out=str(tmp_path / "page.html"), title="A & B"))
    assert page == tmp_path / "page.html"
    assert "A & B" in parsed(page.read_text()).text


@pytest.mark.parametrize("results", ["", " , "])
def test_no_result_is_refused(results):
    with pytest.raises(InputError, match="results is empty; give at least one JSON file"):
        report(ReportConfig(results))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file"),
        ("", "Expecting value"),
        ("{", "Expecting property"),
        ("3", "has no attribute"),
        ("[]", "has no attribute"),
        ("{}", "lacks budget_tokens, methods, queries, split, versions"),
        (json.dumps(result_of() | {"methods": []}), "lacks methods"),
        (json.dumps(result_of() | {"methods": [{"method": "corag"}]}), "a method lacks chunks, cost_tokens"),
        (json.dumps(result_of() | {"methods": ["corag"]}), "has no attribute"),
    ],
)
def test_what_is_no_result_is_refused(tmp_path, content, reason):
    path = tmp_path / "result.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(DataError, match=rf"result\.json is not a result of `corag evaluate --out` \(.*{reason}"):
        read_result(path)


def test_a_page_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "r.json").write_text(json.dumps(result_of()))
    with pytest.raises(DataError, match="no name for a file"):
        report(ReportConfig(str(tmp_path / "r.json"), out=str(tmp_path)))


# --- Tables in a page ---

MARKED = "# Page\n\n<!-- table -->\nold\n<!-- /table -->\n\nThe end.\n"


def test_a_table_takes_its_place_and_all_else_stays(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(MARKED)
    replace_table(page, "| new |")
    assert page.read_text() == "# Page\n\n<!-- table -->\n\n| new |\n\n<!-- /table -->\n\nThe end.\n"
    replace_table(page, "| newer |")
    assert page.read_text().count("|") == 2


@pytest.mark.parametrize(
    "text", ["", "<!-- table -->", "<!-- /table --><!-- table -->", MARKED + MARKED, "<!-- /table -->"]
)
def test_a_page_without_a_place_for_the_table_stays_as_it_is(tmp_path, text):
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(DataError, match="must have one line <!-- table -->"):
        replace_table(page, "| new |")
    assert page.read_text() == text


def test_a_page_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        replace_table(tmp_path / "page.md", "| new |")

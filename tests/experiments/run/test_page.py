"""What all pages share."""

import re

import pytest

from experiments.run.page import Cell, Drawing, Table, bold, own_ids, render, with_interval

SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="{}pt"><defs><clipPath id="a"/></defs><g clip-path="url(#a)"/></svg>'
)


def test_a_page_leads_with_its_verdict_and_folds_the_rest():
    page = render(
        title="<T>",
        verdict="a & b",
        lead=Drawing("Lead", SVG.format(300), "below"),
        headline=Table("Methods", ["method", "F1"], [[Cell("<m>", "text"), "1"]]),
        remarks=["one"],
        folded=[Table("More", ["x"], [["2"]], "of it"), Drawing("Second", SVG.format(300))],
    )
    assert page.startswith("<!doctype html>") and "<title>&lt;T&gt;</title>" in page
    places = [
        page.index(text) for text in ("a &amp; b", "<svg", ">below<", "&lt;m&gt;", ">one<", "<summary>More", "of it")
    ]
    assert places == sorted(places)
    # No id stands twice, and each is referred to by its own figure.
    assert re.findall(r'id="([^"]*)"', page) == ["Lead-a", "Second-a"]
    assert re.findall(r"url\(#([^)]*)\)", page) == ["Lead-a", "Second-a"]
    assert not re.search(r'(src|href)="(?!#)', page) and "http" not in page.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize("values", [{}, {"verdict": ""}, {"lead": None, "headline": None, "folded": []}])
def test_what_is_not_known_has_no_place(values):
    page = render(title="T", **values)
    assert "<h2>" not in page and 'class="verdict"' not in page and "None" not in page


@pytest.mark.parametrize(("width", "wide"), [(300, False), (450, False), (451.5, True)])
def test_a_wide_figure_scrolls_on_a_telephone(width, wide):
    assert ('class="wide" tabindex="0"' in render(title="T", lead=Drawing("L", SVG.format(width)))) is wide


def test_groups_of_lines_are_set_apart():
    rows = [["64", "a"], ["", "b"], ["128", "a"], ["", "b"]]
    assert render(title="T", headline=Table("H", ["budget", "method"], rows)).count('<tr class="first">') == 1
    ungrouped = render(title="T", headline=Table("H", ["method"], [["a"], ["b"]]))
    assert '<tr class="first">' not in ungrouped


def test_texts_of_others_stay_texts():
    page = render(title="T", headline=Table("H", ["\x1b[31m"], [["<script>"], [Cell("\u202e<b>", "text")]]))
    assert "\\x1b[31m" in page and "\\u202e" in page and "<script>" not in page and "<b>" not in page
    assert bold("<i> **now** \x07") == "&lt;i&gt; <b>now</b> \\x07"
    assert with_interval("1.0", "0.5", "1.5").split(" ") == ["1.0", "(0.5\u00a0to\u00a01.5)"]
    assert own_ids('<a id="x" href="#x"/>', "a b") == '<a id="a-b-x" href="#a-b-x"/>'

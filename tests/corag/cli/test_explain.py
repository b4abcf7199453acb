"""The page of a selection: what was chosen, why the rest was not, and the tree, with texts that try to be markup."""

import re

import pytest

import corag
from corag.cli.explain import selection_page
from corag.cli.main import main
from corag.index import ChunkIndex
from tests.fakes import WORDS, TableReranker, chunks_of, offer

# A token is a word, and costs nothing.
VALUES = {("c0",): 0.5, ("c1",): 0.4, ("c2",): 0.9, ("c3",): 0.1, ("c0", "c1"): 0.8}
EVIL = "</script><img src=x onerror=alert(1)> **&\x1b[31m"


def select(texts=("a b", "c d e", "f g h i j k l m n", "o"), budget=8, **settings):
    settings = {"unit": "passage", "cost_weight": 0.0, "agent": "none"} | settings
    reranker = settings.pop("reranker", TableReranker(VALUES, default=0.2))
    selector = corag.selector("corag", tokenizer=WORDS, reranker=reranker, **settings)
    return selector.select("Which?", offer(*texts), budget)


def test_each_candidate_says_whether_it_was_chosen_and_why_not():
    selection = select()
    html = selection_page("Which?", selection).html()
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr[^>]*>(<td.*?)</tr>", html, re.DOTALL)]
    verdicts = {row[0]: row[-1] for row in rows if len(row) == 5}
    assert selection.ids == ("c0", "c1")
    assert [verdicts["0"], verdicts["1"]] == ["<b>chosen, number 1</b>", "<b>chosen, number 2</b>"]
    assert verdicts["2"] == "larger than the budget of 8"
    # Single candidates that fit span 0 to 1, so 0.8 is 1.75, and 0.2, the best order with it, 0.25.
    assert verdicts["3"].startswith("1.500 worse at best, as ")
    assert "<b>+ 0</b>" in html and "<b>+ 1 (chosen)</b>" in html and "All figures" in html


def test_texts_stay_texts_and_nothing_is_fetched_or_run():
    selection = select(texts=(EVIL, f"{EVIL} two"), budget=200)
    html = selection_page(EVIL, selection, EVIL).html()
    assert not re.search(r"<(script|img|link|iframe|object|base)|(src|href)=\"(?!#)|@import|url\(|\x1b", html)
    assert "default-src &#39;none&#39;" in html or "default-src 'none'" in html
    assert html.count("&lt;img src=x onerror=alert(1)&gt;") >= 4


def test_a_selection_without_a_tree_or_without_a_text_has_a_page():
    top = corag.selector("top-k(k=1)", tokenizer=WORDS).select("Which?", offer("a b", "c d"), 9)
    assert "grows no tree" in selection_page("Which?", top).html()
    nothing = corag.selector("top-k", tokenizer=WORDS).select("Which?", offer("a b c d e f g h" * 9), 1)
    assert "Nothing was chosen" in selection_page("Which?", nothing).html()


@pytest.mark.slow
def test_ask_writes_the_page(tmp_path, capsys):
    index = ChunkIndex.build(tmp_path / "index", chunks_of(["The sea is salty.", "Sand is dry."]), corag.embedder())
    page = tmp_path / "page.html"
    given = ["--index", index.uri, "--method", "top-k(k=1)", "--page", str(page)]
    assert main(["ask", "How is the sea?", *given]) == 0
    assert "How is the sea?</h1>" in page.read_text("utf-8") and str(page) in capsys.readouterr().err

"""The page of a selection: what was chosen, why the rest was not, and the tree, with texts that try to be markup."""

import re

import pytest

import corag
from corag.budget import Counts
from corag.cli.explain import reply_page
from corag.cli.main import main
from corag.index import ChunkIndex
from corag.reply import LeftOut, Reply
from corag.types import Answer, Candidate, Chunk
from tests.fakes import WORDS, TableReranker, chunks_of, offer

# A token is a word, and costs nothing.
VALUES = {("c0",): 0.5, ("c1",): 0.4, ("c2",): 0.9, ("c3",): 0.1, ("c0", "c1"): 0.8}
EVIL = "</script><img src=x onerror=alert(1)> **&\x1b[31m"


def select(texts=("a b", "c d e", "f g h i j k l m n", "o"), budget=8, **settings):
    settings = {"unit": "passage", "cost_weight": 0.0, "agent": "none"} | settings
    reranker = settings.pop("reranker", TableReranker(VALUES, default=0.2))
    selector = corag.selector("corag", tokenizer=WORDS, reranker=reranker, **settings)
    return selector.select("Which?", offer(*texts), budget)


def page(question, selection, answer=None, left_out=()):
    counts = Counts(48, "prompt", None, "minilm", exact=True)
    return reply_page(Reply(question, selection, left_out, answer, counts), explained=True)


def test_each_candidate_says_whether_it_was_chosen_and_why_not():
    selection = select()
    html = page("Which?", selection).html()
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
    html = page(EVIL, selection, Answer(EVIL)).html()
    assert not re.search(r"<(script|img|link|iframe|object|base)|(src|href)=\"(?!#)|@import|url\(|\x1b", html)
    assert "default-src &#39;none&#39;" in html or "default-src 'none'" in html
    assert html.count("&lt;img src=x onerror=alert(1)&gt;") >= 4


def test_a_selection_without_a_tree_or_without_a_text_has_a_page():
    top = corag.selector("top-k(k=1)", tokenizer=WORDS).select("Which?", offer("a b", "c d"), 9)
    assert "<blockquote" in (html := page("Which?", top).html()) and "policy tree" not in html
    nothing = corag.selector("top-k", tokenizer=WORDS).select("Which?", offer("a b c d e f g h" * 9), 1)
    assert "Nothing was chosen" in page("Which?", nothing).html()


def test_the_terminal_shows_the_answer_its_sources_and_what_was_left_out(capsys):
    chosen = corag.selector("top-k(k=2)", tokenizer=WORDS).select("Which?", offer("a \x1b[2J b", "c \u202e d"), 9)
    left_out = [LeftOut(Candidate(Chunk("mill(**a)", "The mill."), 0.25), 3, "adds less than its tokens are worth")]
    answer = Answer("In 1790 [1][4].", citations=(0,), unknown_citations=(3,))
    page("When?", chosen, answer, left_out).show()
    shown = capsys.readouterr().out
    assert "In 1790 [1][4]." in shown and "Cited but not in the context: [4]" in shown
    assert "[1] c0, cited" in shown and "[2] c1\n" in shown
    assert "a \\x1b[2J b" in shown and "c \\u202e d" in shown
    assert "because it adds less than its tokens are worth: mill(**a) (3 tokens)" in shown


@pytest.mark.slow
def test_ask_writes_the_page(tmp_path, capsys):
    index = ChunkIndex.build(tmp_path / "index", chunks_of(["The sea is salty.", "Sand is dry."]), corag.embedder())
    file = tmp_path / "page.html"
    given = ["--index", index.uri, "--method", "top-k(k=1)", "--page", str(file)]
    assert main(["ask", "How is the sea?", *given]) == 0
    assert "How is the sea?</h1>" in file.read_text("utf-8") and str(file) in capsys.readouterr().err

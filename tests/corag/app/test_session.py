"""What the page is told: tree and growth as the search had them, verdicts as the reranker gives them, own answers."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import search
from corag.app.view import steps, verdicts
from corag.errors import InputError
from corag.index import ChunkIndex
from corag.selectors.problem import SelectionProblem
from corag.types import Chunk
from search import SearchConfig
from search.tree import terms
from tests.corag.app.worlds import make_workbench
from tests.fakes import CHARACTERS, HashEmbedder, HashReranker, offer


@pytest.fixture(scope="module")
def bench(small_data):
    return make_workbench(small_data)


def asked(bench, number=0, **given):
    return bench.search(bench.source.queries[number].question, number, given)


@settings(max_examples=25)
@given(
    costs=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    budget=st.integers(1, 20),
    iterations=st.integers(1, 12),
    backup=st.sampled_from(["best-child", "all-children", "utility"]),
    visits=st.sampled_from(["total", "parent"]),
)
def test_steps_end_in_the_tree(costs, budget, iterations, backup, visits):
    config = SearchConfig(policy="paper", iterations=iterations, backup=backup, visits=visits)
    reranker = HashReranker()
    result = search.search(costs, lambda orders: reranker.score("q", list(map(str, orders))), budget, config)
    tree = result.tree
    found = steps(tree, config)
    assert len(found) == result.num_calls
    for step in found:
        assert tree.parent[step["first"] : step["first"] + step["count"]].tolist() == [step["node"]] * step["count"]
        assert len(step["visits"]) == len(step["utility"]) == step["first"] + step["count"]
    if found:
        mean, bonus, price = terms(tree, slice(1, None), config)
        assert found[-1]["visits"] == tree.visits.tolist()
        for name, column in {"mean": mean, "bonus": bonus, "utility": mean + bonus - price}.items():
            np.testing.assert_allclose(found[-1][name][1:], column, atol=1e-4)


def test_the_tree_leads_to_the_selection(bench):
    found = asked(bench, policy="paper", budget=40, iterations=6)
    tree, node, path = found["tree"], found["tree"]["best"], []
    while node:
        path.insert(0, tree["chunk"][node])
        node = tree["parent"][node]
    chosen = [place for place, item in enumerate(found["items"]) if item["chosen"] is not None]
    assert tuple(path) == found["order"] == tuple(sorted(chosen, key=lambda place: found["items"][place]["chosen"]))
    assert tree["tokens"][tree["best"]] >= found["tokens"] > 0
    assert tree["steps"][-1]["best"] == tree["best"]
    assert tree["value"][tree["best"]] == pytest.approx(found["value"], abs=1e-5)


def test_a_policy_without_a_tree_tells_its_rounds(bench):
    found = asked(bench, policy="bayesian", budget=40)
    assert found["tree"] is None
    assert found["rounds"][-1] == found["order"]


def test_a_price_of_tokens_buys_fewer(bench):
    tokens = [asked(bench, budget=120, cost_weight=weight, iterations=40)["tokens"] for weight in (0, 1, 50)]
    assert tokens == sorted(tokens, reverse=True)
    assert tokens[0] > tokens[-1]


def judged(budget, order, *texts, price=0.0):
    problem = SelectionProblem("a b", offer(*texts), CHARACTERS, budget)
    return verdicts(problem, problem.scorer(Counting()), CHARACTERS, order, token_price=price, num_scored=7)


class Counting(HashReranker):
    """The number of different good words, less the bad ones."""

    def score(self, query, texts):
        good = [sum(word in text for word in ("red", "blue", "tiny")) for text in texts]
        return np.array([number - text.count("bad") for number, text in zip(good, texts, strict=True)]) / 4


RED, BLUE = "red word", "blue word"


@pytest.mark.parametrize(
    ("budget", "order", "other", "price", "kind"),
    [
        (20, (0,), "b" * 21, 0, "too large"),
        (20, (0,), "blue" + "b" * 10, 0, "no room"),
        (60, (0,), "word and red word", 0, "adds nothing"),
        (60, (0,), "bad luck", 0, "lowers the value"),
        (60, (0,), BLUE, 0, "not reached"),
        (60, (0,), BLUE, 9, "not worth its cost"),
        (60, (), BLUE, 0, "not chosen"),
    ],
)
def test_why_a_chunk_was_not_chosen(budget, order, other, price, kind):
    found = judged(budget, order, RED, other, price=price)
    assert kind in [one for one, _ in found[1]["reasons"]]
    assert found[0]["chosen"] == (0 if order else None)


def test_a_repeated_text_and_counterfactual_figures():
    repeating = "red word red word red"
    found = judged(60, (0,), RED, repeating, BLUE)
    assert found[1]["reasons"][0][0] == "repeats"
    assert "100%" in found[1]["reasons"][0][1]
    assert found[2]["with"] == {"value": 0.5, "tokens": len(f"{RED}\n\n{BLUE}")}
    assert judged(60, (0, 1), RED, BLUE)[1]["without"] == {"value": 0.25, "tokens": len(RED)}


def test_evidence_is_marked_where_it_is_known(bench):
    known = {item["title"]: item["evidence"] for item in asked(bench, 0)["items"]}
    assert {title for title, marked in known.items() if marked} == {"Varn", "Tolmere"}
    unknown = asked(bench, 8)
    assert {item["evidence"] for item in unknown["items"]} == {None}
    assert unknown["gold"] is None


def test_sentences_are_marked_and_named(bench):
    found = asked(bench, 0, unit="sentence", budget=60)
    assert found["unit"] == "sentence"
    marked = [item["text"] for item in found["items"] if item["evidence"]]
    assert marked == ["It was founded in 1203 by the queen Ilsa Brandt."]


def test_the_context_is_cut_where_chunks_and_answer_are(bench):
    question = bench.source.queries[0].question
    read = bench.answer(question, 0, {"budget": 60})
    text = "".join(part for block in read["answer_blocks"] for part, _ in block["parts"])
    marked = [part for block in read["answer_blocks"] for part, is_marked in block["parts"] if is_marked]
    assert marked and text.startswith(marked[0]) and read["headline"] == "closest passages"


def test_methods_stand_side_by_side(bench):
    question = bench.source.queries[0].question
    rows = {name: bench.method(question, 0, 60, name) for name in bench.methods}
    assert rows["full"]["tokens"] <= 60 and rows["full"]["gold"] == 2
    assert "max_orders" in rows["upper(max_orders=1)"]["error"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("budget", 10**9),
        ("iterations", 61),
        ("exploration", float("nan")),
        ("cost_weight", -1),
        ("reranker", "openai(base_url=http://example.org)"),
        ("unit", "window(9)"),
        ("seed", 1),
    ],
)
def test_settings_out_of_bounds(bench, name, value):
    with pytest.raises(InputError, match=name):
        asked(bench, **{name: value})


def test_examples_are_about_what_is_indexed(tmp_path):
    texts = [Chunk(f"{title}{part}", "A text.", {"title": title}) for title in ("Varn", "Oro") for part in range(2)]
    index = ChunkIndex.build(tmp_path / "index", [*texts, Chunk("plain", "A text.")], HashEmbedder())
    assert make_workbench(None, index).about()["examples"] == ["Varn", "Oro"]


def test_what_cannot_be_asked(bench):
    for question, number in (("Who asks?", None), ("Another text", 0), ("Who asks?", 99)):
        with pytest.raises(InputError):
            bench.search(question, number, {})
    with pytest.raises(InputError):
        make_workbench(None)


@pytest.mark.slow
def test_two_people_get_their_own_answers(small_data):
    def told(bench, number):
        found = asked(bench, number, budget=40 + number)
        return {name: value for name, value in found.items() if name not in ("seconds", "trace")}

    bench, numbers = make_workbench(small_data), range(6)
    with ThreadPoolExecutor(len(numbers)) as people:
        found = list(people.map(lambda number: [told(bench, number) for _ in range(3)][-1], numbers))
    assert found == [told(make_workbench(small_data), number) for number in numbers]

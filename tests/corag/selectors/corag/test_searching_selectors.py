"""The searching selectors: `corag`, `corag-fixed` and the bound `upper`."""

import asyncio
import copy
import math
import time
from contextlib import contextmanager
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corag
from agent import CheckpointError
from corag.cli.console import progress
from corag.errors import InputError, ModelError
from corag.progress import showing
from corag.rerankers.bm25 import Bm25
from corag.selectors.corag.selector import Corag, corag_fixed
from corag.selectors.problem import SelectionProblem
from corag.selectors.reranking import REMEMBERED, Upper
from search import SearchError
from tests.corag.table_reranker import TableReranker
from tests.corag.worlds import (
    CHARACTERS,
    COUNTERS,
    QUESTIONS,
    HashReranker,
    SetReranker,
    SignEmbedder,
    essence,
    offer,
    pools,
    save_agent,
    sign_agent,
)

POOL = offer("the cat sat", "a dog ran", "birds fly high", "fish swim")

# Together a and b are worth more than anything else, in this order; alone they are the worst.
RELATED = TableReranker({("c0",): 0.1, ("c1",): 0.2, ("c2",): 0.5, ("c3",): 0.4, ("c1", "c0"): 0.9}, default=0.3)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return save_agent(tmp_path_factory.mktemp("agents") / "tiny")


@settings(deadline=None, max_examples=40)
@given(
    pool=pools.map(lambda pool: pool[:4]),
    query=QUESTIONS,
    budget=st.integers(1, 60),
    seed=st.integers(0, 99),
    tokens=st.sampled_from(COUNTERS),
    scale=st.sampled_from(["query", "raw"]),
)
def test_ample_iterations_reach_the_upper_bound(pool, query, budget, seed, tokens, scale):
    searched = Corag(reranker=HashReranker(seed), policy="paper", iterations=100, scale=scale, tokens=tokens)
    bound = Upper(reranker=HashReranker(seed), tokens=tokens)
    # Nothing is cut off: four candidates have 64 orders, and each iteration expands one of them.
    assert searched.select(query, pool, budget).value == bound.select(query, pool, budget).value


def test_finds_the_order_that_only_a_combination_reveals():
    selection = Corag(reranker=RELATED, iterations=50, tokens=CHARACTERS).select("who?", POOL, 40)
    assert (selection.ids, selection.value) == (("c1", "c0"), 0.9)
    assert selection.text == "a dog ran\n\nthe cat sat"
    first_round = Corag(reranker=RELATED, policy="paper", iterations=1, tokens=CHARACTERS).select("who?", POOL, 40)
    assert first_round.ids == ("c2",)


def values_in_the_tree(reranker, budget_tokens, scale="query", pool=POOL):
    """The values on the search's scale, of every order that fits."""
    selector = Corag(reranker=reranker, policy="paper", iterations=100, scale=scale, tokens=CHARACTERS)
    tree = selector.select("who?", pool, budget_tokens).trace.result.tree
    return {tree.order(node): tree.value[node] for node in range(1, len(tree.value))}


def test_scale_changes_the_walk_alone():
    stretched = values_in_the_tree(RELATED, 40)
    # The single candidates span [0, 1]: (V - 0.1) / (0.5 - 0.1).
    expected = {(0,): 0.0, (1,): 0.25, (2,): 1.0, (3,): 0.75, (1, 0): 2.0, (0, 1): 0.5}
    assert {order: stretched[order] for order in expected} == pytest.approx(expected)
    assert values_in_the_tree(RELATED, 40, "raw")[(1, 0)] == 0.9


def test_scale_counts_only_candidates_that_fit():
    # c2 costs 14, so (V - 0.1) / (0.4 - 0.1) without it.
    assert values_in_the_tree(RELATED, 11) == pytest.approx({(0,): 0.0, (1,): 1 / 3, (3,): 1.0})


@pytest.mark.parametrize("noise", [0.0, 1e-7, 5e-324])
def test_values_equal_but_for_rounding_are_not_stretched(noise):
    reranker = TableReranker({("c0",): 0.0, ("c1",): noise, ("c1", "c0"): 0.9})
    assert values_in_the_tree(reranker, 40, pool=POOL[:2])[(1, 0)] == 0.9
    selection = Corag(reranker=reranker, tokens=CHARACTERS).select("who?", POOL[:2], 40)
    assert (selection.ids, selection.value) == (("c1", "c0"), 0.9)


def test_unknown_scale():
    with pytest.raises(InputError, match="scale is 'log'; it must be one of query, raw"):
        Corag(reranker=RELATED, scale="log")


@pytest.mark.parametrize("setting", [{"iterations": 0}, {"exploration": -1.0}, {"cost_weight": float("nan")}])
def test_settings_that_no_search_has(setting):
    with pytest.raises(SearchError, match=next(iter(setting))):
        Corag(reranker=RELATED, **setting)


def test_trace_tells_how_it_came_about():
    trace = Corag(reranker=RELATED, policy="paper", iterations=2, tokens=CHARACTERS).select("who?", POOL, 25).trace
    assert (trace.reranker, trace.iterations, trace.exploration, trace.cost_weight) == (
        "table", 2, 0.3, 0.1,
    )  # fmt: skip
    # Four singles; then c2 (14), which leaves room for c1 or c3 (9 + 2) but not for c0 (11 + 2).
    assert (trace.orders_scored, trace.scorer_calls, trace.orders_computed) == (6, 2, 6)
    assert trace.truncated == 0
    assert trace.result.order == (2,)
    assert trace.probabilities is None


def test_trace_of_an_empty_selection():
    trace = Corag(reranker=RELATED, tokens=CHARACTERS).select("who?", POOL, 3).trace
    assert (trace.orders_scored, trace.orders_computed, trace.result.order) == (0, 0, ())


def test_values_are_remembered_across_settings():
    reranker = HashReranker()
    problem = SelectionProblem("who?", POOL, CHARACTERS, 40)
    first = Corag(reranker=reranker, iterations=5, tokens=CHARACTERS).select_from(problem)
    num_asked = len(reranker.asked)
    Corag(reranker=reranker, iterations=3, tokens=CHARACTERS).select_from(problem)
    assert num_asked == first.trace.orders_computed == len(set(reranker.asked))
    assert len(reranker.asked) == num_asked
    # A smaller budget has the same values on another scale, and other budgets leave no trace in the problem.
    smaller = copy.copy(problem)
    smaller.budget_tokens = 11
    Corag(reranker=reranker, iterations=5, tokens=CHARACTERS).select_from(smaller)
    again = Corag(reranker=reranker, iterations=5, tokens=CHARACTERS).select_from(problem)
    assert essence(again) == essence(first)


@pytest.mark.parametrize(
    ("query", "reranker", "iterations"), [("who?", "bm25", 16), ("a statement", "minilm-maxsim", 1)]
)
def test_agent_decides(checkpoint, query, reranker, iterations):
    embedder = SignEmbedder()
    selection = Corag(agent=checkpoint, embedder=embedder, tokens=CHARACTERS).select(query, POOL, 40)
    trace = selection.trace
    assert (trace.reranker, trace.iterations) == (reranker, iterations)
    assert (trace.exploration, trace.cost_weight) == pytest.approx((1.0, 0.25))
    assert trace.probabilities[reranker] == pytest.approx(1 / (1 + math.exp(-10)))
    assert set(embedder.embedded) == {query}
    settings = {"policy": "paper", "iterations": iterations, "exploration": 1.0, "cost_weight": 0.25, "choice": "value"}
    same = Corag(reranker=reranker, **settings, tokens=CHARACTERS).select(query, POOL, 40)
    assert essence(selection) == essence(same)


def test_the_tree_is_searched_where_an_agent_decides_and_a_model_else(checkpoint):
    assert Corag(reranker=RELATED).config.policy == "bayesian"
    assert Corag(agent=checkpoint, embedder=SignEmbedder()).config.policy == "paper"
    assert Corag(agent=checkpoint, embedder=SignEmbedder(), policy="beam").config.policy == "beam"


def test_given_reranker_stands_in_for_the_predicted_one(checkpoint):
    selector = Corag(reranker=RELATED, agent=checkpoint, embedder=SignEmbedder(), tokens=CHARACTERS)
    selection = selector.select("who?", POOL, 40)
    assert (selection.trace.reranker, selection.trace.iterations) == ("table", 16)
    assert selection.ids == ("c1", "c0")


def test_loaded_agent_does_as_well_as_its_folder(checkpoint):
    from_folder, from_object = (
        Corag(agent=source, embedder=SignEmbedder(), tokens=CHARACTERS).select("who?", POOL, 40)
        for source in (str(checkpoint), sign_agent())
    )
    assert essence(from_folder) == essence(from_object)


def test_no_agent_no_prediction():
    assert Corag(reranker=RELATED).predict("who?") is None


def test_embedder_is_the_one_that_the_checkpoint_names():
    agent = sign_agent(embedder="minilm")
    with pytest.raises(ValueError, match=r"features must have shape \[2\] or \[b, 2\], got \[1, 384\]"):
        Corag(agent=agent).select("who?", POOL, 40)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_embedder_that_is_not_there(tmp_path):
    agent = sign_agent(embedder=str(tmp_path / "gone"))
    with pytest.raises(ModelError, match=r"gone', whose model is not on this machine"):
        Corag(agent=agent).select("who?", POOL, 40)


def test_agent_with_unknown_rerankers(tmp_path):
    folder = save_agent(tmp_path / "agent", rerankers=("lost", "gone"))
    for selector in (Corag, corag_fixed):
        with pytest.raises(InputError, match=r"reranker 'lost', which is unknown here; the names are minilm-cosine"):
            selector(agent=folder)


def test_best_single_setting_with_an_unknown_reranker(tmp_path):
    folder = save_agent(tmp_path / "agent", rerankers=("lost", "bm25"))
    with pytest.raises(InputError, match=r"reranker 'lost' is unknown; the names are minilm-cosine"):
        corag_fixed(agent=folder)


def test_missing_checkpoint(tmp_path):
    with pytest.raises(CheckpointError, match="is not a checkpoint folder"):
        Corag(agent=tmp_path / "none")


def test_checkpoint_that_was_replaced_is_read_again(tmp_path):
    folder = save_agent(tmp_path / "agent")
    Corag(agent=folder)
    save_agent(folder, rerankers=("minilm-maxsim", "bm25"))
    assert Corag(agent=folder).agent.config.rerankers == ("minilm-maxsim", "bm25")


def test_corag_fixed_uses_the_recorded_setting(checkpoint):
    selection = corag.selector("corag-fixed", agent=checkpoint, tokens=CHARACTERS).select("cat?", POOL, 40)
    trace = selection.trace
    assert selection.method == "corag-fixed"
    assert (trace.reranker, trace.iterations, trace.exploration, trace.cost_weight) == (
        "bm25", 7, 0.3, 0.1,
    )  # fmt: skip
    settings = {"policy": "paper", "iterations": 7, "exploration": 0.3, "cost_weight": 0.1, "choice": "value"}
    same = Corag(reranker=Bm25(), **settings, tokens=CHARACTERS)
    assert essence(selection)[:-1] == essence(same.select("cat?", POOL, 40))[:-1]


def test_corag_fixed_without_a_recorded_setting(tmp_path):
    folder = save_agent(tmp_path / "agent", fixed=False)
    with pytest.raises(InputError, match=r"records no best single setting; train it again .* or use method 'corag'"):
        corag_fixed(agent=folder)


def test_corag_fixed_needs_an_agent():
    with pytest.raises(InputError, match="agent"):
        corag.selector("corag-fixed")
    with pytest.raises(InputError, match="agent is None; corag-fixed takes its setting from a checkpoint"):
        corag_fixed(agent=None)


def test_upper_finds_the_best_of_all_orders():
    selection = Upper(reranker=RELATED, tokens=CHARACTERS).select("who?", POOL, 1000)
    assert (selection.ids, selection.value) == (("c1", "c0"), 0.9)
    # 4 + 4 * 3 + 4 * 3 * 2 + 4!
    assert selection.trace.orders_scored == 64
    assert Upper(reranker=RELATED, max_length=1, tokens=CHARACTERS).select("who?", POOL, 1000).ids == ("c2",)


def test_upper_scores_each_set_once_where_order_does_not_matter():
    reranker = SetReranker()
    selection = Upper(reranker=reranker, tokens=CHARACTERS).select("who?", POOL, 1000)
    assert selection.trace.orders_scored == len(reranker.asked) == 2**4 - 1
    assert selection.ids == tuple(sorted(selection.ids))


def test_upper_refuses_what_would_never_end():
    with pytest.raises(SearchError, match=r"more than 63 feasible orders .* raise max_orders, lower max_length"):
        Upper(reranker=RELATED, max_orders=63, tokens=CHARACTERS).select("who?", POOL, 1000)
    Upper(reranker=RELATED, max_orders=64, tokens=CHARACTERS).select("who?", POOL, 1000)
    Upper(reranker=SetReranker(), max_orders=15, tokens=CHARACTERS).select("who?", POOL, 1000)


def test_aselect_equals_select_and_lets_the_loop_run():
    class Slow(HashReranker):
        def score(self, query, texts):
            time.sleep(0.02)
            return super().score(query, texts)

    pool = offer(*(name * 3 for name in "abcde"))
    selector = Corag(reranker=Slow(), iterations=5)
    beats = 0

    async def heart():
        nonlocal beats
        while True:
            beats += 1
            await asyncio.sleep(0.001)

    async def ask():
        beating = asyncio.create_task(heart())
        found = await asyncio.gather(*(selector.aselect(query, pool, 8) for query in ("x", "y", "z")))
        beating.cancel()
        return found

    found = asyncio.run(ask())
    assert [s.ids for s in found] == [selector.select(query, pool, 8).ids for query in ("x", "y", "z")]
    assert beats > 10


@pytest.mark.parametrize("name", ["minilm-cosine", "minilm-maxsim", "minilm-softsim", "bm25"])
def test_many_questions_at_once_find_what_one_by_one_finds(name):
    texts = ["Berlin is the capital of Germany.", "Paris is a city.", "Germany borders France.", "Rivers flow.", "K2."]
    offers = [offer(*texts[k:]) for k in range(4)]
    queries = ["capital of Germany?", "What is Paris?", "Which countries border?", "K2?"]
    selector = Corag(reranker=name, iterations=6)
    together = selector.select_many(queries, offers, 16)
    alone = [selector.select(query, pool, 16) for query, pool in zip(queries, offers, strict=True)]
    assert [s.ids for s in together] == [s.ids for s in alone]
    assert [s.value for s in together] == pytest.approx([s.value for s in alone], abs=1e-6)
    assert [s.trace.orders_scored for s in together] == [s.trace.orders_scored for s in alone]


def test_no_bound_but_the_budget_for_policies_that_add_one_chunk_a_round():
    texts = [f"{letter} word" for letter in "abcdefghijklmnopqrst"]
    found = Corag(reranker="minilm-softsim", tokens=CHARACTERS).select(
        "a word?", offer(*texts, similarities=[0.5] * 20), 999
    )
    assert (len(found), found.trace.policy, found.trace.iterations) == (20, "beam", 20)
    assert Corag(reranker=HashReranker(3)).config.iterations == 10
    assert Corag(reranker=HashReranker(3), policy="greedy", iterations=4).config.iterations == 4


@pytest.mark.parametrize("policy", ["bayesian", "paper", "public-code", "best-first", "beam", "greedy", "random"])
def test_every_policy_chooses_within_the_budget_and_never_above_the_bound(policy):
    selector = Corag(reranker=HashReranker(3), policy=policy, max_scored=40, iterations=20, tokens=CHARACTERS)
    bound = Upper(reranker=HashReranker(3), tokens=CHARACTERS).select("who?", POOL, 30)
    found = selector.select("who?", POOL, 30)
    assert 0 < found.cost_tokens <= 30
    assert found.value <= bound.value
    assert found.trace.policy == policy
    assert found.trace.orders_scored <= 40


def test_upper_takes_twenty_chunks_and_keeps_no_more_values_than_it_should(monkeypatch):
    # Four of twenty equal chunks fit, as 256 tokens do four times into 1,024: 123,520 orders.
    class Cheap(TableReranker):
        def scorer(self, query, chunks):
            return Sums(len(chunks))

    pool = offer(*(f"{letter}{'x' * 9}" for letter in "abcdefghijklmnopqrst"))
    selector = Upper(reranker=Cheap({}), tokens=CHARACTERS)
    problem = selector.problem("who?", pool, 46)
    reports, batches = [], []

    @contextmanager
    def shown(description):
        assert description == "upper, orders"
        yield lambda *counts: reports.append(counts)

    monkeypatch.setattr(Sums, "heard", batches)
    with showing(shown):
        selection = selector.select_from(problem)
    assert selection.ids == ("c19", "c18", "c17", "c16")
    assert selection.trace.orders_scored == sum(batches) == 123_520
    assert max(batches) <= 4096
    assert reports[0] == (0, 123_520) and reports[-1] == (123_520, 123_520)
    assert selector._scorer(problem).num_computed < REMEMBERED + 4096


class Sums:
    """Later chunks are worth more, and earlier places count more."""

    order_matters = True
    num_truncated = 0
    heard: ClassVar = []

    def __init__(self, num_chunks):
        self.num_chunks = num_chunks

    def __call__(self, orders):
        self.heard.append(len(orders))
        return [sum(chunk / 2**place for place, chunk in enumerate(order)) for order in orders]


def test_nobody_hears_of_long_steps_unless_they_are_shown(capsys):
    Upper(reranker=RELATED, tokens=CHARACTERS).select("who?", POOL, 1000)
    with progress("questions", quiet=True):
        Upper(reranker=RELATED, tokens=CHARACTERS).select("who?", POOL, 1000)
    assert capsys.readouterr() == ("", "")

"""`corag` and its bound `upper`: settings, the price of tokens, presets, defaults."""

import asyncio
import time
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corag
from common.errors import InputError
from corag.registry import RERANKERS
from corag.selectors.corag.search import SINGLE, Corag
from corag.selectors.problem import SelectionProblem
from corag.selectors.reranking import Upper
from corag.text.tokens import CallableCounter
from corag.types import Candidate, Chunk
from search import POLICIES, PRESETS, SearchConfig
from tests.fakes import CHARACTERS, QUESTIONS, HashReranker, SetReranker, TableReranker, essence, offer, pools

POOL = offer("the cat sat", "a dog ran", "birds fly high", "fish swim")

# Together c1 and c0 are worth more than anything else, in this order; alone they are the worst.
RELATED = TableReranker({("c0",): 0.1, ("c1",): 0.2, ("c2",): 0.5, ("c3",): 0.4, ("c1", "c0"): 0.9}, default=0.3)
# A long combination is worth a little more than one short chunk.
COSTLY = TableReranker({("c3",): 0.6, ("c3", "c0"): 0.7, ("c0",): 0.1, ("c1",): 0.0, ("c2",): 0.2}, default=0.3)


def probable(values, **given):
    """A reranker that says that its values are probabilities."""
    reranker = TableReranker(values, **given)
    reranker.gives_probabilities = True
    return reranker


def test_a_search_is_a_mapping_and_is_spelled():
    spelled = corag.selector('corag(reranker=bm25, search={"policy": "bayesian", "max_scored": 20})')
    mapped = Corag(reranker="bm25", search={"policy": "bayesian", "max_scored": 20})
    for selector in (spelled, mapped):
        trace = selector.select("who?", POOL, 40).trace
        assert (trace.policy, trace.details["max_scored"]) == ("bayesian", 20)
    assert essence(corag.selector(str(spelled)).select("who?", POOL, 40)) == essence(mapped.select("who?", POOL, 40))


def test_a_reranker_that_reads_every_order_is_asked_about_few():
    reader, from_words = (Corag(reranker=one).select("who?", POOL, 40).trace for one in (HashReranker(), "bm25"))
    assert (reader.policy, from_words.policy) == ("bayesian", "paper")
    assert (from_words.iterations, from_words.exploration) == (40, 0.001)


def test_without_an_agent_the_best_single_configuration_holds():
    offered = offer("Ann did.", "It rained.")
    plain, alike = (one.select("Who?", offered, 9) for one in (Corag(), Corag(**SINGLE)))
    assert essence(plain) == essence(alike) and plain.trace.reranker == "fused"
    by_name = corag.selector("corag-fixed").select("Who?", offered, 9)
    assert by_name.method == "corag-fixed" and essence(replace(by_name, method="corag")) == essence(alike)
    # A price of tokens, or another reranker, takes the place of the promise.
    others = ({"cost_weight": 0.2}, {"reranker": "bm25"})
    priced, by_words = (Corag(**one).select("Who?", offered, 9).trace for one in others)
    assert (priced.reranker, priced.cost_weight) == ("fused", 0.2) and by_words.reranker == "bm25"
    assert "keep" not in priced.details and "keep" not in by_words.details
    assert Corag(preset="paper").select("Who?", offered, 9).trace.details["preset"] == "paper"


def test_a_promise_is_the_shortest_beginning_that_holds_it():
    offered = [Candidate(Chunk(f"c{row}", f"text {row}..")) for row in range(4)]
    # An order is worth the sum of what its chunks are.
    worth = {"c0": 0.4, "c1": 0.3, "c2": 0.2, "c3": 0.1}
    orders = (order for length in range(1, 5) for order in permutations(worth, length))
    reranker = probable({order: sum(worth[name] for name in sorted(order)) for order in orders})
    for keep, count in ((0, 1), (0.4, 1), (0.41, 2), (0.7, 2), (0.9, 3), (0.91, 4), (1, 4)):
        selection = Corag(reranker=reranker, keep=keep, tokenizer=CHARACTERS).select("who?", offered, 100)
        assert selection.ids == tuple(f"c{row}" for row in range(count)), keep
        assert selection.trace.details["share_kept"] == pytest.approx((0.4, 0.7, 0.9, 1.0)[count - 1])
    # Of what the budget can hold, c0 and c1, the first is 4 sevenths.
    held = Corag(reranker=reranker, keep=0.57, tokenizer=CHARACTERS).select("who?", offered, 20)
    assert held.ids == ("c0",) and held.trace.details["full_tokens"] == 18
    with pytest.raises(InputError, match="both decide"):
        Corag(reranker=reranker, keep=0.9, cost_weight=0.1)
    # Of logits below 0 no beginning of the best order holds a share.
    negative = TableReranker({("c0", "c1", "c2", "c3"): -1.0}, default=-2.0)
    assert len(Corag(reranker=negative, keep=0.9, tokenizer=CHARACTERS).select("who?", offered, 100)) == 4
    # The mark for the second sentence would cost more than the sentence.
    first, second, third = "d#0-8", "d#9-12", "d#13-23"
    values = {(first,): 0.5, (first, third): 0.9, (first, third, second): 1.0}
    dear = CallableCounter(lambda text: len(text) + 9 * text.count("…"))
    marked = Corag(reranker=TableReranker(values), unit="sentence", keep=0.9, tokenizer=dear)
    assert marked.select("who?", [Chunk("d", "It is I. So. Who is it?")], 25).ids == (first, second, third)


def chosen(reranker, cost_weight, budget=40, **given):
    given = {"policy": "paper", "iterations": 60, **given}
    selector = Corag(reranker=reranker, search=given, cost_weight=cost_weight, tokenizer=CHARACTERS)
    return selector.select("who?", POOL, budget)


@pytest.mark.parametrize(("policy", "budget"), [*((one, 40) for one in POLICIES), ("paper", 30), ("paper", 100_000)])
def test_the_price_decides_the_answer_under_every_policy_and_within_every_budget(policy, budget):
    reranker = probable({("c3",): 0.6, ("c3", "c0"): 0.7, ("c0",): 0.1}, default=0.0)
    # c0 adds 13 characters with its separator and 0.1: worth it up to lambda = 0.1 * 256 / 13 = 1.97.
    free, cheap, dear = (chosen(reranker, weight, budget, policy=policy) for weight in (0, 1.9, 2.0))
    assert free.ids == cheap.ids == ("c3", "c0") and dear.ids == ("c3",)
    assert dear.trace.details["token_price"] == pytest.approx(2.0 / 256)


def test_values_that_are_no_probabilities_span_from_0_to_1():
    tree = chosen(RELATED, 0).trace.result.tree
    stretched = {tree.order(node): tree.value[node] for node in range(1, len(tree))}
    # (V - 0.1) / (0.5 - 0.1)
    expected = {(0,): 0.0, (1,): 0.25, (2,): 1.0, (3,): 0.75, (1, 0): 2.0, (0, 1): 0.5}
    assert {order: stretched[order] for order in expected} == pytest.approx(expected)
    # c2 costs 14, so (V - 0.1) / (0.4 - 0.1) without it.
    assert sorted(chosen(RELATED, 0, 11).trace.result.tree.value[1:]) == pytest.approx([0.0, 1 / 3, 1.0])
    assert chosen(RELATED, 0).value == 0.9
    assert chosen(RELATED, 0, 1).value == 0  # nothing fits


@pytest.mark.parametrize("noise", [0.0, 1e-7, 5e-324])
def test_values_equal_but_for_rounding_are_not_stretched(noise):
    reranker = TableReranker({("c0",): 0.0, ("c1",): noise, ("c1", "c0"): 0.9})
    selection = Corag(reranker=reranker, tokenizer=CHARACTERS).select("who?", POOL[:2], 40)
    assert (selection.ids, selection.value) == (("c1", "c0"), 0.9)


@settings(deadline=None, max_examples=12)
@given(pool=pools.map(lambda pool: pool[:4]), query=QUESTIONS, budget=st.integers(1, 60), seed=st.integers(0, 99))
def test_with_exact_search_a_higher_price_never_costs_more(pool, query, budget, seed):
    search = {"policy": "paper", "iterations": 100}
    found = [
        Corag(reranker=HashReranker(seed), search=search, unit="passage", cost_weight=weight, tokenizer=CHARACTERS)
        for weight in (0, 0.5, 1, 2, 5)
    ]
    costs = [selector.select(query, pool, budget).cost_tokens for selector in found]
    assert costs == sorted(costs, reverse=True)


class Logits(HashReranker):
    """A reranker with logits, as cross-encoders have them."""

    name = "logits"

    def __init__(self, *, output: str = "probability"):
        self.output = output

    def score(self, query, texts):
        logits = np.array([len(text) - 10.0 for text in texts])
        return logits if self.output == "logit" else 1 / (1 + np.exp(-logits))


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_the_search_of_its_source(preset):
    selector = Corag(preset=preset, reranker="bm25")
    for budget in (40, 4000):  # lambda is that of eq. 5, of the whole budget
        assert selector.search_of(SelectionProblem("who?", POOL, CHARACTERS, budget)) == SearchConfig(**PRESETS[preset])
    tree = Corag(preset=preset, reranker=COSTLY, tokenizer=CHARACTERS).select("who?", POOL, 40).trace.result.tree
    assert set(tree.value.tolist()) <= {0.0, 0.1, 0.2, 0.3, 0.6, 0.7}  # as they are


def test_a_preset_asks_for_logits_where_there_are_any(monkeypatch, caplog):
    monkeypatch.setitem(RERANKERS.parts, "logits", Logits)

    def trace(**given):
        return Corag(tokenizer=CHARACTERS, **given).select("who?", POOL, 40).trace.details

    assert trace(preset="paper", reranker="logits")["logits"] is True
    assert trace(preset="paper", reranker="logits(output=probability)")["logits"] is True
    assert trace(preset="paper", reranker=Logits())["logits"] is True
    assert not caplog.messages
    without = trace(preset="paper", reranker="bm25")
    assert without["logits"] is False and without["warning"] in caplog.messages and "exploration" in caplog.text
    assert "logits" not in trace(reranker="logits")


def test_a_preset_takes_the_logits_of_probabilities():
    values = {("c0",): 0.5, ("c1",): 0.9, ("c2",): 0.0, ("c3",): 1.0}
    selection = Corag(preset="paper", reranker=probable(values, default=0.6), tokenizer=CHARACTERS).select(
        "who?", POOL, 14
    )
    tree = selection.trace.result.tree
    seen = {tree.order(node): tree.value[node] for node in range(1, len(tree))}
    expected = {(0,): 0.0, (1,): np.log(9), (2,): -np.log(99_999), (3,): np.log(99_999)}
    assert {order: seen[order] for order in expected} == pytest.approx(expected, rel=1e-4)
    assert (selection.value, selection.trace.details["logits"]) == (1.0, True)


NOTES = [
    "Everest is 8,849 metres high.", "Bananas are yellow.", "Everest is on the border of Nepal and China.",
    "K2 is the second-highest mountain.", "Paris is in France.",
]  # fmt: skip


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_picks_by_value_from_the_shipped_value(preset):
    selection = corag.select("How high is Everest, and where is it?", NOTES, 32, preset=preset)
    assert {NOTES[0], NOTES[2]} <= {chunk.text for chunk in selection.chunks}


def test_upper_finds_the_best_of_all_orders():
    selection = Upper(reranker=RELATED, tokenizer=CHARACTERS).select("who?", POOL, 1000)
    assert (selection.ids, selection.value) == (("c1", "c0"), 0.9)
    # 4 + 4 * 3 + 4 * 3 * 2 + 4!
    assert selection.trace.orders_scored == 64
    assert Upper(reranker=RELATED, max_length=1, tokenizer=CHARACTERS).select("who?", POOL, 1000).ids == ("c2",)
    sets = Upper(reranker=SetReranker(), tokenizer=CHARACTERS).select("who?", POOL, 1000)
    assert sets.trace.orders_scored == 2**4 - 1
    with pytest.raises(InputError, match="max_orders"):
        Upper(reranker=RELATED, max_orders=63, tokenizer=CHARACTERS).select("who?", POOL, 1000)
    with pytest.raises(InputError, match="max_length"):
        Upper(reranker=RELATED, max_length=0)


def test_a_cancelled_selection_stops():
    called = []

    class Slow(HashReranker):
        def score(self, query, texts):
            called.append(len(texts))
            time.sleep(0.02)
            return super().score(query, texts)

    async def cancel():
        selector = Corag(reranker=Slow(), tokenizer=CHARACTERS, search={"iterations": 1000})
        texts = [f"text {row}" for row in range(60)]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(selector.aselect("who?", texts, 10_000), 0.3)
        await asyncio.sleep(0.3)  # longer than what it was doing
        counted = len(called)
        await asyncio.sleep(0.3)
        assert 0 < counted == len(called) < 60

    asyncio.run(cancel())

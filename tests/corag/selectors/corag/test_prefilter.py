"""Surrogate first: `minilm-pooled`, and what `prefilter` makes of the selector `corag`."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corag
from corag.cli.main import main
from corag.errors import ScoringError
from corag.models.minilm import minilm_encoder
from corag.rerankers.pooled import MiniLMPooled, PooledScorer
from corag.rerankers.scorers import JoinedTextScorer
from corag.selectors.corag.selector import Corag
from corag.selectors.problem import SelectionProblem
from search import SearchError
from tests.corag.worlds import CHARACTERS, HashReranker, essence, offer, pools

POOL = offer("the cat sat", "a dog ran", "birds fly high", "fish swim", "bees", "worms")
POLICIES = ["bayesian", "paper", "public-code", "best-first", "beam", "greedy", "random"]
PASSAGES = ["Berlin is the capital of Germany.", "The Rhine flows through Cologne.", "Bananas!", "", "river " * 700]


def test_pooled_equals_the_formula():
    encoder = minilm_encoder()
    vector = encoder.sentence_embeddings(encoder.tokenize(["Which river?"]).ids)[0]
    states = encoder.token_embeddings(encoder.tokenize(PASSAGES[:3]).ids)
    orders = [(0,), (1,), (2, 0), (1, 0, 2), (0, 1, 2)]
    expected = []
    for order in orders:
        pooled = sum(states[i].sum(0) / len(states[i]) ** 0.5 for i in order)
        expected.append(max(0.0, float(pooled @ vector / np.linalg.norm(pooled))))
    scorer = MiniLMPooled().scorer("Which river?", [candidate.chunk for candidate in offer(*PASSAGES)])
    assert scorer(orders) == pytest.approx(expected, abs=1e-5)
    assert scorer([]).shape == (0,)
    assert scorer([(3,)]) == [0.0]
    assert scorer([(1, 3)]) == pytest.approx(scorer([(1,)]))
    assert scorer.num_truncated == 0
    scorer([(4,), (4, 0), (0, 4), (4,)])
    assert scorer.num_truncated == 3


def test_pooled_by_hand():
    # Chunk vectors (3, 0), (0, 4), (-5, 0); the question is (1, 0).
    vectors = np.array([[3.0, 0], [0, 4], [-5, 0]])
    scorer = PooledScorer(vectors[:, 0], vectors @ vectors.T, np.zeros(3, dtype=bool))
    # 3/3; 0; below 0; 3/5; (3 - 5) / 2 below 0.
    assert scorer([(0,), (1,), (2,), (0, 1), (2, 0)]) == pytest.approx([1, 0, 0, 0.6, 0])


def test_a_chunk_is_embedded_once(monkeypatch):
    reranker = MiniLMPooled()
    pool = [candidate.chunk for candidate in offer(*PASSAGES[:3])]
    first = reranker.scorer("Which river?", pool)([(0, 1)])
    encoder = minilm_encoder()
    embedded = []
    monkeypatch.setattr(encoder, "token_embeddings", lambda ids: embedded.extend(ids) or [])
    assert reranker.scorer("Which river?", pool[::-1])([(2, 1)]) == pytest.approx(first)
    assert embedded == []


@settings(max_examples=30)
@given(pool=pools, budget=st.integers(1, 60), policy=st.sampled_from(POLICIES), seed=st.integers(0, 99))
def test_exact_when_off(pool, budget, policy, seed):
    plain = Corag(reranker=HashReranker(seed), policy=policy, tokens=CHARACTERS).select("a", pool, budget)
    asked = HashReranker(5)
    off = Corag(reranker=HashReranker(seed), policy=policy, prefilter=1.0, surrogate=asked, tokens=CHARACTERS)
    found = off.select("a", pool, budget)
    assert essence(found) == essence(plain)
    assert found.trace.result == plain.trace.result
    assert not asked.asked and found.trace.surrogate is None


@settings(max_examples=30)
@given(pool=pools, budget=st.integers(1, 60), policy=st.sampled_from(POLICIES), share=st.sampled_from([0.1, 0.5]))
def test_within_the_budget_and_the_trace_counts(pool, budget, policy, share):
    reranker, surrogate = HashReranker(1), HashReranker(2)
    selector = Corag(reranker=reranker, policy=policy, prefilter=share, surrogate=surrogate, tokens=CHARACTERS)
    found = selector.select("a", pool, budget)
    assert found.cost_tokens <= budget
    trace = found.trace
    assert (trace.surrogate, trace.prefilter) == (("hash", share) if pool else (None, None))
    if pool:
        assert trace.orders_ranked >= len(surrogate.asked)
        assert trace.orders_computed <= len(reranker.asked)
    if policy not in ("paper", "public-code", "best-first"):
        # No single candidate is valued just to find a scale.
        assert len(reranker.asked) == trace.orders_scored


def test_fewer_orders_reach_the_reranker():
    for policy in ("paper", "public-code", "best-first", "beam", "greedy"):
        num_scored = [
            Corag(
                reranker=HashReranker(4), policy=policy, prefilter=share, surrogate=HashReranker(6), tokens=CHARACTERS
            )
            .select("a", POOL, 40)
            .trace.orders_scored
            for share in (0.3, 1.0)
        ]
        assert num_scored[0] < num_scored[1]


def test_a_surrogate_that_knows_finds_the_best_at_once():
    best = corag.selector("upper", reranker=HashReranker(3), tokens=CHARACTERS).select("a", POOL, 30)
    reranker = HashReranker(3)
    selector = Corag(reranker=reranker, max_scored=4, prefilter=0.5, surrogate=HashReranker(3), tokens=CHARACTERS)
    found = selector.select("a", POOL, 30)
    assert essence(found)[:-1] == essence(best)[:-1]
    assert len(reranker.asked) == found.trace.orders_scored == 4
    assert found.trace.chunk_values is None  # they would have cost more than the search


@pytest.mark.parametrize("policy", ["bayesian", "beam", "greedy", "random"])
def test_no_single_is_scored_for_a_scale_that_makes_no_difference(policy):
    reranker = HashReranker(3)
    selector = Corag(reranker=reranker, policy=policy, max_scored=5, iterations=1, tokens=CHARACTERS)
    trace = selector.select("a", POOL, 40).trace
    assert trace.orders_computed == trace.orders_scored <= 5


@pytest.mark.parametrize("surrogate", [None, "bm25", HashReranker(1)])
def test_surrogates_by_default_by_name_and_as_objects(surrogate):
    selector = corag.selector("corag", reranker="minilm-maxsim", prefilter=0.25, surrogate=surrogate)
    trace = selector.select("What swims?", POOL, 12).trace
    assert trace.surrogate == {None: "minilm-pooled", "bm25": "bm25"}.get(surrogate, "hash")
    assert trace.orders_ranked > 0


def test_many_questions_at_once_find_what_one_by_one_finds():
    queries = ["capital of Germany?", "What is Paris?", "Which fish swims?"]
    offers = [POOL, POOL[2:], []]
    for policy in ("bayesian", "paper"):
        selector = Corag(reranker=HashReranker(2), policy=policy, prefilter=0.3, surrogate=HashReranker(8))
        together = selector.select_many(queries, offers, 10)
        alone = [selector.select(query, pool, 10) for query, pool in zip(queries, offers, strict=True)]
        assert [essence(one) for one in together] == [essence(one) for one in alone]
        counts = [[s.trace.orders_ranked or 0 for s in some] for some in (together, alone)]
        assert counts[0] == counts[1]


def test_a_problem_remembers_what_its_surrogate_said():
    surrogate = HashReranker(8)
    problem = SelectionProblem("a", POOL, CHARACTERS, 40)
    selector = Corag(reranker=HashReranker(2), prefilter=0.3, surrogate=surrogate, tokens=CHARACTERS)
    first = selector.select_from(problem)
    num_asked = len(surrogate.asked)
    assert essence(selector.select_from(problem)) == essence(first)
    assert len(surrogate.asked) == num_asked


class Broken(HashReranker):
    name = "broken"

    def scorer(self, query, chunks):
        scorer = JoinedTextScorer(self, query, chunks)
        scorer.order_matters = False
        return scorer

    def score(self, query, texts):
        return np.full(len(texts), np.nan)


@pytest.mark.parametrize("policy", ["bayesian", "paper"])
def test_a_surrogate_that_cannot_rank_is_named(policy):
    selector = Corag(reranker=HashReranker(0), policy=policy, prefilter=0.3, surrogate=Broken(), tokens=CHARACTERS)
    with pytest.raises(ScoringError, match="reranker 'broken' returned nan"):
        selector.select("a", POOL, 40)


@pytest.mark.parametrize("prefilter", [0, 1.5, float("nan")])
def test_bad_share(prefilter):
    with pytest.raises(SearchError, match=r"prefilter is .*; it must be a number above 0 and at most 1"):
        corag.selector("corag", prefilter=prefilter)


def test_ask_passes_it_on(small_index, capsys):
    arguments = ["ask", "How deep is Lake Sable?", "--index", str(small_index), "--num_candidates", "6"]
    assert main([*arguments, "--prefilter", "0.3", "--json"]) == 0
    trace = json.loads(capsys.readouterr().out)["trace"]
    assert (trace["prefilter"], trace["surrogate"]) == (0.3, "minilm-pooled")
    assert trace["orders_ranked"] > trace["orders_scored"] > 0
    assert main([*arguments, "--prefilter", "0.3"]) == 0
    assert "prefilter 0.3, orders_ranked" in " ".join(capsys.readouterr().out.split())
    assert main([*arguments, "--prefilter", "7"]) == 2
    assert "prefilter is 7.0; it must be" in capsys.readouterr().err

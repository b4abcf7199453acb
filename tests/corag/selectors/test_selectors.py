"""What every registered selector promises, whatever it chooses by."""

import copy
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corag
from corag import Candidate, Chunk
from corag.errors import BudgetError, InputError, ScoringError
from corag.selectors.base import BudgetedSelector, Choice, fill
from corag.text.documents import SEPARATOR
from corag.text.tokens import CallableCounter
from corag.types import Selector
from tests.corag.table_reranker import TableReranker
from tests.corag.worlds import (
    CHARACTERS,
    COUNTERS,
    EMBEDDING,
    PACKING,
    QUESTIONS,
    SUMMARIZING,
    HashEmbedder,
    HashReranker,
    OddSummarizer,
    cheap_selector,
    essence,
    offer,
    pools,
    save_agent,
)

OF_SENTENCES = ("prune", "sentence-threshold", "extractive-compression")
"""What they choose is not among the candidates; see test_pruning.py."""
NAMES = [name for name in corag.SELECTORS.names if name not in OF_SENTENCES]
TAKING = [name for name in NAMES if name != "none"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return save_agent(tmp_path_factory.mktemp("agents") / "tiny")


@pytest.fixture(params=NAMES, scope="module")
def name(request):
    return request.param


@pytest.fixture(scope="module")
def selector(name, checkpoint):
    return cheap_selector(name, checkpoint, tokens=CHARACTERS)


def assert_sound(selection, candidates, budget_tokens, tokens, name):
    offered = {candidate.chunk.id: candidate.chunk for candidate in candidates}
    assert selection.cost_tokens <= budget_tokens
    assert selection.budget_tokens == budget_tokens
    if any(piece["kind"] == "summary" for piece in selection.trace.details.get("pieces", ())):
        assert set(selection.ids) == {
            source for piece in selection.trace.details["pieces"] for source in piece["sources"]
        }
    else:
        assert selection.text == SEPARATOR.join(chunk.text for chunk in selection.chunks)
    assert len(set(selection.ids)) == len(selection) == len({chunk.text for chunk in selection.chunks})
    assert all(chunk == offered[chunk.id] for chunk in selection.chunks)
    assert math.isfinite(selection.value)
    assert selection.method == name
    assert (selection.trace.tokens_estimated is not None) == (not tokens.exact)
    if selection.chunks:
        assert selection.cost_tokens == tokens.count([selection.text])[0]
        assert selection.trace.reason is None
    else:
        assert (selection.cost_tokens, selection.value, selection.text) == (0, 0.0, "")
        assert name == "none" or all(tokens.count([chunk.text])[0] > budget_tokens for chunk in offered.values())
        assert selection.trace.reason


@pytest.mark.parametrize("tokens", COUNTERS, ids=lambda tokens: tokens.name)
@settings(deadline=None, max_examples=15)
@given(pool=pools, query=QUESTIONS, budget=st.integers(1, 80), seed=st.integers(0, 99))
def test_budget_holds_under_any_token_count(checkpoint, name, tokens, pool, query, budget, seed):
    selector = cheap_selector(name, checkpoint, reranker=HashReranker(seed), tokens=tokens)
    assert_sound(selector.select(query, pool, budget), pool, budget, tokens, name)


@settings(deadline=None, max_examples=20)
@given(pool=pools, query=QUESTIONS, budget=st.integers(1, 80))
def test_same_input_same_selection(checkpoint, name, pool, query, budget):
    before = copy.deepcopy(pool)
    first, again = (cheap_selector(name, checkpoint, tokens=CHARACTERS).select(query, pool, budget) for _ in range(2))
    assert essence(first) == essence(again)
    assert pool == before


@settings(deadline=None, max_examples=20)
@given(problems=st.lists(st.tuples(QUESTIONS, pools), max_size=4), budget=st.integers(1, 80))
def test_select_many_equals_one_by_one(selector, problems, budget):
    queries, candidates = [query for query, _ in problems], [pool for _, pool in problems]
    together = selector.select_many(queries, candidates, budget)
    alone = [selector.select(query, pool, budget) for query, pool in problems]
    assert list(map(essence, together)) == list(map(essence, alone))


def test_select_many_needs_candidates_for_each_query(selector):
    with pytest.raises(InputError, match="2 queries come with 1 lists"):
        selector.select_many(["a", "b"], [offer("a")], 10)


def test_is_a_selector(selector, name):
    assert isinstance(selector, Selector)
    assert selector.name == name


def test_no_candidates(selector):
    selection = selector.select("a?", [], 10)
    assert_sound(selection, [], 10, CHARACTERS, selector.name)
    assert selection.trace.reason == "there are no candidates"


@pytest.mark.parametrize("name", [name for name in TAKING if name not in SUMMARIZING], indirect=True)
def test_every_chunk_over_budget(selector, name):
    selection = selector.select("a?", offer("a" * 12, "b" * 11, "c" * 13), 10)
    assert len(selection) == 0
    assert "every one of the 3 candidates" in selection.trace.reason
    assert "the cheapest costs 11" in selection.trace.reason


@pytest.mark.parametrize("name", TAKING, indirect=True)
def test_exact_fit(selector, name):
    assert selector.select("a?", offer("a" * 10), 10).cost_tokens == 10
    if name in SUMMARIZING:
        return
    # Two chunks stand with one separator, not with two.
    both = selector.select("cat dog", offer("cat cat", "dog dog"), 16)
    assert both.cost_tokens in (7, 16)


@pytest.mark.parametrize(
    "name",
    ["top-k", "naive", "full", "top-tokens", "similarity-cutoff", "mmr", "submodular", "reorder", "adaptive-k", "car"],
)
def test_fills_to_the_last_token(checkpoint, name):
    selector = cheap_selector(name, checkpoint, tokens=CHARACTERS)
    assert selector.select("a?", offer("aaaa", "bbbb"), 10).cost_tokens == 10
    assert selector.select("a?", offer("aaaa", "bbbb"), 9).cost_tokens == 4


@pytest.mark.parametrize("name", TAKING, indirect=True)
def test_huge_chunk_among_small_ones(selector, name):
    selection = selector.select("a?", offer("a" * 100_000, "a dog", "b cat"), 20)
    assert selection.ids
    assert name in SUMMARIZING or "c0" not in selection.ids


def test_one_huge_chunk_alone(selector, name):
    candidates = offer("a" * 100_000)
    selection = selector.select("a?", candidates, 20)
    assert selection.cost_tokens <= 20
    assert name in SUMMARIZING or not selection.ids


@settings(deadline=None, max_examples=10)
@given(pool=pools, query=QUESTIONS, budget=st.integers(1, 80))
def test_names_do_not_matter(selector, pool, query, budget):
    renamed = [Candidate(Chunk(f"z{99 - rank}", one.chunk.text), one.similarity) for rank, one in enumerate(pool)]
    names = {one.chunk.id: other.chunk.id for one, other in zip(pool, renamed, strict=True)}
    selection, other = selector.select(query, pool, budget), selector.select(query, renamed, budget)
    if selector.name != "raptor":  # whose tree is over chunks in the order of their names
        assert other.text == selection.text
        assert other.ids == tuple(names[name] for name in selection.ids)


@pytest.mark.parametrize(
    "name", ["top-k", "full", "top-tokens", "similarity-cutoff", "adaptive-k", "car"], indirect=True
)
def test_equally_similar_candidates_stay_in_their_order(selector):
    candidates = offer("one", "two", "three", "four", similarities=[0.5] * 4)
    assert selector.select("a?", candidates, 100).ids == ("c0", "c1", "c2", "c3")


@pytest.mark.parametrize("name", EMBEDDING)
def test_vectors_without_length(checkpoint, name):
    class Lost(HashEmbedder):
        def embed(self, texts):
            return super().embed(texts) * np.array([[text != "lost"] for text in texts])

    embedder = Lost()
    settings = {"summarizer": OddSummarizer(CHARACTERS)} if name in SUMMARIZING else {}
    selector = corag.selector(name, embedder=embedder, tokens=CHARACTERS, **settings)
    candidates = offer("a cat", "lost", "a dog")
    try:
        # What measures distances can do without a direction; what measures cosines says that it cannot.
        assert_sound(selector.select("a?", candidates, 30), candidates, 30, CHARACTERS, name)
        assert name in ("crag", "raptor")
    except InputError as error:
        assert name in (*PACKING, "edc2") and "has length 0" in str(error)


@pytest.mark.parametrize("name", ["naive", "corag", "upper"])
def test_values_of_another_number(checkpoint, name):
    class Short(HashReranker):
        def score(self, query, texts):
            return super().score(query, texts)[:-1]

    selector = cheap_selector(name, checkpoint, reranker=Short(), tokens=CHARACTERS)
    with pytest.raises(ScoringError, match="hash"):
        selector.select("a?", offer("a", "b", "c"), 10)


@pytest.mark.parametrize("name", TAKING, indirect=True)
def test_joining_that_costs_more_than_the_parts_leaves_what_fits_alone(checkpoint, name):
    # 9 + 9 for the chunks and 4 for the separator seem to fit 30; joined they cost 8 ** 2 = 64.
    squared = CallableCounter(lambda text: len(text) ** 2, name="squared")
    selector = cheap_selector(name, checkpoint, tokens=squared)
    selection = selector.select("aaa bbb", offer("aaa", "bbb"), 30)
    if name in SUMMARIZING:
        assert 0 < selection.cost_tokens <= 30
    else:
        assert (len(selection), selection.cost_tokens) == (1, 9)


def test_duplicates_are_dropped_and_counted(selector):
    cat, dog = Chunk("cat", "the cat sat"), Chunk("dog", "the dog ran")
    pool = [
        Candidate(cat, 0.9),
        Candidate(dog, 0.8),
        Candidate(cat, 0.7),
        Candidate(Chunk("copy", "the cat sat"), 0.6),
    ]
    selection = selector.select("cat dog", pool, 100)
    assert_sound(selection, pool, 100, CHARACTERS, selector.name)
    assert set(selection.ids) <= {"cat", "dog"}
    assert selection.trace.duplicates_dropped == 2
    assert selector.select("cat dog", pool[:2], 100).trace.duplicates_dropped == 0


def test_one_id_with_two_texts(selector):
    pool = [Candidate(Chunk("cat", "the cat sat"), 0.9), Candidate(Chunk("cat", "the cat ran"), 0.8)]
    with pytest.raises(InputError, match=r"share the id 'cat'; ids have to be unique"):
        selector.select("cat", pool, 100)


@pytest.mark.parametrize("similarity", [math.nan, math.inf, -math.inf])
def test_similarity_must_be_finite(selector, similarity):
    with pytest.raises(InputError, match="candidate 'c1' at rank 1 has similarity"):
        selector.select("a?", offer("a", "b", similarities=[0.5, similarity]), 10)


@pytest.mark.parametrize("similarity", ["0.5", b"1", [0.5], object()])
def test_similarity_must_be_a_number(selector, similarity):
    with pytest.raises(InputError, match=r"candidate 'c1' at rank 1 has similarity .*; similarities have to be finite"):
        selector.select("a?", offer("a", "b", similarities=[0.5, similarity]), 10)


@pytest.mark.parametrize("query", [None, 7, b"a?", ["a?"]])
def test_question_must_be_a_text(selector, query):
    with pytest.raises(InputError, match=rf"the question is {re.escape(repr(query))}, a {type(query).__name__}"):
        selector.select(query, offer("a"), 10)
    with pytest.raises(InputError, match="give a text"):
        selector.select_many(["a?", query], [offer("a"), offer("b")], 10)


@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        (["a text"], "candidate 'a text' at rank 0 is a str, not a Candidate"),
        ([*offer("a"), ("id", "text", 0.5)], r"candidate \('id', 'text', 0.5\) at rank 1 is a tuple"),
        ([Chunk("a", "a")], "at rank 0 is a Chunk, not a Candidate"),
        ([Candidate("a text", 0.5)], "at rank 0 is a Candidate, not a Candidate\\(Chunk"),
        ("a text", "the candidates are a str; give a list of Candidate"),
        (None, "the candidates are a NoneType; give a list of Candidate"),
        ([Candidate(Chunk("a", "a"), 0.5), Candidate(Chunk("b", "b"))], "are of the kinds cosine, rank"),
        ([Candidate(Chunk("a", "a"), 0.5), Candidate(Chunk("b", "b"), 7, "score")], "are of the kinds cosine, score"),
    ],
)
def test_candidates_of_another_type(selector, candidates, message):
    with pytest.raises(InputError, match=message):
        selector.select("a?", candidates, 10)


def test_a_similarity_has_a_kind():
    with pytest.raises(InputError, match=r"Candidate.kind is 'bm25'; it must be one of cosine, score, rank"):
        Candidate(Chunk("a", "a"), 0.5, "bm25")


COMPARING = ("similarity-cutoff", "adaptive-k", "car")
TEXTS = ("a cat sat", "a dog ran", "b b b", "one more", "two")


def given_by(kind):
    """The same candidates in the same order, told by falling cosines, BM25 scores, ranks or by the order alone."""
    similarities = {"cosine": (0.9, 0.875, 0.5, 0.375, 0.25), "score": (20, 17, 14, 11, 8), "rank": (1, 2, 3, 4, 5)}
    told = similarities.get(kind, (None,) * 5)
    return [Candidate(Chunk(f"c{n}", text), told[n], kind or "cosine") for n, text in enumerate(TEXTS)]


@pytest.mark.parametrize("kind", ["score", "rank", None])
@pytest.mark.parametrize("name", [name for name in NAMES if name not in (*COMPARING, *PACKING)], indirect=True)
def test_what_only_ranks_needs_no_cosines(selector, kind):
    for budget in (10, 25, 100):
        told, ranked = (selector.select("a?", given_by(one), budget) for one in ("cosine", kind))
        assert (ranked.ids, ranked.text) == (told.ids, told.text)
        given = {one.chunk.id: one.similarity for one in given_by(kind)}
        assert list(ranked.trace.chunk_similarities) == [given[name] for name in ranked.ids]


@pytest.mark.parametrize("kind", ["rank", None])
@pytest.mark.parametrize("name", COMPARING)
def test_what_compares_similarities_computes_them_or_says_what_to_do(name, kind):
    with pytest.raises(InputError, match=r"compares .*, but the candidates are given by rank; .* embedder='minilm'"):
        corag.selector(name).select("a?", given_by(kind), 40)
    vectors = HashEmbedder().embed(["a?", *TEXTS])
    cosines = (vectors[1:] @ vectors[0]).astype(float).tolist()
    told = corag.selector(name, tokens=CHARACTERS).select("a?", offer(*TEXTS, similarities=cosines), 40)
    selector = corag.selector(name, embedder=HashEmbedder(), tokens=CHARACTERS)
    computed = selector.select("a?", given_by(kind), 40)
    assert (computed.ids, computed.value) == (told.ids, pytest.approx(told.value, abs=1e-6))
    # What is given is preferred to what it would compute.
    assert selector.select("a?", given_by("cosine"), 40).value == pytest.approx(
        corag.selector(name, tokens=CHARACTERS).select("a?", given_by("cosine"), 40).value
    )


@pytest.mark.parametrize(
    ("name", "given"),
    [("adaptive-k", {"buffer": 0}), ("car", {}), ("similarity-cutoff", {"relative": True, "minimum": 0.8})],
)
def test_gaps_and_shares_need_no_certain_scale(name, given):
    selector = corag.selector(name, tokens=CHARACTERS, **given)
    cosines = given_by("cosine")
    scores = [Candidate(one.chunk, 20 * one.similarity, "score") for one in cosines]
    assert selector.select("a?", scores, 100).ids == selector.select("a?", cosines, 100).ids


def test_a_cutoff_by_cosine_refuses_other_scales():
    selector = corag.selector("similarity-cutoff")
    with pytest.raises(InputError, match=r"compares cosines from -1 to 1, but the candidates are given by score"):
        selector.select("a?", given_by("score"), 40)
    with pytest.raises(InputError, match=r"are given by cosine with values beyond that"):
        selector.select("a?", offer("a", "b", similarities=[18.0, 7.0]), 40)


@pytest.mark.parametrize("kind", ["score", "rank", None])
@pytest.mark.parametrize("name", PACKING)
def test_what_packs_computes_the_cosines_that_it_is_not_given(name, kind):
    selector = corag.selector(name, embedder=HashEmbedder(), tokens=CHARACTERS)
    vectors = HashEmbedder().embed(["a?", *TEXTS])
    cosines = (vectors[1:] @ vectors[0]).astype(float).tolist()
    told = selector.select("a?", offer(*TEXTS, similarities=cosines), 40)
    assert selector.select("a?", given_by(kind), 40).ids == told.ids


@pytest.mark.parametrize("query", ["", "  ", "\n\t"])
def test_question_must_not_be_empty(selector, query):
    with pytest.raises(InputError, match="the question is empty"):
        selector.select(query, offer("a"), 10)


@pytest.mark.parametrize("budget", [0, -1, True, 2.5, 10.0, math.nan, "10", None])
def test_budget_must_be_a_whole_number_of_at_least_one(selector, budget):
    with pytest.raises(InputError, match="budget_tokens must be a whole number of at least 1, got"):
        selector.select("a?", offer("a"), budget)


def test_budget_from_numpy(selector):
    selection = selector.select("a?", offer("a"), np.int64(10))
    assert type(selection.budget_tokens) is int


@settings(deadline=None, max_examples=20)
@given(order=st.permutations(range(4)), budget=st.integers(1, 60))
def test_flat_similarities_and_unsorted_candidates(selector, order, budget):
    pool = offer("a cat", "a dog and b", "some words more", "b")
    flat = [Candidate(candidate.chunk, 0.5) for candidate in pool]
    for candidates in ([pool[rank] for rank in order], [flat[rank] for rank in order]):
        assert_sound(selector.select("a?", candidates, budget), candidates, budget, CHARACTERS, selector.name)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("name", ["naive", "corag", "upper"])
def test_values_that_cannot_be_ranked(name, value, checkpoint):
    selector = cheap_selector(name, checkpoint, reranker=TableReranker({("c1",): value}), tokens=CHARACTERS)
    with pytest.raises(ScoringError, match=r"reranker 'table' returned (nan|inf) for the chunks 'c1'"):
        selector.select("a?", offer("a", "b", "c"), 10)


class Broken(BudgetedSelector):
    """Chooses what it is told to."""

    name = "broken"

    def __init__(self, order):
        super().__init__(tokens=CHARACTERS)
        self.order = order

    def _choose(self, problem):
        return Choice(self.order, 1.0, {"reason": "told so"})


@pytest.mark.parametrize("order", [(0, 1), (1,), (0, 0)])
def test_broken_selector_never_reaches_the_prompt(order):
    with pytest.raises(BudgetError, match=rf"'broken' chose \[{', '.join(map(str, order))}\] at .* budget of 5"):
        Broken(order).select("a?", offer("a", "bbbbbb"), 5)


def test_selector_that_takes_nothing_says_why():
    assert Broken(()).select("a?", offer("a"), 5).trace.reason == "told so"


def test_top_k_takes_the_most_similar_first():
    pool = offer("aaaa", "bbbb", "cccc", "dddd", similarities=[0.1, 0.9, 0.5, 0.9])
    select = corag.selector("top-k", k=2, tokens=CHARACTERS).select
    assert select("a?", pool, 100).ids == ("c1", "c3")
    assert select("a?", pool, 100).value == pytest.approx(0.9)
    assert select("a?", pool, 9).ids == ("c1",)
    assert corag.selector("top-k", tokens=CHARACTERS).select("a?", pool, 100).ids == ("c1", "c3", "c2", "c0")


@pytest.mark.parametrize("k", [0, -1, 2.5, "3"])
def test_top_k_needs_a_whole_number(k):
    with pytest.raises(InputError, match=r"k (is .*; it )?must be a whole number"):
        corag.selector("top-k", k=k)


def test_naive_takes_the_best_valued_first_and_values_the_combination():
    values = {("c0",): 0.2, ("c1",): 0.9, ("c2",): 0.5, ("c1", "c2", "c0"): 0.7, ("c1", "c0"): 0.6}
    selector = corag.selector("naive", reranker=TableReranker(values), tokens=CHARACTERS)
    everything = selector.select("a?", offer("aaaa", "bbbb", "cccccccc"), 100)
    assert (everything.ids, everything.value) == (("c1", "c2", "c0"), 0.7)
    # What no longer fits is passed over.
    some = selector.select("a?", offer("aaaa", "bbbb", "cccccccc"), 10)
    assert (some.ids, some.value) == (("c1", "c0"), 0.6)


def test_fill():
    costs = np.array([3, 5, 2, 4])
    assert fill([0, 1, 2, 3], costs, 9) == (0, 1)
    assert fill([3, 1, 0, 2], costs, 9) == (3, 1)
    assert fill([1, 3, 0, 2], costs, 8) == (1, 0)
    assert fill([0, 1, 2, 3], costs, 100, limit=3) == (0, 1, 2)
    assert fill([], costs, 9) == fill([0, 1], costs, 1) == ()


def test_a_budget_for_fewer_than_three_candidates_is_a_warning_once(caplog):
    words = CallableCounter(lambda text: len(text.split()))
    selector = corag.selector("top-k", tokens=words)

    def select(num_candidates, budget_tokens):
        texts = [f"{number} of ten words w w w w w w" for number in range(num_candidates)]
        candidates = [Candidate(Chunk(str(number), text), 0.5) for number, text in enumerate(texts)]
        selector.select("what?", candidates, budget_tokens)

    select(9, 30)
    select(2, 29)
    assert caplog.messages == []
    select(3, 29)
    select(9, 29)
    selector.select_many(["what?"], [[]], 29)
    assert len(caplog.messages) == 1
    assert "fewer than three candidates fit together in the budget of 29 tokens" in caplog.messages[0]
    select(9, 1)
    assert len(caplog.messages) == 2

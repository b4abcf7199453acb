"""The contract of selectors for every registered one; what each chooses by, for many questions and of many texts."""

from dataclasses import replace
from itertools import product

import pytest

import corag
from corag import Candidate, Chunk
from corag.errors import BudgetError
from corag.selectors.base import BudgetedSelector, Choice
from corag.selectors.problem import promising
from corag.testing import SelectorContract
from tests.fakes import (
    CHARACTERS,
    WORDS,
    HashEmbedder,
    HashReranker,
    SignEmbedder,
    odd_reader,
    odd_summarizer,
    offer,
    sign_agent,
)

NAMES = [name for name in corag.SELECTORS.names if name != "sentence-threshold"]
"""What that chooses is not among the candidates; see test_simple.py."""


def cheap_selector(name, **given):
    """Any registered selector, of parts that cost next to nothing."""
    offered = {
        "tokenizer": CHARACTERS, "reranker": HashReranker(), "embedder": HashEmbedder(), "reader": odd_reader(),
        "summarizer": odd_summarizer(CHARACTERS), "summary_tokens": 8,
    }  # fmt: skip
    if name == "corag":
        offered |= {"unit": "passage", "cost_weight": 0.03, "agent": "none"}
    elif name == "corag-fixed":
        offered["agent"] = sign_agent()
    return corag.SELECTORS.make(name, defaults=offered | given)


class TestShippedSelectors(SelectorContract):
    @pytest.fixture(params=corag.SELECTORS.names)
    def selector(self, request):
        return cheap_selector(request.param)


COMPARING = ("similarity-cutoff", "adaptive-k", "car")
TEXTS = ("a cat sat", "a dog ran", "b b b", "one more", "two")


def given_by(kind):
    """The same candidates in the same order, told by falling cosines, BM25 scores, ranks or by the order alone."""
    similarities = {"cosine": (0.9, 0.875, 0.5, 0.375, 0.25), "score": (20, 17, 14, 11, 8), "rank": (1, 2, 3, 4, 5)}
    told = similarities.get(kind, (None,) * 5)
    return [Candidate(Chunk(f"c{n}", text), told[n], kind or "cosine") for n, text in enumerate(TEXTS)]


@pytest.mark.parametrize("kind", ["score", None])
@pytest.mark.parametrize("name", [name for name in NAMES if name not in (*COMPARING, "mmr")])
def test_what_only_ranks_needs_no_cosines(name, kind):
    selector = cheap_selector(name)
    for budget in (10, 25):
        told, ranked = (selector.select("a?", given_by(one), budget) for one in ("cosine", kind))
        assert (ranked.ids, ranked.text) == (told.ids, told.text)
        given = {one.chunk.id: one.similarity for one in given_by(kind)}
        assert list(ranked.trace.chunk_similarities) == [given[name] for name in ranked.ids]


@pytest.mark.parametrize("method", ["top-k", "mmr", "naive(reranker=bm25)"])
def test_the_similarity_of_a_sentence_is_that_of_its_passage_as_it_was_given(method):
    offered = offer("A cat sat. It ran.", "A dog sat.", similarities=[0.5, 0.25])
    selection = corag.SELECTORS.make(method, defaults={"unit": "sentence"}).select("A cat?", offered, 40)
    similarities = zip(selection.ids, selection.trace.chunk_similarities, strict=True)
    assert sorted(similarities) == [("c0#0-10", 0.5), ("c0#11-18", 0.5), ("c1", 0.25)]


OTHERS = [*product(COMPARING, ("rank", None)), *product(("similarity-cutoff", "mmr"), ("score",))]
"""Selectors, and kinds of similarities that are of no use to them."""


@pytest.mark.parametrize(("name", "kind"), OTHERS)
def test_what_compares_similarities_computes_them(name, kind):
    vectors = HashEmbedder().embed(["a?", *TEXTS])
    cosines = (vectors[1:] @ vectors[0]).astype(float).tolist()
    selector = corag.selector(name, embedder=HashEmbedder(), tokenizer=CHARACTERS)
    told = selector.select("a?", offer(*TEXTS, similarities=cosines), 40)
    computed = selector.select("a?", given_by(kind), 40)
    assert (computed.ids, computed.value) == (told.ids, pytest.approx(told.value, abs=1e-6))
    # What is given is preferred to what it would compute.
    assert selector.select("a?", given_by("cosine"), 40).value == pytest.approx(
        corag.selector(name, tokenizer=CHARACTERS).select("a?", given_by("cosine"), 40).value
    )


@pytest.mark.parametrize("name", COMPARING)
def test_sentences_are_compared_by_their_own_cosines(name):
    selector = corag.selector(name, embedder=HashEmbedder(), tokenizer=CHARACTERS, unit="sentence")
    selection = selector.select("a?", given_by("score"), 40)
    vectors = HashEmbedder().embed(["a?", *(chunk.text for chunk in selection.chunks)])
    assert selection.value == pytest.approx(float((vectors[1:] @ vectors[0]).mean()), abs=1e-6)


class Broken(BudgetedSelector):
    """Chooses and writes what it is told to."""

    name = "broken"

    def __init__(self, order, text):
        super().__init__(tokenizer=CHARACTERS)
        self.told, self.text = order, text

    def _choose(self, problem):
        return Choice(self.told, 1.0, {"reason": "told so"}, self.text)


@pytest.mark.parametrize(("order", "text"), [((0, 1), None), ((1,), None), ((0, 0), None), ((), "bbbbbb")])
def test_broken_selector_never_reaches_the_prompt(order, text):
    with pytest.raises(BudgetError, match="'broken'"):
        Broken(order, text).select("a?", offer("a", "bbbbbb"), 5)


def test_a_budget_for_fewer_than_three_candidates_is_a_warning_once(caplog):
    selector = corag.selector("top-k", tokenizer=WORDS)
    candidates = offer(*(f"{number} of ten words w w w w w w" for number in range(9)))
    for count, budget_tokens in ((9, 30), (2, 29), (3, 29), (9, 28), (0, 29)):
        selector.select("what?", candidates[:count], budget_tokens)
    assert len(caplog.messages) == 1 and "fewer than three candidates fit" in caplog.messages[0]


def test_questions_are_read_as_selections_are_needed():
    selector = corag.selector("top-k")
    selector.queries_at_once = 3
    read = []
    asked = ((f"Question {number}?", offer(f"{number}")) for number in range(100))
    found = selector.select_each((read.append(pair) or pair for pair in asked), 40)
    assert not read
    next(found)
    assert len(read) == 3
    for _ in range(3):
        next(found)
    assert len(read) == 6


PUMPS = [f"Pump {number} is here. It is number {number} of all." for number in range(5000)]
ASKED = "Where is pump 4711?"


@pytest.mark.slow
@pytest.mark.parametrize("method", ["mmr", "crag", "naive(unit=sentence)"])
def test_of_many_texts_models_read_the_promising(method):
    embedder, reranker = SignEmbedder(), HashReranker()
    selector = corag.SELECTORS.make(method, defaults={"embedder": embedder, "reranker": reranker})
    assert selector.select(ASKED, PUMPS, 64).cost_tokens > 0
    read = {*embedder.embedded, *reranker.asked}
    assert any(PUMPS[4711].startswith(text) for text in read if text)
    assert len({PUMPS.index(text) for text in read if text in PUMPS}) <= 100


@pytest.mark.slow
def test_what_is_promising():
    by_words = promising(ASKED, [corag.Candidate(corag.Chunk(text, text)) for text in PUMPS], 64)
    assert [one.chunk.text for one in by_words] == [PUMPS[4711], *PUMPS[:99]]  # equals stay as they were given
    scored = [replace(one, similarity=-abs(n - 50) / 5000) for n, one in enumerate(by_words)]
    assert promising(ASKED, scored, 64) is scored  # as many as are read
    many = [corag.Candidate(corag.Chunk(str(n), "x"), n / 5000, rank=4999 - n) for n in range(5000)]
    assert promising(ASKED, many, 64) == many[: -128 * 4 - 1 : -1]
    assert promising(ASKED, [replace(one, rank=n) for n, one in enumerate(many)], 64) == [
        replace(one, rank=n) for n, one in enumerate(many[: 128 * 4])
    ]


@pytest.mark.slow
def test_what_no_model_reads_is_not_filtered():
    assert len(corag.selector("full").select(ASKED, PUMPS[:300], 10**6).chunks) == 300
    assert len(corag.select(ASKED, PUMPS[:300], 10**6, method="naive", reranker="bm25").chunks) == 300

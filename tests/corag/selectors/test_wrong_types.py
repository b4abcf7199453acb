"""Plain mistakes in Python: one line that names the value and the rule, from every selector."""

import numpy as np
import pytest

import corag
from corag.errors import CoragError, InputError
from corag.registry import SELECTORS
from corag.types import Candidate, Chunk

TEXTS = ["Varn is an island in the north.", "The lake is 310 metres deep.", "Kell is a village on the river Oro."]
CANDIDATES = [Candidate(Chunk(f"d{number}", text), 0.9 - number / 10) for number, text in enumerate(TEXTS)]
QUICK = ("top-k", "mmr", "adaptive-k", "reorder", "self-route", "naive")


def refusal(call, kind=InputError):
    """Return the one line with which a call is refused."""
    with pytest.raises(kind) as caught:
        call()
    said = str(caught.value)
    assert said and "\n" not in said
    return said


@pytest.mark.parametrize("method", QUICK)
@pytest.mark.parametrize("query", [None, 3, b"q"])
def test_a_question_that_is_no_text(method, query):
    said = refusal(lambda: corag.selector(method).select(query, CANDIDATES, 100))
    assert said.startswith(f"the question is {query!r}")
    assert refusal(lambda: corag.select(query, TEXTS, 100, method=method)) == said


@pytest.mark.parametrize("method", QUICK)
@pytest.mark.parametrize("similarity", ["0.5", [1], 1 + 2j, float("nan"), float("inf")])
def test_a_similarity_that_is_no_number(method, similarity):
    given = [Candidate(Chunk("a", "A text"), similarity), *CANDIDATES]
    said = refusal(lambda: corag.selector(method).select("q", given, 100))
    assert f"candidate 'a' at rank 0 has similarity {similarity!r}" in said


@pytest.mark.parametrize("similarity", [None, np.float32(0.5), np.int64(1)])
def test_similarities_that_are_given_or_not(similarity):
    given = [Candidate(Chunk(name, f"{name} text"), similarity) for name in "ab"]
    assert len(corag.selector("top-k").select("q", given, 100)) == 2


@pytest.mark.parametrize("method", QUICK)
@pytest.mark.parametrize(
    "given", [TEXTS, [("a", "text")], [{"text": "x"}], [CANDIDATES[0].chunk], [None], None, "text", 3]
)
def test_what_is_no_candidate(method, given):
    said = refusal(lambda: corag.selector(method).select("q", given, 100))
    assert "Candidate(Chunk(id, text), similarity)" in said and "corag.select, which takes strings" in said


def test_what_select_takes():
    for texts in (TEXTS, [{"text": text} for text in TEXTS], [one.chunk for one in CANDIDATES], CANDIDATES):
        assert len(corag.select("q", texts, 100, method="top-k")) == 3
    assert "texts[0] is a tuple; give strings" in refusal(lambda: corag.select("q", [("a", "text")], 100))


@pytest.mark.parametrize(("queries", "candidates"), [(None, [CANDIDATES]), ("ab", [CANDIDATES] * 2), (["q"], None)])
def test_lists_that_are_none(queries, candidates):
    assert "give a list" in refusal(lambda: corag.selector("top-k").select_many(queries, candidates, 100))


@pytest.mark.parametrize("method", [name for name in SELECTORS.names if name not in ("corag-fixed", "raptor")])
@pytest.mark.parametrize("budget", [None, "100", 0, 1.5, True, 10**12 + 1, 2**53 + 1, 2**64, 10**30, float("inf")])
def test_a_budget_that_cannot_be(method, budget):
    said = refusal(lambda: corag.selector(method).select("q", CANDIDATES, budget))
    assert said.startswith("budget_tokens must be") and repr(budget) in said


@pytest.mark.parametrize("method", ["top-k", "corag", "upper", "mmr"])
def test_the_largest_budget(method):
    assert 1 <= len(corag.selector(method).select("How deep is it?", CANDIDATES, 10**12)) <= 3


@pytest.mark.parametrize(
    ("build", "start"),
    [
        (lambda: Chunk(None, "x"), "Chunk.id is None"),
        (lambda: Chunk(3, "x"), "Chunk.id is 3"),
        (lambda: Chunk("a", None), "Chunk.text is None"),
        (lambda: Chunk("a", b"x"), "Chunk.text is b'x'"),
        (lambda: Candidate(Chunk("a", "x"), rank="first"), "Candidate.rank must be a whole number"),
    ],
)
def test_chunks_and_candidates_of_wrong_types(build, start):
    assert refusal(build).startswith(start)


SETTINGS = [
    ("similarity-cutoff", {"minimum": float("nan")}, "minimum must be from -1 to 1, got nan"),
    ("similarity-cutoff", {"minimum": "x"}, "minimum"),
    ("mmr", {"relevance_weight": "x"}, "relevance_weight"),
    ("mmr", {"relevance_weight": None}, "relevance_weight"),
    ("mmr", {"embedder": 3}, "embedder"),
    ("mmr", {"embedder": None}, "embedder"),
    ("adagres", {"beta": "x"}, "beta"),
    ("adagres", {"beta": -0.1}, "beta must be from 0 to 1000, got -0.1"),
    ("adagres", {"variant": ["a"]}, "variant is ['a']"),
    ("submodular", {"coverage": float("nan")}, "coverage must be from 0 to 1000, got nan"),
    ("submodular", {"diversity": None}, "diversity"),
    ("submodular", {"saturation": 0}, "saturation must be from 1e-06 to 1, got 0"),
    ("submodular", {"embedder": 3}, "embedder"),
    ("adaptive-k", {"head": "x"}, "head"),
    ("adaptive-k", {"tail": None}, "tail"),
    ("adaptive-k", {"strategy": ["a"]}, "strategy is ['a']"),
    ("adaptive-k", {"embedder": 3}, "3 is no embedder"),
    ("self-route", {"reader": 3}, "reader"),
    ("self-route", {"reader": CANDIDATES[0]}, "no reader: it has no name or no method answer"),
    ("self-route", {"part": 3}, "selector"),
    ("self-route", {"full": None}, "full"),
    ("self-route", {"min_confidence": "x"}, "min_confidence"),
    ("self-route", {"min_confidence": float("nan")}, "min_confidence"),
    ("reorder", {"selector": 3}, "selector"),
    ("reorder", {"selector": None}, "selector"),
    ("reorder", {"by": ["x"]}, "by is ['x']"),
    ("top-k", {"tokens": 3}, "tokenizer"),
    ("crag", {"summarizer": 3}, "summarizer"),
    ("crag", {"store": 3}, "store"),
    ("crag", {"seed": -1}, "seed must be a whole number of at least 0, got -1"),
    ("crag", {"seed": 2**32}, "seed must be at most 4294967295, got 4294967296"),
    ("edc2", {"seed": -1}, "seed"),
    ("car", {"seed": -1}, "seed"),
    ("naive", {"reranker": 3}, "reranker"),
    ("corag", {"reranker": 3}, "reranker"),
    ("corag", {"agent": 3}, "agent"),
    ("corag", {"embedder": 3}, "embedder"),
    ("corag", {"exploration": "x"}, "exploration"),
]


@pytest.mark.parametrize(("method", "settings", "part"), SETTINGS, ids=[f"{one[0]}-{one[1]}"[:40] for one in SETTINGS])
def test_settings_of_wrong_types(method, settings, part):
    build = SELECTORS.builder(method)
    for call in (lambda: build(**settings), lambda: corag.selector(method, **settings)):
        assert part in (said := refusal(call, CoragError)) or next(iter(settings)) in said


def test_errors_of_libraries_are_quoted_in_one_line():
    assert str(InputError("it fails; try again: first\n  second\n\nthird")) == "it fails; try again: first second third"

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import corag
from corag.errors import InputError
from corag.selectors.corag.features import (
    LOWEST_LOG_BUDGET,
    TEXTS,
    feature_dim,
    feature_vectors,
    question_vectors,
    text_statistics,
)
from corag.selectors.problem import SelectionProblem
from corag.types import Candidate, Chunk
from tests.fakes import HashEmbedder

TOKENS = corag.tokens("estimate")


def statistics(query, texts, similarities, budget=256, title=""):
    candidates = [
        Candidate(Chunk(str(row), text, {"title": title} if title else {}), similarity)
        for row, (text, similarity) in enumerate(zip(texts, similarities, strict=True))
    ]
    found = text_statistics(SelectionProblem(query, candidates, TOKENS, budget), similarities)
    assert found.shape == (len(TEXTS),) and found.dtype == np.float32
    return dict(zip(TEXTS, found.tolist(), strict=True))


def test_texts_worked_by_hand():
    # In all texts of one kind: "moon" is in the second only, and in its second sentence.
    texts = ["The sun is big. It shines.", "Rocks are old. The moon is old.", "- milk\n- eggs", "Cats sleep."]
    found = statistics("How old is the moon?", texts, [0.9, 0.5, 0.4, 0.1], budget=10**6)
    assert found["best_sentence"] > 0.7
    # By words the second passage, then the first ("is", "the"), then the others, which share nothing.
    assert found["passages_top3"] == 3 / 4
    assert found["passages_correlation"] == pytest.approx(np.corrcoef([3, 2, 1, 0], [2, 3, 0.5, 0.5])[0, 1])
    assert found["sentences_correlation"] == found["passages_correlation"]
    assert found["cosine_peak"] == pytest.approx(0.9 - 1.9 / 4)
    assert found["list_items"] == pytest.approx(2 / 7)
    assert found["table_rows"] == found["digits"] == found["titled"] == 0
    assert found["sentences_per_passage"] == pytest.approx(math.log(1 + 7 / 4) / 10)
    assert found["log_budget"] == 0 and found["how_many"] == 1
    assert found["how"] == found["who"] == found["yes_no"] == found["and"] == 0


TEXT = st.text(st.sampled_from("ab .?!|-\n\t1{é水"), max_size=40)


@given(
    st.text(max_size=30),
    st.lists(
        st.tuples(TEXT, st.sampled_from([-1.0, 0.0, 0.3, 0.3001, 1.0005])), max_size=8, unique_by=lambda row: row[0]
    ),
    st.integers(1, 10**9),
    st.randoms(use_true_random=False),
)
def test_texts_are_bounded_and_the_order_of_equal_passages_does_not_matter(query, rows, budget, random):
    found = statistics(query, [text for text, _ in rows], [value for _, value in rows], budget=budget)
    assert all(LOWEST_LOG_BUDGET <= value <= 1 for value in found.values())
    shuffled = random.sample(rows, len(rows))
    other = statistics(query, [text for text, _ in shuffled], [value for _, value in shuffled], budget=budget)
    assert other == pytest.approx(found, abs=1e-5)


def test_passages_with_cosines_are_not_embedded():
    for similarities, embedded in (([0.9, 0.5], 1), ([None, None], 3)):
        embedder = HashEmbedder()
        candidates = [Candidate(Chunk(str(row), f"text {row}"), value) for row, value in enumerate(similarities)]
        question_vectors([SelectionProblem("Which?", candidates, TOKENS, 9)], embedder, ("texts", "curve"))
        assert embedder.num_embedded == embedded


def test_texts_are_part_of_an_agents_features():
    candidates = [Candidate(Chunk(text, text)) for text in ("Alpha is a letter.", "Beta is the next.")]
    recipe = ("texts", "query")
    vectors = question_vectors([SelectionProblem("Which letter?", candidates, TOKENS, 9)], HashEmbedder(), recipe)
    [row] = feature_vectors(recipe, *zip(*vectors, strict=True))
    assert row.shape == (feature_dim(("texts", "query"), 8),)
    # "letter" is in one of two sentences, "which" in none: weights log 2 and log 3.
    assert row[TEXTS.index("best_sentence")] == pytest.approx(math.log(2) / math.log(6))
    with pytest.raises(InputError):
        feature_vectors(("texts",), np.zeros((1, 3)), np.zeros((1, 3)), [[0.5]])

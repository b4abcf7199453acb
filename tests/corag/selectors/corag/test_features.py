import numpy as np
import pytest

import corag
from corag.selectors.corag.features import CURVE, curve_statistics, question_vectors
from corag.selectors.problem import SelectionProblem
from corag.types import Candidate, Chunk
from tests.fakes import AskingEmbedder, HashEmbedder

TOKENS = corag.tokens("estimate")


def test_a_curve_worked_by_hand():
    found = dict(zip(CURVE, curve_statistics([0.1, 0.9, 0.85, 0.5]).tolist(), strict=True))
    at_ranks = [found[f"similarity_{rank}"] for rank in (1, 2, 3, 5, 20)]
    assert at_ranks == pytest.approx([0.9, 0.85, 0.5, 0.1, 0.1])
    assert (found["mean"], found["largest_gap"]) == pytest.approx((0.5875, 0.4))
    # The largest gap is behind the third of four; two are within 0.1 of the best.
    assert (found["place_of_largest_gap"], found["share_near"]) == pytest.approx((0.5, 0.5))
    assert found["log_count"] == pytest.approx(np.log(5) / 10)
    assert not curve_statistics([]).any()


def test_passages_with_cosines_are_not_embedded():
    for similarities, embedded in (([0.9, 0.5], 1), ([None, None], 3)):
        embedder = HashEmbedder()
        candidates = [Candidate(Chunk(str(row), f"text {row}"), value) for row, value in enumerate(similarities)]
        question_vectors([SelectionProblem("Which?", candidates, TOKENS, 9)], embedder, ("query", "curve"))
        assert embedder.num_embedded == embedded


def test_questions_are_embedded_as_for_retrieval():
    embedder, texts = AskingEmbedder(), ["text 0", "text 1", "text 2"]
    [question] = embedder.embed_queries(["Which?"])
    candidates = [Candidate(Chunk(text, text)) for text in texts]
    [vectors] = question_vectors([SelectionProblem("Which?", candidates, TOKENS, 9)], embedder)
    np.testing.assert_array_equal(vectors.query, question)
    np.testing.assert_allclose(vectors.similarities, embedder.embed(texts) @ question, rtol=1e-6)
    # So do selectors that compare candidates without similarities, alone as in `corag.select`.
    selector = corag.selector("similarity-cutoff", embedder=embedder, minimum=-1, tokenizer=TOKENS)
    selections = selector.select("Which?", texts, 99), corag.select("Which?", texts, 99, method=selector)
    for selection in selections:
        assert selection.value == pytest.approx(float((embedder.embed(texts) @ question).mean()))

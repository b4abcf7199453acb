"""The reranker as a whole: what search and selectors rely on, and what adapters it takes."""

import numpy as np
import pytest

from corag.errors import ModelError
from corag.models.trained import AdapterConfig, load_adapter, save_adapter
from corag.rerankers.evidence.reranker import FORM, EvidenceParts, EvidenceReranker
from corag.rerankers.evidence.values import Weights
from corag.types import Chunk
from tests.corag.rerankers.evidence_worlds import WordEncoder, linear_parts

QUESTION = "When was the maker of Sky Ark born?"
TEXTS = [
    "Sky Ark\nSky Ark was made by Ann Lee.",
    "Rome\nRome is a city.",
    "Ann Lee\nAnn Lee was born in 1950.",
    "Blue\nBlue is the sky.",
]
CHUNKS = [Chunk(str(row), text) for row, text in enumerate(TEXTS)]
WEIGHTS = Weights(sequence=0.02)


def reranker_of(**settings):
    given = {"bias": -3.0, "maxsim": 6.0, "link": 8.0, "reading_order": {"link": 2.0}, "weights": WEIGHTS}
    return EvidenceReranker(adapter=linear_parts(**{**given, **settings}), encoder=WordEncoder())


@pytest.fixture
def adapter(tmp_path):
    """A valid adapter folder."""
    parts = linear_parts(maxsim=1.0, reading_order={"link": 2.0})
    save_adapter(tmp_path / "toy", parts.tensors(), AdapterConfig("toy", FORM, parts.settings()), "a card")
    return tmp_path / "toy"


def test_it_prefers_the_pair_that_answers_over_one_of_it_and_over_distractors():
    scorer = reranker_of().scorer(QUESTION, CHUNKS)
    values = dict(zip(orders := [(0, 2), (0,), (2,), (1, 3), (0, 1), (0, 2, 1)], scorer(orders), strict=True))
    # A distractor costs nothing here: tokens have one price, in the search.
    assert values[(0, 2, 1)] >= values[(0, 2)] > max(values[(0, 1)], values[(0,)], values[(2,)]) > values[(1, 3)]


def test_an_adapter_holds_what_was_saved(adapter):
    parts = EvidenceParts.load(adapter)
    assert parts.name == EvidenceReranker(adapter=adapter).name == "toy"
    assert parts.max_size == 2
    given = linear_parts(maxsim=1.0, reading_order={"link": 2.0})
    np.testing.assert_array_equal(parts.network.linear, given.network.linear)
    np.testing.assert_array_equal(parts.reading_order, given.reading_order)
    assert parts.weights == given.weights


@pytest.mark.parametrize(("tensor", "value"), [("mean", np.zeros(3)), ("output", None), ("rarity", np.zeros(7))])
def test_tensors_of_another_release_are_refused(adapter, tmp_path, tensor, value):
    whole = load_adapter(adapter)
    tensors = {name: held for name, held in {**whole.tensors, tensor: value}.items() if held is not None}
    save_adapter(tmp_path / "other", tensors, whole.config, "")
    with pytest.raises(ModelError, match="other"):
        EvidenceParts.load(tmp_path / "other")

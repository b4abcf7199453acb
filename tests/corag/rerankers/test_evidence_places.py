"""What is known of a sentence besides its words: its passage, and where it stands there."""

from dataclasses import replace

import numpy as np
import pytest

from corag.rerankers.evidence.hypotheses import NUM_FEATURES, NUM_WITHOUT_PLACES, features
from corag.rerankers.evidence.passages import PassageReader
from corag.rerankers.evidence.reranker import VOCABULARY
from corag.rerankers.evidence.signals import UNIT_PAIRS, UNIT_SINGLES, Places, places, read_question
from corag.text.units import Unit, units
from corag.types import Chunk
from tests.corag.rerankers.evidence_worlds import WordEncoder, signals_of

ORWELL = Chunk("a", "Orwell\nOrwell wrote novels. He was born in 1903. Motihari was his town.", {"title": "Orwell"})
RIVER = Chunk("b", "River\nA river in Asia flows.", {"title": "River"})


def known(question, chunks):
    encoder = WordEncoder()
    read = PassageReader(encoder)
    asked = read_question(encoder, question, np.ones(VOCABULARY))
    return places(asked, chunks, *read.with_sources(chunks))


def column(found, name):
    return found.singles[:, UNIT_SINGLES.index(name)].tolist()


@pytest.fixture
def sentences():
    return [*units(ORWELL, Unit(1)), *units(RIVER, Unit(1))]


def test_a_sentence_knows_its_passage(sentences):
    found = known("When was Orwell born?", sentences)
    assert column(found, "is_unit") == [1, 1, 1, 1]
    cosines = column(found, "source_cosine")
    assert cosines[0] == cosines[1] == cosines[2] > cosines[3] == 0
    assert column(found, "source_rank") == [0, 0, 0, 0.1]
    # Of the four words of the question the passage of Orwell holds "was", "orwell" and "born".
    assert column(found, "source_maxsim") == pytest.approx([0.75, 0.75, 0.75, 0])
    assert column(found, "opens") == [1, 0, 0, 1]
    assert column(found, "place") == pytest.approx([0, 21 / 65, 42 / 65, 0], abs=0.05)


def test_a_sentence_that_points_back_follows_another(sentences):
    found = known("When was Orwell born?", sentences)
    assert column(found, "refers") == [0, 1, 0, 0]
    same, following, refers_to = (found.pairs[:, :, UNIT_PAIRS.index(name)] for name in UNIT_PAIRS)
    assert [tuple(row) for row in np.argwhere(following)] == [(0, 1), (1, 2)]
    assert [tuple(row) for row in np.argwhere(refers_to)] == [(0, 1)]
    assert same[:3, :3].sum() == 6
    assert not same[3].any()
    assert not np.diagonal(found.pairs).any()


@pytest.mark.parametrize(
    ("question", "numbers", "names"),
    [
        ("When was Orwell born?", [-1, 1, -1, -1], [0, 0, 0, 0]),
        ("Who was Orwell?", [0, 0, 0, 0], [-1, 1, 1, 1]),
        ("Why?", [0, 0, 0, 0], [0, 0, 0, 0]),
    ],
)
def test_a_sentence_may_hold_what_a_question_wants(sentences, question, numbers, names):
    found = known(question, sentences)
    assert column(found, "number") == numbers
    assert column(found, "name") == names


def test_sets_are_described_by_places():
    rng = np.random.default_rng(0)
    of_units = Places(rng.random((4, len(UNIT_SINGLES))), rng.random((4, 4, len(UNIT_PAIRS))))
    (row,) = features(replace(signals_of(4), places=of_units), np.array([[0, 2]]))
    assert len(row) == NUM_FEATURES
    rest = row[NUM_WITHOUT_PLACES:]
    width = len(UNIT_SINGLES)
    both = of_units.singles[[0, 2]]
    np.testing.assert_allclose(rest[: 3 * width], np.concatenate([both.mean(0), both.min(0), both.max(0)]))
    either = np.maximum(of_units.pairs[0, 2], of_units.pairs[2, 0])
    np.testing.assert_allclose(rest[3 * width :], np.tile(either, 3))

"""What passages and signals say, worked out by hand in a world where every word is a direction of its own."""

import numpy as np
import pytest

from corag.rerankers.evidence.passages import PassageReader, split_title
from corag.rerankers.evidence.signals import (
    FLAGS,
    PAIRS,
    SINGLES,
    UNIT_SINGLES,
    places,
    read_question,
    signals,
)  # fmt: skip
from corag.text.units import Unit, units
from corag.types import Chunk
from tests.corag.rerankers.evidence_worlds import WordEncoder

RARITY = np.ones(30522)


def described(question, texts, rarity=RARITY, encoder=None):
    encoder = encoder or WordEncoder()
    return signals(read_question(encoder, question, rarity), PassageReader(encoder)(texts))


def single(found, name, row=0):
    return found.singles[row, SINGLES.index(name)]


def pair(found, name, first=0, second=1):
    return found.pairs[first, second, PAIRS.index(name)]


@pytest.mark.parametrize(
    ("text", "title", "start"),
    [
        ("Berlin (city) \nIt is big.", "Berlin (city)", 15),
        ("One line alone", "", 0),
        ("A sentence ends here.\nAnother begins.", "", 0),
        ("Title\n  ", "", 0),
        ("x" * 151 + "\nbody", "", 0),
    ],
)
def test_the_title_is_a_short_first_line_that_is_no_sentence(text, title, start):
    assert split_title(text) == (title, start)


def test_figures_of_a_chunk_by_hand():
    # Question: 4 words. Title: 1 word. Body: two sentences of 2 and 3 words.
    found = described("who made sky ark", ["Ark\nAnn made. Birds like sky."])
    assert single(found, "cosine") == pytest.approx(3 / np.sqrt(4 * 6))  # made, ark, sky of 4 and 6 words
    assert single(found, "sentence") == pytest.approx(1 / np.sqrt(4 * 2))
    assert single(found, "two_sentences") == pytest.approx((1 / np.sqrt(8) + 1 / np.sqrt(12)) / 2)
    assert single(found, "title") == pytest.approx(1 / 2)
    assert single(found, "maxsim") == pytest.approx(3 / 4)
    assert single(found, "lexical") == pytest.approx(3 / 4)
    assert single(found, "named") == 1
    assert single(found, "title_words") == 1
    assert single(found, "title_tokens") == 1
    assert single(found, "length") == pytest.approx(6 / 128)
    assert single(found, "untitled") == 0
    assert single(found, "sentences") == pytest.approx(2 / 5)


def test_links_and_bridges_by_hand():
    texts = ["Sky Ark\nIt was made by Ann Lee.", "Ann Lee\nBorn in 1950.", "Ann Ray\nA cook."]
    found = described("when was the maker of sky ark born", texts)
    assert pair(found, "link") == 1
    assert pair(found, "link", 1, 0) == 0
    assert pair(found, "new_link") == 1  # the question does not name Ann Lee
    assert pair(found, "link_words", 0, 2) == pytest.approx(1 / 2)
    assert pair(found, "link", 0, 2) == 0
    assert pair(found, "link_tokens", 0, 2) == pytest.approx(1 / 2)
    # The sentence "it was made by ann lee" (6 words, one in the question) to the title of two words.
    assert pair(found, "bridge_title") == pytest.approx(2 / np.sqrt(6 * 2))
    assert pair(found, "names") == 1.0  # "ann lee" stands in these two alone
    assert pair(found, "names", 0, 2) == 0.0
    assert single(found, "named") == 1
    np.testing.assert_array_equal(found.flags[[FLAGS.index("names_one"), FLAGS.index("names_many")]], [1, 0])


def test_what_two_chunks_cover_together_by_hand():
    found = described("a b c d", ["a b", "c", "a"])
    assert pair(found, "gain") == pytest.approx(1 / 4)  # 3 of 4 together, 2 of 4 alone
    assert pair(found, "lexical_gain", 0, 2) == pytest.approx(0)
    assert pair(found, "rest") == pytest.approx(1 / 2)  # c and d are left, of which the second covers one
    assert pair(found, "similar", 0, 2) == pytest.approx(1 / np.sqrt(2))
    # The question less its part along "a b" is c + d; the second chunk is c.
    assert pair(found, "rest_vector") == pytest.approx(1 / np.sqrt(2))
    np.testing.assert_array_equal(found.pairs[np.arange(3), np.arange(3)], 0)


def test_texts_and_questions_without_words_have_no_figures():
    found = described("a b", ["", "a", " \n "])
    np.testing.assert_array_equal(found.singles[[0, 2]][:, : SINGLES.index("rank")], 0)
    np.testing.assert_array_equal(found.pairs[[0, 2]], 0)
    assert np.isfinite(found.pairs).all()
    blank = described("?!", ["a b", "T\nc"])
    assert np.isfinite(blank.singles).all()
    assert np.isfinite(blank.pairs).all()
    assert blank.nearest.shape == (2, 0)


# --- Units: their passages, and where they stand there ---

ORWELL = Chunk("a", "Orwell\nOrwell wrote novels. He was born in 1903. Motihari was his town.", {"title": "Orwell"})
RIVER = Chunk("b", "River\nA river in Asia flows.", {"title": "River"})


def known(question, chunks):
    encoder = WordEncoder()
    read = PassageReader(encoder)
    asked = read_question(encoder, question, RARITY)
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

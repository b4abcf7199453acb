"""The evidence reranker where every word is a direction of its own: links and values by hand, hypotheses.

Its other figures are held by the golden selections, of which each changes some.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag.rerankers.evidence.reranker import (
    EvidenceScorer,
    Hypotheses,
    Weights,
    weigh,
)
from corag.rerankers.evidence.signals import (
    FLAGS,
    PAIRS,
    SINGLES,
    PassageReader,
    read_question,
    signals,
    split_title,
)
from corag.types import Chunk
from tests.corag.rerankers.evidence_worlds import WordEncoder, signals_of


def described(question, texts):
    encoder = WordEncoder()
    chunks = [Chunk("text", text) for text in texts]
    return signals(read_question(encoder, question), PassageReader(encoder)(chunks), np.ones(30522))


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
    assert single(found, "named") == 1
    np.testing.assert_array_equal(found.flags[[FLAGS.index("names_one"), FLAGS.index("names_many")]], [1, 0])


@pytest.mark.parametrize(
    ("num_candidates", "max_size", "expected"),
    # Of thirty, pairs with one of the 24 strongest: all 435 but the 15 among the six others.
    [(0, 4, 1), (1, 4, 2), (3, 1, 4), (3, 4, 8), (5, 2, 16), (6, 4, 57), (30, 2, 1 + 30 + 420)],
)
def test_all_sets_up_to_the_size_are_hypotheses(num_candidates, max_size, expected):
    found = weigh(signals_of(num_candidates), max_size, lambda table: 5 * table[:, SINGLES.index("cosine")])
    assert len(found.sets) == len(set(found.sets)) == len(found.logits) == expected
    assert found.sets[0] == ()
    assert found.logits[0] == 0
    assert all(tuple(sorted(chosen)) == chosen for chosen in found.sets)
    for chosen, members in zip(found.sets, found.members, strict=True):
        assert tuple(np.flatnonzero(members)) == chosen


WEIGHTS = Weights(temperature=1.0, share=0.5, slope=2.0, offset=-1.0)


def scorer_of(probabilities, num_candidates):
    """A scorer with these probabilities of sets, the empty set among them."""
    members = np.array([[index in chosen for index in range(num_candidates)] for chosen in probabilities])
    logits = np.log(np.array(list(probabilities.values())))
    return EvidenceScorer(
        Hypotheses(members.reshape(len(probabilities), num_candidates), logits),
        np.full(num_candidates, 256.0),
        WEIGHTS,
        np.zeros(num_candidates, dtype=bool),
    )


def test_values_by_hand():
    # If the evidence is there (8 in 10), it is {0, 1} with 3/4 and {2} with 1/4.
    scorer = scorer_of({(): 0.2, (0, 1): 0.6, (2,): 0.2}, 3)
    assert scorer.answerable == pytest.approx(0.8)
    np.testing.assert_allclose(scorer.shares, [3 / 8, 3 / 8, 1 / 4])
    np.testing.assert_allclose(scorer.complete([(0,), (0, 1), (2,), (2, 1, 0), ()]), [0, 3 / 4, 1 / 4, 1, 0])
    values = scorer([(0,), (0, 1), (2,), (0, 1, 2)])
    utilities = (np.log(values / (1 - values)) - WEIGHTS.offset) / WEIGHTS.slope
    np.testing.assert_allclose(utilities, 0.8 * np.array([3 / 16, 3 / 4 + 3 / 8, 1 / 4 + 1 / 8, 1 + 1 / 2]))


@given(st.integers(0, 150), st.data())
def test_the_probability_that_an_order_is_complete_is_that_of_the_sets_it_holds(num_candidates, data):
    index = st.integers(0, max(0, num_candidates - 1))
    sets = st.frozensets(index, min_size=1, max_size=5) if num_candidates else st.nothing()
    found = data.draw(st.lists(sets, unique=True, max_size=6) if num_candidates else st.just([]))
    scorer = scorer_of(
        {(): 0.5, **{tuple(sorted(one)): 0.1 * (row + 1) for row, one in enumerate(found)}}, num_candidates
    )
    orders = data.draw(st.lists(st.lists(index, unique=True, max_size=8).map(tuple), max_size=5)) if found else [()]
    total = sum(0.1 * (row + 1) for row in range(len(found))) or 1.0
    expected = [sum(0.1 * (row + 1) for row, one in enumerate(found) if one <= {*order}) / total for order in orders]
    np.testing.assert_allclose(scorer.complete(orders), expected, atol=1e-12)

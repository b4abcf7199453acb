"""The evidence reranker where every word is a direction of its own: titles and links by hand, hypotheses.

Its other figures are held by the golden selections, of which each changes some.
"""

import numpy as np
import pytest

from corag.rerankers.evidence.reranker import weigh
from corag.rerankers.evidence.signals import FLAGS, PAIRS, SINGLES, PassageReader, signals, split_title
from corag.types import Chunk
from tests.corag.rerankers.evidence_worlds import WordEncoder, signals_of


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
    encoder, chunks = WordEncoder(), [Chunk("text", text) for text in texts]
    question = "when was the maker of sky ark born"
    found = signals(question, encoder.question(question), PassageReader(encoder)(chunks), np.ones(30522))
    assert pair(found, "link") == 1
    assert pair(found, "link", 1, 0) == 0
    assert pair(found, "new_link") == 1  # the question does not name Ann Lee
    assert pair(found, "link_words", 0, 2) == pytest.approx(1 / 2)
    assert pair(found, "link", 0, 2) == 0
    assert pair(found, "link_tokens", 0, 2) == pytest.approx(1 / 2)
    # The sentence "it was made by ann lee" (6 words, one in the question) to the title of two words.
    assert pair(found, "bridge_title") == pytest.approx(2 / np.sqrt(6 * 2))
    assert found.singles[0, SINGLES.index("named")] == 1
    np.testing.assert_array_equal(found.flags[[FLAGS.index("names_one"), FLAGS.index("names_many")]], [1, 0])


@pytest.mark.parametrize(
    ("num_candidates", "max_size", "expected"),
    # Of thirty, pairs with one of the 24 strongest: all 435 but the 15 among the six others.
    [(0, 4, 1), (1, 4, 2), (3, 1, 4), (3, 4, 8), (5, 2, 16), (6, 4, 57), (30, 2, 1 + 30 + 420)],
)
def test_all_sets_up_to_the_size_are_hypotheses(num_candidates, max_size, expected, monkeypatch):
    monkeypatch.setattr("corag.rerankers.evidence.reranker.MAX_SIZE", max_size)
    found = weigh(signals_of(num_candidates), lambda table: 5 * table[:, SINGLES.index("cosine")])
    assert len(found.sets) == len(set(found.sets)) == len(found.logits) == expected
    assert found.sets[0] == ()
    assert found.logits[0] == 0
    assert all(tuple(sorted(chosen)) == chosen for chosen in found.sets)
    for chosen, members in zip(found.sets, found.members, strict=True):
        assert tuple(np.flatnonzero(members)) == chosen

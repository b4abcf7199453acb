"""The fused value: probabilities from signals, and the share of the evidence that a combination is expected to hold."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import corag
from corag import Chunk
from corag.errors import InputError, ScoringError
from corag.rerankers import fused
from corag.rerankers.fused import (
    Fused,
    FusedScorer,
    FusedWeights,
    features,
    likeness_of,
    links_of,
    near_equal,
    passed_on,
    sentence_features,
)
from corag.text.units import SENTENCE, units
from tests.fakes import HashReranker

QUESTION = "How high is Everest?"
PASSAGES = [
    Chunk("a", "Mount Everest is 8,849 metres high. It lies on a border. Snow covers it."),
    Chunk("b", "Bananas are yellow. They grow in warm countries."),
    Chunk("c", "K2 is the second-highest mountain. It has steep walls."),
]


def test_a_combination_is_worth_its_share_and_repeated_texts_count_once():
    score = FusedScorer(np.array([0.6, 0.5, 0.2, 0.0]), np.array([0, 0, 1, 2]))
    # All that there is: .6 for the two that repeat each other, .2, and 0.
    values = score([(0,), (1,), (0, 1), (2,), (2, 0), (3,), (0, 1, 2, 3)])
    np.testing.assert_allclose(values, [0.75, 0.75, 0.75, 0.25, 1.0, 0.0, 1.0])
    assert FusedScorer(np.zeros(2), np.array([0, 1]))([(0,), (0, 1)]).tolist() == [0.0, 0.0]


def test_of_two_probable_texts_the_second_is_the_one_that_covers_another_part_of_the_question():
    maxima = np.array([[0.9, 0.1], [0.9, 0.1], [0.1, 0.6]])
    score = FusedScorer(np.array([0.5, 0.5, 0.5]), np.array([0, 1, 2]), maxima=maxima)
    # Half of the question is covered by the first, and nothing more by the second; the third covers the other half.
    one, same, other = (1 / 3 + 0.3 / 2, 2 / 3 + 0.3 / 2, 2 / 3 + 0.3)
    np.testing.assert_allclose(score([(0,), (0, 1), (0, 2), (0, 1, 2)]), [one / 1.3, same / 1.3, other / 1.3, 1.0])
    # What cannot be evidence covers nothing.
    none = FusedScorer(np.array([0.5, 0.0]), np.array([0, 1]), maxima=np.array([[0.1], [0.9]]))
    np.testing.assert_allclose(none([(1,), (0,)]), [0.0, 1 / 1.3])


ROWS = st.tuples(st.floats(0, 1), st.integers(0, 3), st.tuples(st.floats(0, 1), st.floats(0, 1)))


@given(st.lists(ROWS, min_size=1, max_size=6), st.floats(0.5, 4), st.randoms())
def test_more_is_never_worth_less_and_order_does_not_matter(rows, sharpness, draw):
    _, groups = np.unique([group for _, group, _ in rows], return_inverse=True)
    maxima = np.array([of for *_, of in rows])
    score = FusedScorer(np.array([value for value, *_ in rows]), groups, sharpness, maxima)
    order = draw.sample(range(len(rows)), len(rows))
    values = score([tuple(order[:length]) for length in range(1, len(rows) + 1)])
    assert (np.diff(values) >= -1e-12).all() and (values <= 1 + 1e-12).all()
    assert score([tuple(order)])[0] == score([tuple(order[::-1])])[0]


def test_another_encoder_is_refused():
    for name in ("fused", "minilm-evidence"):
        with pytest.raises(InputError, match="trained on the states of all-MiniLM-L6-v2"):
            corag.reranker(name, encoder="e5")


def test_texts_repeat_each_other_by_their_words():
    body = "one two three four five six seven eight nine ten eleven twelve"
    assert near_equal([body, f"{body} more", "another text", body.upper(), ""]).tolist() == [0, 0, 1, 0, 2]
    assert near_equal([f"{body} at 10.0.0.7", f"{body} at 10.0.0.77", f"{body} at 10.0.0.7"]).tolist() == [0, 1, 0]


def test_a_signal_counts_for_the_passage_and_as_the_mean_of_those_that_are_like_it():
    alike = np.array([[0, 0, 0.5], [0, 0, 0], [0.5, 0, 0]])
    high = 3 / np.sqrt(6)  # of 0, 2 and 4, standardised
    expected = [[-high, high, np.log(2.1)], [0, 0, np.log(2.1)], [high, -high, np.log(2.1)]]
    np.testing.assert_allclose(features([[0], [2], [4]], alike), expected, atol=1e-12)
    np.testing.assert_allclose(features([[7]], np.zeros((1, 1))), [[0, 0, np.log(0.1)]])  # with nothing to compare
    assert features(np.zeros((0, 2)), np.zeros((0, 0))).shape == (0, 5)


def test_a_sentence_counts_among_those_of_its_passage():
    late, words, owner = [0.0, 2.0, 4.0], [1.0, 1.0, 1.0], np.array([0, 0, 1])
    high = 3 / np.sqrt(6)  # of 0, 2 and 4, standardised
    share = -np.log(np.exp(-high) + 1) - high, -np.log(np.exp(-high) + 1)
    expected = [[0.5, -1, 0, share[0]], [0.5, 1, 0, share[1]], [0.7, 0, 0, 0]]
    found = sentence_features(np.array([0.5, 0.7, 0.1]), owner, np.array(late), np.array(words))
    np.testing.assert_allclose(found, expected, atol=1e-12)
    # One that stands out of very many, where an exponential would be infinite.
    many = np.eye(1, 1_000_000)[0]
    found = sentence_features(np.zeros(1), np.zeros(1_000_000, dtype=np.intp), many, many)
    assert np.isfinite(found).all() and found[0, 3] == 0


@pytest.mark.parametrize("at_once", [2, fused.WORDS_AT_ONCE])
def test_passages_are_alike_by_their_words(at_once, monkeypatch):
    monkeypatch.setattr(fused, "WORDS_AT_ONCE", at_once)
    texts = ["red apples", "Red apple, apple", "blue skies", "", "the"]
    twice = 1 + np.log(2)
    expected = np.zeros((5, 5))
    # Both words are in two of five passages.
    expected[0, 1] = expected[1, 0] = (1 + twice) / np.sqrt(2) / np.sqrt(1 + twice**2)
    np.testing.assert_allclose(likeness_of([Chunk(str(row), text) for row, text in enumerate(texts)]), expected)
    rare = likeness_of([Chunk(str(row), text) for row, text in enumerate(["a1 b1", "a1 c1", "b1", "b1 d1"])])
    assert rare[0, 1] > rare[0, 3] > 0  # a word that fewer passages have
    assert likeness_of([]).shape == (0, 0)


FILM = Chunk("film", "The Quiet Sea\nThe Quiet Sea is a film of 1951 by Ann Lee, with Bo Ray.")
PAGES = [
    Chunk("director", "Ann Lee (director)\nShe was born in Tromsø, and lived by the sea."),
    Chunk("actor", "Bo Ray\nBo Ray was born in Bergen. ANN LEE, his sister, was not."),
    Chunk("other", "Ann Leeds\nShe was born in Narvik, and lived by the sea."),
]


def test_a_page_links_to_those_whose_title_it_names_and_divides_its_probability_among_them():
    links = links_of([FILM, *PAGES, PAGES[0], Chunk("plain", "Ann Lee"), Chunk("empty", "")])
    expected = np.zeros((7, 7))
    expected[0, [1, 2, 4]] = expected[[2, 5], 1] = expected[[2, 5], 4] = 1  # not to itself, nor to a longer name
    np.testing.assert_array_equal(links, expected)
    logits = np.array([0.0, 9.0, np.log(3), -9.0, 9.0, -np.inf, 9.0])  # .5 by three; .75 by two; three name the first
    np.testing.assert_allclose(passed_on(logits, links), [0, 0.125, 0.5 / 3, 0, 0.125, 0, 0], atol=1e-9)
    assert passed_on(np.zeros(0), links_of([])).tolist() == []


@pytest.mark.slow
def test_a_page_that_is_named_in_a_page_that_the_question_names_is_more_probable():
    question, others = "Where was the director of The Quiet Sea born?", [PAGES[0], PAGES[2], *PASSAGES]
    unnamed = Chunk("film", FILM.text.replace("Ann Lee", "Kim Hay"))
    _, director, other, *_ = Fused().scorer(question, [FILM, *others]).probabilities
    assert director > max(other, Fused().scorer(question, [unnamed, *others]).probabilities[1]) + 0.1


@pytest.mark.slow
def test_a_passage_that_is_like_a_probable_one_is_more_probable():
    more = "{} was surveyed again in 2020 by climbers from two countries who carried receivers to the summit."
    texts = [PASSAGES[0].text, more.format("It"), more.format("It").replace("summit", "mine"), PASSAGES[1].text]
    passages = [Chunk(str(row), text) for row, text in enumerate(texts)]
    alike = [Chunk("0", f"{texts[0]} {more.format('Everest')}"), *passages[1:]]
    [apart, near] = (Fused().scorer(QUESTION, of).probabilities for of in (passages, alike))
    assert near[1] > apart[1] and near[3] <= apart[3]


@pytest.mark.slow
def test_a_passage_and_a_sentence_that_answer_are_the_most_probable():
    reranker = Fused()
    singles = [(row,) for row in range(len(PASSAGES))]
    assert reranker.scorer(QUESTION, PASSAGES)(singles).argmax() == 0
    sentences = [unit for passage in PASSAGES for unit in units(passage, SENTENCE)]
    values = reranker.scorer(QUESTION, sentences)([(row,) for row in range(len(sentences))])
    assert "8,849" in sentences[int(values.argmax())].text
    # Sentences of one passage, valued as if the others were there, too.
    own = units(PASSAGES[0], SENTENCE)
    within = reranker.scorer(QUESTION, own, pool=reranker.scorer(QUESTION, PASSAGES)).probabilities
    alone = reranker.scorer(QUESTION, own).probabilities
    assert within.argmax() == alone.argmax() == 0 and not np.allclose(within, alone)


@pytest.mark.slow
@pytest.mark.parametrize("package", [True, False])
def test_no_signal_leaves_passages_level_that_minilm_does_not_read(package, monkeypatch):
    if not package:  # then words say what they can
        monkeypatch.setattr(fused, "find_spec", lambda _: None)
    question, texts = "珠穆朗玛峰有多高？", ["熊猫吃竹子和笋。", "珠穆朗玛峰高8849米。", "K2是世界第二高峰。"]
    chunks = [Chunk(str(row), text) for row, text in enumerate(texts)]
    value = Fused()
    signals = value.signal_values(question, chunks, value.late(question, chunks))
    assert (np.ptp(signals, axis=0) > 0).all()
    assert (np.delete(signals, value.weights.signals.index("length"), axis=1).argmax(axis=0) == 1).all()


@pytest.mark.slow
def test_scripts_that_minilm_does_not_read_are_read_by_another_encoder():
    texts = ["熊猫吃竹子。", "珠穆朗玛峰高8849米。", "K2是世界第二高峰。"]
    chunks = [Chunk(str(row), text) for row, text in enumerate(texts)]
    assert Fused().scorer("珠穆朗玛峰有多高？", chunks)([(0,), (1,), (2,)]).argmax() == 1
    # One such text among others is enough, and a language of which MiniLM's vocabulary has few words whole.
    german = [Chunk("d", "Nach zwanzig Minuten werden sämtliche Aufträge nacheinander ausgeführt.")]
    assert [Fused().late(QUESTION, [*PASSAGES, *others]).encoder == "e5" for others in ((), chunks)] == [False, True]
    late = Fused().late("how long does it wait?", german)
    assert late.encoder == "e5"
    # Words that are spelled alike in two languages say nothing.
    chunks = [*german, Chunk("e", "Im Gift wird sofort danach untersucht, welche Verbindungen darin enthalten waren.")]
    for question, told in (("which gift does she like most?", False), ("wird danach sofort untersucht?", True)):
        words = Fused().signal_values(question, chunks, late)[:, Fused().weights.signals.index("bm25")]
        assert words.any() == told


@pytest.mark.slow
@pytest.mark.parametrize(
    "spoilt", [lambda texts: [np.nan] * len(texts), lambda texts: [0.5], lambda texts: ["high"] * 5]
)
def test_a_signal_that_gives_no_numbers_is_named(spoilt):
    reranker = HashReranker()
    reranker.score = lambda query, texts: spoilt(texts)
    weights = FusedWeights(("minilm-late", "hash"), np.ones(5), 0.0, np.ones(4), 0.0, 1.0, 0.0)
    with pytest.raises(ScoringError, match="'hash'"):
        Fused(adapter=weights, signals=[reranker]).scorer(QUESTION, PASSAGES)


@pytest.mark.slow
def test_passages_are_compared_once_for_their_choice_and_for_that_of_their_sentences(monkeypatch):
    compared = []
    signals = Fused.signal_values

    def counted(self, query, passages, late):
        compared.append(len(passages))
        return signals(self, query, passages, late)

    monkeypatch.setattr(Fused, "signal_values", counted)
    assert corag.select(QUESTION, PASSAGES, 30).ids
    assert compared == [len(PASSAGES)]

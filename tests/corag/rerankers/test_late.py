"""Late interaction: sentences in the encoding of their passage, sets by what they cover."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import corag
from corag import Chunk
from corag.errors import InputError
from corag.models.encoders import encoder_named, minilm_encoder
from corag.models.runtime import resolve_device
from corag.rerankers.cosine import MiniLMCosine
from corag.rerankers.late import PASSAGE_SHARE, LateScorer, MiniLMLate, MiniLMSoftSim
from corag.text.units import SENTENCE, units

QUESTION = "How high is it?"
TEXT = "Everest\nEverest is a mountain. It is 8,849 metres high. Bananas are yellow."
PASSAGE = Chunk("everest", TEXT, {"title": "Everest"})


def states(text):
    """Return the tokens of a text with their unit vectors, special tokens left out."""
    [encoded] = minilm_encoder().encoded([text])
    vectors = encoded.tokens.astype(np.float64)
    return encoded.starts, vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.slow
def test_a_sentence_is_valued_by_its_tokens_in_the_encoding_of_its_passage():
    starts, tokens = states(TEXT)
    _, asked = states(QUESTION)
    cosines = np.clip(asked @ tokens.T, 0, 1)
    begins, ends = TEXT.index("It is"), TEXT.index(" Bananas")
    in_sentence = (starts < len("Everest\n")) | ((starts >= begins) & (starts < ends))
    own, whole = cosines[:, in_sentence].max(axis=1).mean(), cosines.max(axis=1).mean()
    reranker = MiniLMLate()
    sentences = units(PASSAGE, SENTENCE)
    values = reranker.scorer(QUESTION, sentences)([(row,) for row in range(3)])
    assert values[1] == pytest.approx(PASSAGE_SHARE * whole + (1 - PASSAGE_SHARE) * own, abs=1e-5)
    assert values.argmax() == 1  # the pronoun, not the name, is in the sentence that answers
    assert reranker.score(QUESTION, [TEXT])[0] == pytest.approx(whole, abs=1e-5)


@pytest.mark.slow
def test_nothing_of_a_long_text_is_cut():
    reranker = MiniLMLate()
    long = " ".join(["Bananas are yellow."] * 200) + " Everest is 8,849 metres high."
    last = units(Chunk("long", long), SENTENCE)[-1]
    beginning, end = reranker.scorer("How high is Everest?", [units(Chunk("long", long), SENTENCE)[0], last])(
        [(0,), (1,)]
    )
    assert end > beginning
    assert reranker.scorer("How high is Everest?", [last]).num_truncated == 0


@pytest.mark.slow
@pytest.mark.parametrize("encoder", ["minilm", "e5"])
def test_a_code_counts_only_where_it_is_a_whole_word(encoder):
    codes = ["10.0.0.7", "10.0.0.77", "10.0.7.0", "0x80070005", "0x80070057", "1,200", "1201", "2N3904", "2N3906"]
    records = [Chunk(code, f"The entry {code} is on page {row + 20} of the list.") for row, code in enumerate(codes)]
    reranker = corag.reranker("late", encoder=encoder)
    for row, code in enumerate(codes):
        asked = code.replace(",", "")
        values = reranker.scorer(f"On which page is {asked}?", records)([(index,) for index in range(len(codes))])
        assert values.argmax() == row


@pytest.mark.slow
def test_an_encoder_is_used_as_an_object_as_it_is_by_name():
    e5, sentences = encoder_named("e5", resolve_device("reranker")), units(PASSAGE, SENTENCE)
    by_name, as_object = (corag.reranker("late", encoder=one).scorer(QUESTION, sentences) for one in ("e5", e5))
    assert by_name.maxima.tolist() == as_object.maxima.tolist()
    with pytest.raises(InputError, match="trained on the states"):
        corag.reranker("minilm-evidence", encoder=e5)


maxima = st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=2, max_size=5).map(np.array)


@given(maxima)
def test_a_set_is_worth_at_least_its_parts_and_whatever_its_order(table):
    score = LateScorer(table)
    everything = tuple(range(len(table)))
    whole, backwards, less = score([everything, everything[::-1], everything[1:]])
    assert whole == backwards
    assert whole >= less - 1e-12
    assert whole >= score([(row,) for row in everything]).max() - 1e-12


@pytest.mark.slow
def test_of_a_long_question_the_end_counts_like_the_beginning():
    log = "error: worker stopped, restarting. " * 120  # longer than a window of 510 tokens
    texts = ["Restart the worker by hand.", "The blue pump stands in the cellar."]
    chunks = [Chunk(text, text) for text in texts]
    for reranker in (MiniLMLate(), MiniLMSoftSim(), MiniLMCosine()):
        first, last = (
            reranker.scorer(question, chunks)([(0,), (1,)])[1]
            for question in (f"Where is the blue pump? {log}", f"{log} Where is the blue pump?")
        )
        none = reranker.scorer(log, chunks)([(1,)])[0]
        assert last > none and first > none and last == pytest.approx(first, abs=0.05)

"""Whether a context answers a question: what is known of both, the model, and the one that ships."""

import json
import math
from dataclasses import asdict

import pytest

import corag
from corag.errors import ModelError
from corag.models.trained import shipped_adapter
from corag.readers.answerable import FILE, LEAST_MARGIN, Answerable, signals
from corag.readers.minilm_reader import NAME

MODEL = Answerable(margin=1.0, none=-1.0, missing=-2.0, missing_names=-4.0, offset=0.5, threshold=0.3)


def test_what_is_known():
    told = signals("What is the capital of Mongolia?", "Berlin is the capital of Germany.", 2.0, 0.5)
    assert (told.margin, told.none, told.missing, told.missing_names) == (2.0, 0.0, 0.5, 1.0)
    told = signals("Which capitals has Germany?", "Berlin is the capital of GERMANY.", -math.inf, 1.0)
    assert (told.margin, told.missing, told.missing_names) == (LEAST_MARGIN, 0.0, 0.0)
    assert 9 < told.none < 10


@pytest.mark.parametrize("question", ["", "?", "what is the", "\u202e"])
def test_a_question_without_words_of_its_own_misses_nothing(question):
    told = signals(question, "", 0.0, 0.0)
    assert (told.missing, told.missing_names) == (0.0, 0.0) and told.none < -9


def test_probabilities():
    nothing = signals("?", "", 0.0, 0.5)
    assert MODEL.probability(nothing) == pytest.approx(1 / (1 + math.exp(-0.5)))
    lacking = signals("In Rome 1830?", "", 0.0, 0.5)
    assert MODEL.probability(lacking) == pytest.approx(1 / (1 + math.exp(2.0 + 4.0 - 0.5)))


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", json.dumps(asdict(MODEL) | {"none": "much"}), json.dumps(asdict(MODEL) | {"none": math.nan})],
)
def test_a_damaged_file_is_refused(tmp_path, content):
    assert Answerable.beside(tmp_path) is None
    (tmp_path / FILE).write_text(content)
    with pytest.raises(ModelError, match="copy the folder again"):
        Answerable.beside(tmp_path)


def test_what_is_written_is_read(tmp_path):
    (tmp_path / FILE).write_text(json.dumps(asdict(MODEL)))
    assert Answerable.beside(tmp_path) == MODEL


CONTEXT = (
    "Tuples\nTuples are immutable sequences, typically used to store collections of heterogeneous data. A tuple of one "
    "item is written with a comma behind it.\n\nExceptions\nA KeyError is raised when a dictionary key is not found."
)


@pytest.mark.slow
def test_the_shipped_reader_finds_what_is_there_and_nothing_else():
    assert Answerable.beside(shipped_adapter(NAME)) is not None
    reader = corag.reader(NAME)
    asked = ["What is raised when a dictionary key is not found?", "What are tuples typically used for?"]
    for answer in reader.answer_many(asked, [CONTEXT] * 2):
        assert answer.found and answer.answerable > 0.5
    asked = [
        "What is the capital of Mongolia?",
        "How much does a Tesla Model 3 cost?",
        "Who won the World Cup in 1998?",
    ]
    for answer in reader.answer_many(asked, [CONTEXT] * 3):
        # What comes closest is still said.
        assert not answer.found and answer.answerable < 0.2 and answer.text and answer.sentence
    nothing = reader.answer(asked[0], "")
    assert (nothing.found, nothing.answerable) == (False, None)

"""The extractive reader: real encoder, contexts written by hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corag
from corag.models.embedders import MiniLMEmbedder
from corag.readers.extractive import ExtractiveReader
from corag.testing import ReaderContract

QUESTION = "What is the capital of Germany?"
CAPITAL = "Berlin is the capital of Germany."
OTHERS = "Bananas are yellow. The otter sleeps on its back."


class TestContract(ReaderContract):
    @pytest.fixture
    def reader(self):
        return corag.reader("extractive")


def quoted(answer, context):
    return [context[start:end] for start, end in answer.spans]


def test_answers_with_the_sentence_that_says_it():
    context = f"{OTHERS}\n\n  {CAPITAL}  \n\nIt snows."
    answer = ExtractiveReader(sentences=1).answer(QUESTION, context)
    assert answer.text == CAPITAL
    assert quoted(answer, context) == [CAPITAL]
    assert answer.chunk == 1
    question, sentence = MiniLMEmbedder().embed([QUESTION, CAPITAL])
    assert answer.confidence == pytest.approx(float(question @ sentence), abs=1e-5)


@settings(max_examples=15)
@given(st.text("aB. \n!?\x00é🦔א", max_size=60))
def test_spans_point_at_what_was_said(context):
    answer = corag.reader("extractive").answer(QUESTION, context)
    assert answer.text == " ".join(" ".join(sentence.split()) for sentence in quoted(answer, context))
    assert all(sentence == sentence.strip() != "" for sentence in quoted(answer, context))
    assert len(answer.spans) <= 2
    assert bool(answer.spans) == bool(context.strip())

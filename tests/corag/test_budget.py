"""The budget of a prompt: what is left for the context, and that no prompt exceeds it."""

import pytest

import corag
from corag import PromptedReader
from corag.budget import Budget, Counts, reader_and_tokens
from corag.errors import InputError
from tests.corag.text.tokens.worlds import ChatReader, counter
from tests.fakes import offer


def test_the_prompt_is_paid_out_of_the_budget_unless_it_is_for_the_context():
    reader = ChatReader(corag.tokens("estimate"))
    assert isinstance(reader, PromptedReader)
    assert reader_and_tokens(reader) == (reader, reader.tokens)
    around = reader.prompt_tokens("so?")
    assert Budget(100, reader).for_context("so?") == 100 - around
    assert Budget(100, reader, "context").for_context("so?") == 100
    assert Budget(100, corag.reader("extractive")).for_context("so?") == 100
    assert Budget(around + 1, reader).for_context("so?") == 1
    with pytest.raises(InputError, match=str(around)):
        Budget(around, reader).for_context("so?")
    assert Budget(100, reader).for_context("what is it that is so long?") < 100 - around


def test_a_prompt_that_leaves_the_window_no_room_for_the_answer_is_an_error_before_it_is_sent():
    reader = ChatReader(corag.tokens("minilm"), window_tokens=60, max_answer_tokens=20)
    texts = offer("The river flows through ten countries of Europe.", "It is long.")
    selector = corag.selector("full", tokenizer=reader.tokens)
    fits = Budget(40, reader).select(selector, "so?", texts)
    assert reader.prompt_tokens("so?", fits.text) + 20 <= 60
    for budget_for, most in (("prompt", 40), ("context", 40 - reader.prompt_tokens("so?"))):
        with pytest.raises(InputError, match=f"at most {most} tokens"):
            Budget(200, reader, budget_for).select(selector, "so?", texts)
        assert Budget(most, reader, budget_for).select(selector, "so?", texts).text == fits.text
    assert reader.sent == []


@pytest.mark.parametrize(
    ("settings", "counts"),
    [
        ({"budget_for": "context"}, ("context", "minilm", True)),
        ({"tokenizer": "estimate"}, ("prompt", "estimate", False)),
        ({"reader": ChatReader(counter("byte-level"))}, ("prompt", "byte-level", True)),
        ({"reader": ChatReader(counter("byte-level")), "tokenizer": "minilm"}, ("prompt", "minilm", False)),
    ],
)
def test_a_reply_says_what_its_prompt_cost_and_whether_that_is_exact(settings, counts):
    texts = ["The river is long.", "It flows."]
    reply = corag.ask("so?", texts, budget_tokens=100, method="full", **{"reader": "extractive", **settings})
    reader = settings.get("reader")
    prompt = None if reader is None else reader.prompt_tokens("so?", reply.selection.text)
    budget_for, tokenizer, exact = counts
    assert reply.counts == Counts(100, budget_for, prompt, tokenizer, exact)
    assert reply.to_dict().items() >= {
        "budget_tokens": 100, "budget_for": budget_for, "prompt_tokens": prompt, "tokenizer": tokenizer, "exact": exact,
    }.items()  # fmt: skip
    assert len(reply.selection) == 2
    assert reply.selection.trace.tokens_estimated == ("estimate" if tokenizer == "estimate" else None)

"""The budget of a prompt: what is left for the context, and that no prompt exceeds it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corag
from corag import Candidate, Chunk, PromptedReader
from corag.budget import Budget, Counts, reader_and_tokens
from corag.errors import InputError
from tests.corag.text.tokens.worlds import AWKWARD, ChatReader, language_models

COUNTERS = {**language_models(), **{name: corag.tokens(name) for name in ("minilm", "estimate")}}
SELECTORS = ["top-k", "full", "corag(agent=none, reranker=bm25)", "top-tokens", "mmr"]


def pool(texts: list[str]) -> list[Candidate]:
    distinct = list(dict.fromkeys(texts))
    return [Candidate(Chunk(str(place), text), 1 - place / 100) for place, text in enumerate(distinct)]


@pytest.mark.parametrize("counter", COUNTERS.values(), ids=COUNTERS.keys())
@given(
    texts=st.lists(AWKWARD, min_size=1, max_size=6),
    extra=st.integers(1, 400),
    of=st.sampled_from(["prompt", "context"]),
    selector=st.sampled_from(SELECTORS),
)
@settings(max_examples=15)
def test_no_prompt_that_is_sent_exceeds_the_budget(counter, texts, extra, of, selector):
    reader = ChatReader(counter)
    around = reader.prompt_tokens("so?")
    budget = Budget(around + extra if of == "prompt" else extra, reader, of)
    try:
        selection = budget.select(corag.selector(selector, tokenizer=counter), "so?", pool(texts))
    except InputError as error:
        assert "leaves no room" in str(error)
        return
    reader.answer("so?", selection.text)
    [sent] = reader.sent
    tokens = int(counter.count([sent])[0])
    if of == "prompt":
        assert tokens <= budget.tokens
    else:
        assert selection.cost_tokens <= budget.tokens


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
    texts = pool(["The river flows through ten countries of Europe.", "It is long."])
    selector = corag.selector("full", tokenizer=reader.tokens)
    [fits] = [Budget(40, reader).select(selector, "so?", texts)]
    assert reader.prompt_tokens("so?", fits.text) + 20 <= 60
    with pytest.raises(InputError, match="at most 40"):
        Budget(200, reader, "context").select(selector, "so?", texts)
    assert reader.sent == []


@pytest.mark.parametrize(
    ("settings", "counts"),
    [
        ({"budget_for": "context"}, ("context", "minilm", True)),
        ({"tokenizer": "estimate"}, ("prompt", "estimate", False)),
        ({"reader": ChatReader(COUNTERS["byte-level"])}, ("prompt", "byte-level", True)),
        ({"reader": ChatReader(COUNTERS["byte-level"]), "tokenizer": "minilm"}, ("prompt", "minilm", False)),
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

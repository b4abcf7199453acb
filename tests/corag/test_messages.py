"""`corag.compress`: long tool results and retrieved texts of a chat are selected, and nothing else is touched."""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corag
from corag.errors import InputError
from corag.messages import LEFT_OUT

FILLER = " ".join(f"Mill {number} ground corn for village {number} until it burned down." for number in range(40))
FACT = "Mount Everest is 8,849 metres high."
LONG = f"{FILLER} {FACT} {FILLER.replace('Mill', 'Forge')}"
QUESTION = "How high is Mount Everest?"
CALL = {"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": '{"place": "Everest"}'}}
CHEAP = {"method": "naive", "reranker": "bm25", "unit": "sentence"}


def tokens(messages):
    return int(sum(corag.tokens().count([message["content"] for message in messages if message.get("content")])))


def chat(content):
    return [
        {"role": "system", "content": "You are a guide. " * 30},
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": content},
    ]


def test_a_long_tool_result_is_selected_by_the_last_question():
    messages = chat(LONG)
    before = copy.deepcopy(messages)
    made = corag.compress(messages, budget_tokens=420, **CHEAP)
    assert (
        messages == before
        and made[:3] == before[:3]
        and all(new is old for new, old in zip(made, messages[:3], strict=False))
    )
    assert made[3] == {**before[3], "content": made[3]["content"]} and FACT in made[3]["content"]
    assert tokens(made) <= 420 < tokens(messages)
    short = chat("Everest is high.")
    assert corag.compress(short, budget_tokens=420, **CHEAP) == short
    # Of the next question, and of a long result that has nothing of it.
    later = [*messages, {"role": "user", "content": "Who burned the forge in village 7?"}]
    assert FACT not in corag.compress(later, budget_tokens=420, **CHEAP)[3]["content"]
    parts = chat([{"type": "text", "text": LONG}, {"type": "image_url", "image_url": {"url": "data:,"}}])
    [text, image] = corag.compress(parts, 420, **CHEAP)[3]["content"]
    assert FACT in text["text"] and len(text["text"]) < len(LONG) and image == parts[3]["content"][1]


RETRIEVED = {
    "tags": ("Answer briefly.\n<context>\n", "\n</context>\n" + QUESTION),
    "lines": ("Answer briefly.\n\nContext:\n", f"\n\nQuestion: {QUESTION}"),
    "LangChain": (
        "Use the following pieces of context to answer the question at the end. Do not make up an answer.\n\n",
        f"\n\nQuestion: {QUESTION}\nHelpful Answer:",
    ),
    "LlamaIndex": (
        "Context information is below.\n---------------------\n",
        "\n---------------------\nGiven the context information and not prior knowledge, answer the query.\n"
        f"Query: {QUESTION}\nAnswer: ",
    ),
}


@pytest.mark.parametrize("form", RETRIEVED)
def test_retrieved_texts_are_selected_and_what_is_around_them_stays(form):
    before, after = RETRIEVED[form]
    [made] = corag.compress([{"role": "user", "content": before + LONG + after}], budget_tokens=200, **CHEAP)
    text = made["content"]
    assert text.startswith(before) and text.endswith(after) and FACT in text and tokens([made]) <= 200


def test_what_people_and_the_assistant_wrote_stays():
    pasted = [
        {"role": "user", "content": f"Translate this: {LONG}"},
        {"role": "assistant", "content": f"Context: {LONG}"},
    ]
    pasted += [{"role": "user", "content": QUESTION}]
    assert corag.compress(pasted, budget_tokens=10_000, **CHEAP) == pasted
    with pytest.raises(InputError, match=r"budget_tokens is 50, .* drop old messages"):
        corag.compress(pasted, budget_tokens=50, **CHEAP)
    other = {"type": "tool_result", "content": LONG}  # not of OpenAI's API
    with pytest.raises(InputError, match="drop old messages"):
        corag.compress([{"role": "user", "content": [other, {"type": "text", "text": QUESTION}]}], 50, **CHEAP)


@pytest.mark.parametrize(
    ("messages", "named"),
    [
        ("text", "type str"),
        ({"role": "user", "content": QUESTION}, "type dict"),
        ([QUESTION], r"messages\[0\]"),
        ([{"content": QUESTION}], "a role"),
        ([{"role": "user", "content": 5}], "content"),
        ([{"role": "tool", "content": LONG}], "role user"),
    ],
)
def test_mistakes_are_named(messages, named):
    with pytest.raises(InputError, match=named):
        corag.compress(messages, budget_tokens=1000, **CHEAP)


@settings(deadline=None, max_examples=20)
@given(st.lists(st.sampled_from([LONG, FILLER, FACT, f"<context>{LONG}</context>"]), max_size=4), st.integers(40, 900))
def test_the_budget_holds_for_all_messages(texts, budget):
    messages = [{"role": "tool", "tool_call_id": str(at), "content": text} for at, text in enumerate(texts)]
    messages.append({"role": "user", "content": QUESTION})
    try:
        made = corag.compress(messages, budget_tokens=budget, **CHEAP)
    except InputError as error:
        assert "drop old messages" in str(error)
        return
    assert tokens(made) + 8 * len(made) <= budget
    assert [one.get("tool_call_id") for one in made] == [one.get("tool_call_id") for one in messages]
    assert all(one["content"] for one in made) and LEFT_OUT not in texts

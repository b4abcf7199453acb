"""Commands with readers that prompt a language model: the budget is the whole prompt's."""

import pytest

from corag.registry import READERS
from experiments.evaluation.config import EvaluateConfig
from tests.corag.text.tokens.worlds import ChatReader, counter
from tests.experiments.worlds import evaluate, rows_of

BUDGET = 260


@pytest.fixture
def reader(monkeypatch):
    """A reader called `chat` that remembers its prompts."""
    reader = ChatReader(counter("byte-level"))

    def chat(*, tokenizer=None):
        reader.tokens = tokenizer or counter("byte-level")
        return reader

    monkeypatch.setitem(READERS.parts, "chat", chat)
    return reader


def evaluated(folder, **settings):
    given = {"methods": "top-tokens, corag(agent=none, reranker=bm25)", "budget": BUDGET, "reader": "chat"}
    return evaluate(EvaluateConfig(data=str(folder), quiet=True, **{**given, **settings}))


def test_no_prompt_of_a_comparison_exceeds_the_budget(small_data, reader, tmp_path):
    out = tmp_path / "result.json"
    result = evaluated(small_data, out=str(out))
    assert result["budget_for"] == "prompt"
    assert (result["tokenizer"], result["exact"]) == ("byte-level", True)
    rows = rows_of(out)
    counts = counter("byte-level").count(reader.sent).tolist()
    assert set(counts) == {row["prompt_tokens"] for row in rows}
    assert BUDGET / 2 < max(counts) <= BUDGET
    assert [method["over_budget"] for method in result["methods"]] == [0, 0]
    assert all(0 < method["cost_tokens"] < method["prompt_tokens"] <= BUDGET for method in result["methods"])
    assert all(row["chunks"] for row in rows)


@pytest.mark.parametrize(("served", "over"), [(BUDGET, 0), (BUDGET + 1, 1)])
def test_what_the_model_counts_is_the_last_word_on_the_budget(small_data, reader, served, over):
    reader.served = served
    [method] = evaluated(small_data, methods="top-tokens", limit=1)["methods"]
    assert (method["served_tokens"], method["over_budget"]) == (served, over)

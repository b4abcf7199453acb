"""Golden selections: what every selector chooses for five questions about Python's language reference.

After a change of selections that is meant, write them again and read the difference:

    python -m tests.corag.selectors.test_golden
"""

import json

import pytest

import corag
from corag import Candidate, Chunk
from tests.paths import GOLDEN

FILE = GOLDEN / "selections.json"
BUDGETS = (128, 384)
VARIANTS = (
    "corag(agent=none)",
    "corag(reranker=minilm-evidence)",
    "corag(unit=sentence, reranker=minilm-softsim)",
    "naive(unit=sentence, max_units=12)",
    "naive(reranker=bm25)",
    "naive(reranker=minilm-cosine)",
)
"""Besides the default of each selector: rerankers, a search that no agent sets, and fewer units than there are."""


def methods():
    return [*corag.SELECTORS.names, *VARIANTS]


def select(method, question):
    """What a method chooses at each budget: ids in prompt order, tokens, and the value."""
    candidates = [
        Candidate(Chunk(row["id"], row["text"], {"title": row["title"]}), row["similarity"])
        for row in question["passages"]
    ]
    with corag.runtime(precision="fp32", device="cpu"):
        selector = corag.selector(method)
    found = (selector.select(question["question"], candidates, budget) for budget in BUDGETS)
    return [{"ids": list(one.ids), "tokens": one.cost_tokens, "value": round(one.value, 4)} for one in found]


QUESTIONS = json.loads(FILE.read_text())["questions"]


@pytest.mark.parametrize("method", methods())
def test_selections_are_those_that_are_recorded(method):
    for question in QUESTIONS:
        for now, before in zip(select(method, question), question["selections"][method], strict=True):
            assert now == before | {"value": pytest.approx(before["value"], abs=1e-3)}, question["question"]


def test_every_recorded_method_is_compared():
    assert all(list(question["selections"]) == methods() for question in QUESTIONS)


if __name__ == "__main__":
    golden = json.loads(FILE.read_text())
    for one in golden["questions"]:
        one["selections"] = {method: select(method, one) for method in methods()}
    FILE.write_text(json.dumps(golden, indent=1) + "\n")

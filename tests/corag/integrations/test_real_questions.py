"""A pipeline of each framework over real questions, with and without CORAG."""

import pytest

from corag.models.cached import CachedEmbedder
from corag.text.data import DataFolder
from tests.corag.integrations.pipelines import PIPELINES, figures, part_of, passages_of
from tests.corag.worlds import HashEmbedder
from tests.paths import DATA

FOLDER = DATA / "hotpotqa"
BUDGET = 200

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no questions at {FOLDER} (set CORAG_DATA)"),
]


@pytest.mark.parametrize("name", list(PIPELINES))
def test_a_pipeline_answers_within_the_budget(name):
    folder = DataFolder.open(FOLDER)
    queries = folder.split("dev", 5)
    # Who finds the passages does not matter here: all of a question's own are found.
    ask = PIPELINES[name](passages_of(folder, queries[:2]), CachedEmbedder(HashEmbedder()))
    part = part_of(name, budget_tokens=BUDGET, reranker="bm25", unit="sentence", agent="none")
    whole = [figures(folder, query, ask(query.question, 20, None)) for query in queries[:2]]
    chosen = [figures(folder, query, ask(query.question, 20, part)) for query in queries[:2]]
    assert all(tokens > 1000 and evidence == 1 for tokens, evidence, _ in whole)
    assert all(100 < tokens <= BUDGET and evidence > 0 for tokens, evidence, _ in chosen)
    # Passages of other questions are chosen from in the same way.
    assert all(0 < figures(folder, query, ask(query.question, 20, part))[0] <= BUDGET for query in queries[2:])

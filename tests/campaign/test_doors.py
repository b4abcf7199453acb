"""One selection, four doors: `select`, `select_many`, the service over HTTP, its tool over MCP, on the same cases."""

import random
import re

import pytest
from starlette.testclient import TestClient

import corag
from corag.candidates import as_candidates
from corag.selecting import with_missing_cosines
from corag.serve.api import make_api
from corag.serve.service import Service
from corag.serve.tools import LEFT_OUT, Replies
from tests.campaign.draws import QUERIES, drawn_text
from tests.effort import CAMPAIGN

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]

METHODS = ("top-k", "naive(reranker=bm25)", "corag(agent=none, reranker=bm25, unit=passage)", "full", "top-tokens")
CASES, PARTS = (10_000, 20) if CAMPAIGN else (60, 2)


def drawn(rng):
    """A question, texts, and a budget; no two texts are the same."""
    texts = {drawn_text(rng): None for _ in range(rng.randint(1, 9))}
    return rng.choice(QUERIES), list(texts), rng.choice([1, 9, 40, 150, 1000])


@pytest.fixture(scope="module")
def api():
    with TestClient(make_api(Service(method="top-k")), base_url="http://127.0.0.1:8384") as client:
        yield client


@pytest.mark.parametrize("part", range(PARTS))
def test_all_doors_give_the_same(api, figure, part):
    rng = random.Random(part)
    method = METHODS[part % len(METHODS)] if CAMPAIGN else None
    for number in range(CASES // PARTS):
        chosen = method or METHODS[number % len(METHODS)]
        query, texts, budget = drawn(rng)
        one = corag.select(query, texts, budget, method=chosen)
        selector = corag.selector(chosen)
        others = [drawn(rng)[:2] for _ in range(2)]
        batch = [(query, texts), *others]
        batch = [(asked, with_missing_cosines(asked, as_candidates(of), budget, selector)) for asked, of in batch]
        [many, *_] = selector.select_many([asked for asked, _ in batch], [of for _, of in batch], budget)
        assert (many.ids, many.text, many.cost_tokens) == (one.ids, one.text, one.cost_tokens), (part, number)
        body = {"query": query, "texts": texts, "budget_tokens": budget, "method": chosen}
        reply = api.post("/v1/select", json=body).json()
        assert (reply["text"], reply["cost_tokens"]) == (one.text, one.cost_tokens), (part, number)
        assert [texts[chunk["index"]] for chunk in reply["chunks"]] == [chunk.text for chunk in one.chunks]
        figure("doors: cases", 1)


def test_a_tool_of_mcp_chooses_what_its_service_chooses(figure):
    rng = random.Random("mcp")
    service = Service(method="naive(reranker=bm25)")
    tools = Replies(service)
    for number in range(500 if CAMPAIGN else 30):
        query, texts, _ = drawn(rng)
        reply = tools.select_context(query, texts, 2000).partition(LEFT_OUT)[0]
        shown = re.sub(r"^\[[0-9a-f]{5,}\] ", "", reply, flags=re.MULTILINE).strip()
        one = corag.select(query, texts, 1500, method="naive", reranker="bm25")
        assert shown == one.text.strip(), number
        figure("doors: cases of MCP", 1)

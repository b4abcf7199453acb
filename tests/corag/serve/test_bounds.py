"""Requests that would take long or much memory, over real sockets."""

import resource
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import httpx
import pytest

from corag.serve.api import make_api
from corag.serve.service import Service
from tests.corag.serve.worlds import serving
from tests.effort import CAMPAIGN, FULL

pytestmark = pytest.mark.slow

SELECT = {"query": "How salty is the sea?", "texts": ["The sea is salty."]}


WORDS = " ".join(f"word{number % 997}" for number in range(30_000))
LONG = [WORDS[start : start + 20_000] for start in range(0, 200_000, 500)]
SHORT = [f"The sea at place {number} is salty, and {number + 1} is near." for number in range(1_000)]
HOSTILE = {
    "orders": {"texts": SHORT[:40], "method": "upper(max_orders=1000000000000, max_length=20, reranker=bm25)"},
    "as many orders as allowed": {"texts": SHORT[:20], "method": "upper(max_length=20, reranker=bm25)"},
    "iterations": {"texts": SHORT[:20], "method": 'corag(search={"iterations": 1000000000})'},
    "a large tree": {"texts": SHORT, "method": 'corag(reranker=bm25, search={"iterations": 200, "parallel": 16})'},
    "a process": {"texts": SHORT, "method": 'corag(reranker=bm25, search={"iterations": 200, "policy": "bayesian"})'},
    "long texts": {"texts": LONG, "method": "corag"},
    "long texts by all values": {"texts": LONG, "method": "naive(reranker=minilm-cosine)"},
    "many similarities": {"texts": SHORT, "method": "mmr"},
    "many clusters": {"texts": SHORT, "method": "car(max_candidates=200)"},
    "many summaries": {"texts": SHORT, "method": "crag"},
    "a reader of all": {"texts": LONG, "method": "self-route(reader=extractive)"},
}


def memory_over_rounds(rounds):
    """Return the megabytes after each round of hostile requests, each of which ends soon; after two they stay level."""
    memory = []
    with serving(make_api(Service(method="naive(reranker=bm25)"), deadline=0.2)) as url:
        for _ in range(rounds):
            for name, given in HOSTILE.items():
                body = {"query": "How salty is the sea?", "budget_tokens": 100_000, **given}
                reply = httpx.post(f"{url}v1/select", json=body, timeout=60)
                assert reply.status_code in (200, 400, 504), (name, reply.text)
                assert reply.elapsed.total_seconds() < 15, name
                assert reply.status_code != 504 or "not done after 0.2 seconds" in reply.json()["error"]
                assert httpx.post(f"{url}v1/select", json=SELECT, timeout=60).status_code in (200, 504)
            memory.append(int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6)
    return memory


@pytest.mark.timeout(1800)
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the memory of the process from /proc")
def test_every_request_ends_at_its_deadline_and_memory_is_flat():
    # In a process of its own: what other tests keep in memory, or free, is not counted.
    with ProcessPoolExecutor(1, get_context("spawn")) as alone:
        memory = alone.submit(memory_over_rounds, 102 if FULL or CAMPAIGN else 1).result()
    assert max(memory) < 2_500 and max(memory[2:], default=0) < memory[:2][-1] + 600, memory

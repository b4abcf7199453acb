"""Load: a hundred thousand questions, an index of a million chunks, and twenty clients for ten minutes.

The usual tests do a little of each. The campaign writes figures to `runs/load`, and keeps its indexes there.
"""

import threading
import time

import httpx
import numpy as np
import pytest

from tests.campaign import load
from tests.effort import CAMPAIGN
from tests.paths import ROOT
from tests.processes import served

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]

NUM_QUESTIONS = 100_000 if CAMPAIGN else 200
BLOCKS, NUM_ASKED = ((10, 1000), 64) if CAMPAIGN else ((2,), 4)
NUM_CLIENTS, SECONDS, EACH_S = (20, 600, 10) if CAMPAIGN else (4, 4, 1)
CHEAP = {
    "top-k, by the cosines given": "top-k(k=5)",
    "corag, by bm25": "corag(unit=passage, reranker=bm25, agent=none)",
}


@pytest.fixture
def out(tmp_path):
    return ROOT / "runs" / "load" if CAMPAIGN else tmp_path


def test_memory_and_speed_over_many_questions(out):
    found = {}
    for name, part in CHEAP.items():
        found[name] = load.alone(load.many_questions, part, NUM_QUESTIONS)
        load.write_results(out, "questions", found)
    for of in found.values():
        assert max(of["MB"][-5:]) < 1.1 * max(of["MB"][:5]) + 10
        assert not CAMPAIGN or np.median(of["a second"][-5:]) > 0.8 * np.median(of["a second"][:5])


def test_an_index_of_a_million_chunks(out):
    found, measured = {}, load.alone if CAMPAIGN else lambda call, *given: call(*given)
    for number in BLOCKS:
        folder = out / "indexes" / str(number)
        if not (out / f"build {number}.json").exists():
            load.write_results(out, f"build {number}", measured(load.build, folder, number))
        found[number * 1000] = measured(load.ask, folder, NUM_ASKED)
    load.write_results(out, "index", found)
    assert all(of["recall"] > 0.97 for of in found.values())


def test_many_clients(out):
    made, lock = load.requests(), threading.Lock()
    with served("serve") as server:

        def client(until_s, replies):
            with httpx.Client(base_url=server.url, timeout=300) as http:
                while (begun_s := time.monotonic()) < until_s:
                    with lock:
                        path, body = next(made)
                    status = http.post(path, json=body).status_code
                    replies.append((begun_s, time.monotonic() - begun_s, status))

        def asked(num_clients, seconds):
            """Return start, seconds and status of each reply, and the server's memory on the way."""
            replies, memory, begun_s = [], [], time.monotonic()
            threads = [threading.Thread(target=client, args=(begun_s + seconds, replies)) for _ in range(num_clients)]
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                memory.append((time.monotonic() - begun_s, load.private_mb(server.process.pid)))
                time.sleep(EACH_S)
            return [(at_s - begun_s, took_s, status) for at_s, took_s, status in replies], memory

        asked(1, SECONDS / 20)  # loads what is loaded once
        alone, _ = asked(1, SECONDS / 10)
        many, memory = asked(NUM_CLIENTS, SECONDS)

    def p50_and_p95(replies):
        return np.percentile([took_s for _, took_s, _ in replies], (50, 95)).tolist()

    tenths = [[one for one in many if one[0] // (SECONDS / 10) == part] for part in range(10)]
    found = {
        "requests": len(many), "errors": sum(status != 200 for *_, status in [*alone, *many]),
        "p50 and p95, s": p50_and_p95(many), "of each tenth": [p50_and_p95(part) for part in tenths if part],
        "one client, requests": len(alone), "one client": p50_and_p95(alone), "s and MB": memory,
    }  # fmt: skip
    load.write_results(out, "clients", found)
    assert found["errors"] == 0
    # Caches fill in the first half.
    used_mb = [mb for _, mb in memory]
    half = len(used_mb) // 2
    assert not CAMPAIGN or np.median(used_mb[-10:]) < 1.1 * np.median(used_mb[half - 5 : half + 5])

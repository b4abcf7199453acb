"""One part used by several threads at once gives what it gives one by one."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import corag
from corag.candidates import as_candidates
from corag.errors import CoragError
from corag.selecting import with_missing_cosines
from tests.campaign.draws import DRAWN, QUERIES, drawn_candidates, drawn_selector
from tests.campaign.parts import COUNTERS
from tests.effort import CAMPAIGN
from tests.experiments.worlds import DOCUMENTS
from tests.experiments.worlds import QUERIES as ASKED
from tests.fakes import essence

pytestmark = pytest.mark.slow

NUM_THREADS, NUM_CALLS = (8, 50) if CAMPAIGN else (4, 12)
ROUNDS = 20 if CAMPAIGN else 1
QUESTIONS = [query["question"] for query in ASKED]


def together(calls):
    """Return what calls return that threads make at once, in their order."""
    ready = threading.Barrier(NUM_THREADS)
    with ThreadPoolExecutor(NUM_THREADS, initializer=ready.wait) as pool:
        return list(pool.map(lambda call: call(), calls))


def outcome(call):
    """Return the essence of a selection, or its error."""
    try:
        return essence(call())
    except CoragError as error:
        return str(error)


def drawn(name):
    """Return a drawn selector and four inputs to choose from."""
    rng = random.Random(f"threads {name}")
    while True:
        tokens = rng.choice(list(COUNTERS.values()))
        try:
            selector = drawn_selector(rng, name, tokens)
        except CoragError:
            continue
        pools = [drawn_candidates(rng, 6) for _ in range(4)]
        totals = [int(tokens.count([one.chunk.text for one in pool]).sum()) for pool in pools]
        return selector, [
            (rng.choice(QUERIES), pool, 1 + int(total * rng.random()))
            for pool, total in zip(pools, totals, strict=True)
        ]


@pytest.mark.parametrize("name", DRAWN)
def test_a_selector(name):
    selector, few = drawn(name)
    inputs = (few * NUM_CALLS)[:NUM_CALLS]
    alone = [outcome(lambda given=given: selector.select(*given)) for given in few]
    expected = (alone * NUM_CALLS)[:NUM_CALLS]
    for _ in range(ROUNDS):
        calls = [lambda given=given: outcome(lambda: selector.select(*given)) for given in inputs]
        assert together(calls) == expected


@pytest.mark.parametrize("spelling", ["corag", "crag"])
def test_selectors_with_the_shipped_parts(spelling):
    # Built anew, so that models and caches are first used by all threads at once.
    texts = [f"{document['title']}\n{document['text']}" for document in DOCUMENTS[:9]]
    pool = with_missing_cosines("Varn", as_candidates(texts), 80, corag.selector("top-k"))
    questions = (QUESTIONS * 5)[:NUM_CALLS]
    selector = corag.selector(spelling)
    found = together([lambda question=question: selector.select(question, pool, 80) for question in questions])
    by_itself = corag.selector(spelling)
    alone = {question: by_itself.select(question, pool, 80) for question in dict.fromkeys(questions)}
    for question, one in zip(questions, found, strict=True):
        assert one.ids == alone[question].ids
        assert one.value == pytest.approx(alone[question].value, abs=1e-5)

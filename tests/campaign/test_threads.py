"""One selector used by several threads at once gives what it gives one by one.

What selectors keep are caches, models and, with an agent, other selectors; each by itself is fixed once it is built.
"""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import corag
from tests.effort import CAMPAIGN
from tests.experiments.worlds import DOCUMENTS, QUERIES
from tests.fakes import SignEmbedder, sign_agent

NUM_THREADS, NUM_CALLS = (8, 1000) if CAMPAIGN else (4, 12)
# An agent that knows two kinds of questions.
QUESTIONS = [query["question"].removesuffix("?" * (number % 2)) for number, query in enumerate(QUERIES)]
SELECTORS = {
    "corag": {},
    "crag": {},
    "corag with an agent": {"agent": sign_agent(), "embedder": SignEmbedder()},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SELECTORS)
def test_threads_choose_as_one_by_one(name):
    texts = [f"{document['title']}\n{document['text']}" for document in DOCUMENTS[:9]]
    questions = (QUESTIONS * NUM_CALLS)[:NUM_CALLS]
    # Built anew, so that models and caches are first used by all threads at once.
    shared, alone = (corag.selector(name.partition(" ")[0], **SELECTORS[name]) for _ in range(2))
    ready = threading.Barrier(NUM_THREADS)
    with ThreadPoolExecutor(NUM_THREADS, initializer=ready.wait) as threads:
        found = list(threads.map(lambda question: shared.select(question, texts, 80), questions))
    expected = {question: alone.select(question, texts, 80) for question in dict.fromkeys(questions)}
    for question, one in zip(questions, found, strict=True):
        assert one.ids == expected[question].ids
        assert one.value == pytest.approx(expected[question].value, abs=1e-5)

"""A reranker's window: what fits, what is cut, and what is split."""

import itertools

import numpy as np
import pytest

from corag import Chunk
from corag.rerankers.cosine import MiniLMCosine
from corag.rerankers.scorers import CachedScorer, score_together
from corag.rerankers.window import WindowedScorer, window_spans
from corag.selectors.corag.selector import Corag
from corag.selectors.reranking import Naive, Upper
from corag.text.documents import SEPARATOR
from tests.corag.worlds import CHARACTERS, HashReranker, offer

pytestmark = pytest.mark.slow

QUESTION = "which river?"


class Letters:
    """Sees `window` letters of an order, each a token, and values rows by a hash; remembers the rows."""

    name = "letters"

    def __init__(self, window=12):
        self.max_tokens = window
        self.seen = []

    def score(self, query, texts):
        return HashReranker().score(query, [text[: self.max_tokens] for text in texts])

    def scorer(self, query, chunks):
        return LettersScorer(self, query, [chunk.text for chunk in chunks])


class LettersScorer(WindowedScorer):
    def __init__(self, reranker, query, texts):
        super().__init__(reranker.max_tokens)
        self.reranker, self.query, self.texts = reranker, query, texts

    @staticmethod
    def score_jointly(requests):
        return [scorer.values(orders) for scorer, orders in requests]

    def values(self, orders):
        joined = [SEPARATOR.join(self.texts[index] for index in order) for order in orders]
        spans = self.spans(orders, list(map(len, joined)))
        texts = [joined[owner][start:end] for owner, start, end in spans]
        self.reranker.seen += texts
        return spans.pooled(self.reranker.score(self.query, texts))


def chunks_of(texts):
    return [Chunk(str(rank), text) for rank, text in enumerate(texts)]


# Splits


@pytest.mark.parametrize(
    ("length", "tokens", "starts"),
    [(11, 10, [0, 1]), (15, 10, [0, 5]), (16, 10, [0, 5, 6]), (21, 10, [0, 5, 10, 11]), (9, 3, [0, 1, 2, 3, 4, 5, 6]),
     (5, 1, [0, 1, 2, 3, 4]), (12, 5, [0, 2, 4, 6, 7])],
)  # fmt: skip
def test_windows_by_hand(length, tokens, starts):
    assert window_spans(length, tokens) == [(start, start + tokens) for start in starts]


def test_rows_by_hand():
    orders = [(0,), (0, 1), (2,)]
    rows = {}
    for policy in ("truncate", "windows"):
        scorer = LettersScorer(Letters(4), "", []).under(policy)
        made = scorer.spans(orders, [4, 7, 0])
        rows[policy] = made.bounds, made.owners.tolist()
        assert scorer.overlong_orders == {(0, 1)}
        assert scorer.num_truncated == (policy == "truncate")
        assert made.pooled(np.array([0.5, 0.2, 0.7, 0.4, 0.1][: len(made.bounds)])).tolist() == {
            "truncate": [0.5, 0.2, 0.7], "windows": [0.5, 0.7, 0.1],
        }[policy]  # fmt: skip
    assert rows == {
        "truncate": ([(0, 4), (0, 4), (0, 0)], [0, 1, 2]),
        "windows": ([(0, 4), (0, 4), (2, 6), (3, 7), (0, 0)], [0, 1, 1, 1, 2]),
    }
    assert LettersScorer(Letters(4), "", []).spans([], []).pooled(np.zeros(0)).shape == (0,)


# Selectors

POOL = offer("aaaa", "bbbb", "cccccccccccccccc")


@pytest.mark.parametrize("method", [Naive, Upper, Corag])
def test_the_trace_counts_what_was_cut(method):
    noted = {}
    for policy in ("windows", "truncate"):
        settings = {"unit": "passage", "search": {"iterations": 20}} if method is Corag else {}
        selector = method(reranker=Letters(10), window=policy, tokens=CHARACTERS, **settings)
        noted[policy] = selector.select("who?", POOL, 26).trace.truncated
    assert noted["windows"] == 0 < noted["truncate"]
    if method is Upper:
        # (2,) and the four orders of it with one other chunk; not (0, 1) and (1, 0), which take the whole window.
        assert noted["truncate"] == 5


# Scorers of several questions

PASSAGES = ["The Spree flows.", "A river, slowly: it ran through all the towns.", "Bananas.", "Berlin is old"]
ORDERS = [order for size in (1, 2, 3) for order in itertools.permutations(range(4), size)]


def test_policies_of_minilm_cosine():
    reranker = MiniLMCosine(max_tokens=8)
    scorer = reranker.scorer(QUESTION, chunks_of(PASSAGES))
    joined = [SEPARATOR.join(PASSAGES[index] for index in order) for order in ORDERS]
    whole, ids = reranker.score(QUESTION, joined), reranker.encoder.whole_ids(joined)
    overlong = np.array([len(row) > 8 for row in ids])
    assert 0 < overlong.sum() < len(ORDERS)
    expected = {"truncate": whole}
    expected["windows"] = [
        float(reranker.encoder.sentence_embeddings([row[start:end] for start, end in window_spans(len(row), 8)])
              .astype(float).dot(reranker.query_vector(QUESTION)).max()) for row in ids
    ]  # fmt: skip
    for policy, values in expected.items():
        under = scorer.under(policy)
        assert under(ORDERS) == pytest.approx(values, abs=1e-5)
        assert under.overlong_orders == {order for order, long in zip(ORDERS, overlong, strict=True) if long}
    assert scorer.overlong_orders == set()


def test_orders_of_many_questions_share_batches():
    one, other = Letters(12), Letters(12)
    scorers = [
        CachedScorer(reranker.scorer(query, chunks_of(PASSAGES)).under("windows"), "letters", ["0", "1", "2", "3"])
        for reranker, query in ((one, "who?"), (other, "who?"), (one, "where?"))
    ]
    calls, joint = [], LettersScorer.score_jointly

    def noting(requests):
        calls.append(len(requests))
        return joint(requests)

    LettersScorer.score_jointly = staticmethod(noting)
    try:
        found = score_together([(scorer, ORDERS[: 9 + row]) for row, scorer in enumerate(scorers)])
    finally:
        LettersScorer.score_jointly = staticmethod(joint)
    assert calls == [2, 1]
    for row, (query, values) in enumerate(zip(("who?", "who?", "where?"), found, strict=True)):
        alone = Letters(12).scorer(query, chunks_of(PASSAGES)).under("windows")
        assert values.tolist() == alone(ORDERS[: 9 + row]).tolist()

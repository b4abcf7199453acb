"""A reranker's window: what fits, what is cut, and what is split."""

import numpy as np
import pytest

from corag.rerankers.window import WindowedQuestion, WindowedReranker
from corag.selectors.corag.search import Corag
from corag.selectors.reranking import Naive, Upper
from corag.text.documents import SEPARATOR
from tests.fakes import CHARACTERS, HashReranker, chunks_of, offer

pytestmark = pytest.mark.slow


class Letters(WindowedReranker):
    """Sees `window` letters of an order, each a token, and values texts by a hash."""

    name = "letters"

    def __init__(self, window=12):
        self.max_tokens = window
        self.calls = []

    def question(self, query):
        return WindowedQuestion(query, self.max_tokens)

    def read(self, texts):
        return texts

    def join(self, orders):
        return list(map(SEPARATOR.join, orders))

    def values(self, pairs):
        self.calls.append([text for _, text in pairs])
        return np.array([HashReranker().score(query, [text])[0] for query, text in pairs])


@pytest.mark.parametrize(
    ("policy", "texts"), [("truncate", ["abcd", "abcd", ""]), ("windows", ["abcd", "abcd", "cd\n\n", "d\n\ne", ""])]
)
def test_what_the_model_is_given_and_which_value_counts(policy, texts):
    reranker = Letters(4)
    scorer = reranker.scorer("who?", chunks_of(["abcd", "e", ""]))
    scorer.policy = policy
    values = scorer([(0,), (0, 1), (2,)])
    assert reranker.calls == [texts]
    first, *of_pair, last = HashReranker().score("who?", texts)
    assert values.tolist() == [first, max(of_pair), last]
    assert scorer.overlong_orders == {(0, 1)}
    assert scorer.num_truncated == (policy == "truncate")
    assert scorer([]).shape == (0,)


@pytest.mark.parametrize("method", [Naive, Upper, Corag])
def test_the_trace_counts_what_was_cut(method):
    noted = {}
    for policy in ("windows", "truncate"):
        settings = {"unit": "passage", "search": {"iterations": 20}} if method is Corag else {}
        selector = method(reranker=Letters(10), window=policy, tokenizer=CHARACTERS, **settings)
        noted[policy] = selector.select("who?", offer("aaaa", "bbbb", "c" * 16), 26).trace.truncated
    assert noted["windows"] == 0 < noted["truncate"]
    if method is Upper:
        # (2,) and the four orders of it with one other chunk; not (0, 1) and (1, 0), which take the whole window.
        assert noted["truncate"] == 5

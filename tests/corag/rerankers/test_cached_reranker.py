"""Values of rerankers on disk: found again, kept apart, only finite ones."""

import pytest

from corag import Chunk
from corag.errors import InputError
from corag.rerankers.bm25 import Bm25
from corag.rerankers.cached import CachedReranker
from corag.types import Reranker

TEXTS = ["a", "ab", "b", "c d", ""]
CHUNKS = [Chunk(str(rank), text) for rank, text in enumerate(TEXTS)]
ORDERS = [(0,), (1, 2), (2, 1), (3, 0, 4)]


class Counting:
    """Values texts by their letters, remembers what it was asked, and cuts what has more than `window` letters."""

    def __init__(self, identity="counting 1", window=3):
        self.name = "counting"
        self.identity = identity
        self.window = window
        self.asked = []

    def score(self, query, texts):
        return self.scorer(query, [Chunk(str(row), text) for row, text in enumerate(texts)])(
            [(row,) for row in range(len(texts))]
        )

    def scorer(self, query, chunks):
        return CountingScorer(self, query, [chunk.text for chunk in chunks])


class CountingScorer:
    order_matters = True

    def __init__(self, reranker, query, texts):
        self.reranker, self.query, self.texts = reranker, query, texts
        self.overlong_orders = set()

    @property
    def num_truncated(self):
        return len(self.overlong_orders)

    def __call__(self, orders):
        joined = ["|".join(self.texts[index] for index in order) for order in orders]
        self.reranker.asked.extend(joined)
        self.overlong_orders |= {o for o, text in zip(orders, joined, strict=True) if len(text) > self.reranker.window}
        return [value_of(self.query, text) for text in joined]


def value_of(query, text):
    return 1 / (3 + sum(position * ord(letter) for position, letter in enumerate(query + text)))


def test_a_second_run_asks_for_nothing(tmp_path):
    path = tmp_path / "values.sqlite"
    first, second = Counting(), Counting()
    values = CachedReranker(first, path).scorer("who?", CHUNKS)(ORDERS)
    assert values.tolist() == [value_of("who?", text) for text in ("a", "ab|b", "b|ab", "c d|a|")]
    assert CachedReranker(second, path).scorer("who?", CHUNKS)(ORDERS).tolist() == values.tolist()
    assert (len(first.asked), second.asked) == (4, [])
    assert isinstance(CachedReranker(second, path), Reranker)


def test_what_values_depend_on_keeps_them_apart(tmp_path):
    path = tmp_path / "values.sqlite"
    moved = [Chunk("0", "a"), Chunk("1", "a|b")]
    for reranker, query, chunks, order in [
        (Counting(), "who?", CHUNKS, (0, 2)),
        (Counting(), "who?", CHUNKS, (2, 0)),
        (Counting(), "who", CHUNKS, (0, 2)),
        (Counting("counting 2"), "who?", CHUNKS, (0, 2)),
        (Counting(), "who?", moved, (1,)),
    ]:
        CachedReranker(reranker, path).scorer(query, chunks)([order])
        assert len(reranker.asked) == 1


@pytest.mark.parametrize("runs", [1, 2])
def test_overlong_orders_are_counted_whoever_knew_them(tmp_path, runs):
    for _ in range(runs):
        scorer = CachedReranker(Counting(window=4), tmp_path / "values.sqlite").scorer("who?", CHUNKS)
        scorer([*ORDERS, (3, 0)])
        scorer([(3, 0)])
    assert scorer.overlong_orders == {(3, 0), (3, 0, 4)}
    assert scorer.num_truncated == 2


def test_a_reranker_without_identity_is_refused(tmp_path):
    with pytest.raises(InputError, match="the values of reranker 'bm25' cannot be cached: it has no `identity`"):
        CachedReranker(Bm25(), tmp_path / "values.sqlite")
    assert not (tmp_path / "values.sqlite").exists()

"""Values on disk: found again, kept apart, shared by processes, refused when damaged."""

import math
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import corag
from corag import Candidate, Chunk
from corag.errors import DataError, InputError, ScoringError
from corag.memory.store import Entry, ValueStore
from corag.rerankers.bm25 import Bm25
from corag.rerankers.cosine import MiniLMCosine
from corag.rerankers.stored import Stored
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


# The file


keys = st.binary(min_size=1, max_size=8)
entries = st.builds(Entry, st.floats(allow_nan=False, allow_infinity=False), st.booleans())


@given(st.lists(st.dictionaries(keys, entries, max_size=5), max_size=4), st.lists(keys, max_size=5))
def test_the_store_is_a_dictionary_that_keeps_what_came_first(tmp_path_factory, batches, others):
    path = tmp_path_factory.mktemp("store") / "values.sqlite"
    expected = {}
    for batch in batches:
        ValueStore(path).put(batch)
        expected = {**batch, **expected}
    found = ValueStore(path).get([*expected, *others])
    assert found == {key: expected[key] for key in [*expected, *others] if key in expected}


def test_a_store_in_a_folder_that_is_not_there(tmp_path):
    store = ValueStore(tmp_path / "new" / "folder" / "values.sqlite")
    assert store.get([b"a"]) == {}
    assert store.path.is_file()


@pytest.mark.parametrize("content", [b"not a database, but long enough to be read as one " * 50, b"\x00" * 5000])
def test_what_is_no_store_is_refused(tmp_path, content):
    path = tmp_path / "values.sqlite"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"the store of values .*values.sqlite cannot be used: .*; delete the file, wh"):
        ValueStore(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("statement", ["CREATE TABLE mine (a)", "PRAGMA user_version = 7"])
def test_another_database_is_left_alone(tmp_path, statement):
    path = tmp_path / "values.sqlite"
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.close()
    content = path.read_bytes()
    with pytest.raises(DataError, match="another program's database, or a store of another version; delete the file"):
        ValueStore(path)
    assert path.read_bytes() == content


def test_a_store_damaged_later(tmp_path):
    store = ValueStore(tmp_path / "values.sqlite")
    store.put({bytes([row]) * 32: Entry(0.5, False) for row in range(200)})
    content = bytearray(store.path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    store.path.write_bytes(content)
    with pytest.raises(DataError, match=r"cannot be used: .*malformed.*; delete the file"):
        store.get([bytes([7]) * 32])
    with pytest.raises(DataError, match="cannot be used"):
        store.put({b"new": Entry(0.5, False)})


def test_a_folder_in_the_place_of_the_file(tmp_path):
    with pytest.raises(DataError, match="cannot be used: unable to open"):
        ValueStore(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be used"):
        ValueStore(tmp_path / "file" / "values.sqlite")


def test_threads_share_a_store(tmp_path):
    store = ValueStore(tmp_path / "values.sqlite")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda row: store.put({b"%d" % row: Entry(row, False)}), range(40)))
    assert {int(key): entry.value for key, entry in store.get([b"%d" % row for row in range(40)]).items()} == {
        row: row for row in range(40)
    }


def test_processes_share_a_store(tmp_path):
    path = tmp_path / "values.sqlite"
    code = (
        "import sys\n"
        "from corag.memory.store import Entry, ValueStore\n"
        "first = int(sys.argv[2])\n"
        "for row in range(first, first + 20):\n"
        "    ValueStore(sys.argv[1]).put({b'%d' % row: Entry(row, False)})\n"
    )
    workers = [subprocess.Popen([sys.executable, "-c", code, str(path), str(20 * number)]) for number in range(4)]
    assert [worker.wait(timeout=60) for worker in workers] == [0] * 4
    assert len(ValueStore(path).get([b"%d" % row for row in range(80)])) == 80


def test_a_new_store_may_be_opened_by_many_at_once(tmp_path):
    together = Barrier(8)

    def opened(row, path):
        together.wait()
        ValueStore(path).put({b"%d" % row: Entry(row, False)})

    with ThreadPoolExecutor(8) as pool:
        for path in (tmp_path / f"{number}.sqlite" for number in range(30)):
            list(pool.map(opened, range(8), [path] * 8))
            assert len(ValueStore(path).get([b"%d" % row for row in range(8)])) == 8


# The reranker


def test_a_second_run_asks_for_nothing(tmp_path):
    path = tmp_path / "values.sqlite"
    first, second = Counting(), Counting()
    values = Stored(first, path).scorer("who?", CHUNKS)(ORDERS)
    assert values.tolist() == [value_of("who?", text) for text in ("a", "ab|b", "b|ab", "c d|a|")]
    assert Stored(second, path).scorer("who?", CHUNKS)(ORDERS).tolist() == values.tolist()
    assert (len(first.asked), second.asked) == (4, [])
    assert isinstance(Stored(second, path), Reranker)


def test_only_what_is_missing_is_asked_for(tmp_path):
    reranker = Counting()
    scorer = Stored(reranker, tmp_path / "values.sqlite").scorer("who?", CHUNKS)
    scorer([(0,), (1,)])
    values = scorer([(2,), (0,), (2,), (1, 0)])
    assert reranker.asked == ["a", "ab", "b", "ab|a"]
    assert values.tolist() == [value_of("who?", text) for text in ("b", "a", "b", "ab|a")]
    assert scorer([]).shape == (0,)


def test_score_and_single_chunks_share_values(tmp_path):
    reranker = Counting()
    stored = Stored(reranker, tmp_path / "values.sqlite")
    values = stored.score("who?", TEXTS)
    assert stored.scorer("who?", CHUNKS[::-1])([(row,) for row in range(5)]).tolist() == values[::-1].tolist()
    assert len(reranker.asked) == 5


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
        Stored(reranker, path).scorer(query, chunks)([order])
        assert len(reranker.asked) == 1


@pytest.mark.parametrize("runs", [1, 2])
def test_overlong_orders_are_counted_whoever_knew_them(tmp_path, runs):
    for _ in range(runs):
        scorer = Stored(Counting(window=4), tmp_path / "values.sqlite").scorer("who?", CHUNKS)
        scorer([*ORDERS, (3, 0)])
        scorer([(3, 0)])
    assert scorer.overlong_orders == {(3, 0), (3, 0, 4)}
    assert scorer.num_truncated == 2


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_cannot_be_ranked_is_not_kept(tmp_path, monkeypatch, value):
    stored = Stored(Counting(), tmp_path / "values.sqlite")
    monkeypatch.setattr("tests.corag.test_store.value_of", lambda query, text: value if text == "b" else 0.5)
    with pytest.raises(ScoringError, match=f"reranker 'counting' returned {value} for the chunks '2'"):
        stored.scorer("who?", CHUNKS)([(0,), (2,)])
    monkeypatch.setattr("tests.corag.test_store.value_of", lambda query, text: 0.25)
    assert stored.scorer("who?", CHUNKS)([(0,), (2,)]).tolist() == [0.25, 0.25]


def test_a_reranker_without_identity_is_refused(tmp_path):
    with pytest.raises(InputError, match="the values of reranker 'bm25' cannot be stored: it has no `identity`"):
        Stored(Bm25(), tmp_path / "values.sqlite")
    assert not (tmp_path / "values.sqlite").exists()


def test_a_selector_with_a_stored_reranker(tmp_path):
    texts = ["Berlin is the capital of Germany.", "The Spree flows through Berlin.", "Bananas are yellow."]
    candidates = [Candidate(Chunk(str(rank), text), 1 - 0.1 * rank) for rank, text in enumerate(texts)]
    plain = MiniLMCosine()
    expected = corag.selector("corag", reranker=plain).select("Which river flows there?", candidates, 20)
    for _ in range(2):
        stored = corag.selector("corag", reranker=Stored(plain, tmp_path / "values.sqlite"))
        selection = stored.select("Which river flows there?", candidates, 20)
        assert selection.ids == expected.ids
        assert selection.value == pytest.approx(expected.value, abs=1e-6)
        assert np.isfinite(selection.value)

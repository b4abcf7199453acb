"""Caches: bounded by bytes, computed once, shared by threads; texts in a file survive what cuts it off."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from corag.memory import ENTRY_BYTES, LRU, Capacity, TextStore, size_of


def test_caches_of_one_capacity_share_its_bytes():
    entry = size_of("a") + size_of("A") + ENTRY_BYTES
    capacity = Capacity(3 * entry)
    words, others = LRU(capacity), LRU(capacity)
    words.put({"a": "1", "b": "2"})
    others.put({"a": "3"})
    assert (words.get("ab"), others.get("ab")) == ({"a": "1", "b": "2"}, {"a": "3"})
    words.get("a")
    others.put({"c": "4"})  # `b` is the least recently used
    assert (words.get("ab"), others.get("ac")) == ({"a": "1"}, {"a": "3", "c": "4"})
    assert capacity.used_bytes == 3 * entry
    others.put({"d": "d" * 3 * entry})
    assert (capacity.used_bytes, len(capacity.entries)) == (0, 0)


def test_threads_share_a_capacity():
    capacity = Capacity(5000)
    caches = [LRU(capacity) for _ in range(4)]

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(1000):
            cache = caches[rng.integers(4)]
            values = cache.get_many(rng.integers(0, 40, 3).tolist(), lambda new: [bytes(key % 7) for key in new])
            assert all(len(value) < 7 for value in values)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # without the lock the bytes are wrong
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
    finally:
        sys.setswitchinterval(interval)
    entries = [entry for cache in caches for entry in cache.get(range(40)).items()]
    kept = [size_of(key) + size_of(value) + ENTRY_BYTES for key, value in entries]
    assert (sum(kept), len(kept)) == (capacity.used_bytes, len(capacity.entries))
    assert sum(kept) <= 5000


keys = st.text(max_size=8)


@settings(max_examples=30)
@given(st.lists(st.lists(st.tuples(keys, keys), max_size=5), max_size=4), st.lists(keys, max_size=5))
def test_a_file_is_a_dictionary_that_keeps_the_first_text(tmp_path_factory, batches, others):
    path = tmp_path_factory.mktemp("memory") / "folder" / "texts.jsonl"
    expected = {}
    for batch in batches:
        store = TextStore(path)
        for key, text in batch:
            store.put(key, text)
            expected.setdefault(key, text)
    store = TextStore(path)
    assert {key: store.get(key) for key in [*expected, *others]} == dict.fromkeys(others) | expected


def test_lines_that_hold_no_text_are_passed_over(tmp_path):
    path = tmp_path / "texts.jsonl"
    TextStore(path).put("a", "first")
    whole = path.read_bytes()
    path.write_bytes(whole + b"\n[1]\nnot JSON \xff" + whole[: len(whole) // 2])  # the last one is cut off by a kill
    store = TextStore(path)
    store.put("b", "second")
    assert [TextStore(path).get(key) for key in ("a", "b")] == ["first", "second"]

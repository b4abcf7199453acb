"""Caches: bounded by bytes, computed once, shared by threads and processes; a damaged file is refused."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corag.errors import DataError
from corag.memory import ENTRY_BYTES, LRU, Capacity, DiskStore, size_of


@pytest.mark.parametrize(("batch", "expected"), [(None, ["cb"]), (1, ["c", "b"])])
def test_only_what_is_missing_is_computed_once_in_order(batch, expected):
    cache, asked = LRU(10_000), []

    def compute(new):
        asked.append("".join(new))
        return [key.upper() for key in new]

    cache.put({"a": "A"})
    assert cache.get_many("cabca", compute, batch) == ["C", "A", "B", "C", "A"]
    assert cache.get_many("abc", compute, batch) == ["A", "B", "C"]
    assert cache.get_many("", compute, batch) == []
    assert asked == expected


class Owner:
    pass


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


def test_caches_of_one_owner_share_their_entries():
    capacity, owner = Capacity(1000), Owner()
    LRU(capacity, owner=owner).put({"a": "A"})
    assert LRU(capacity, owner=owner).get("a") == {"a": "A"}
    assert LRU(capacity).get("a") == LRU(capacity, owner=Owner()).get("a") == {}


def test_threads_share_a_capacity():
    capacity = Capacity(5000)
    caches = [LRU(capacity) for _ in range(4)]

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(3000):
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


keys = st.binary(min_size=1, max_size=8)


@pytest.mark.slow
@settings(max_examples=15)
@given(st.lists(st.dictionaries(keys, st.binary(max_size=8), max_size=5), max_size=4), st.lists(keys, max_size=5))
def test_a_file_is_a_dictionary_that_keeps_the_first_value(tmp_path_factory, batches, others):
    path = tmp_path_factory.mktemp("memory") / "values.sqlite"
    expected = {}
    for batch in batches:
        DiskStore(path, "values").put(batch)
        expected = {**batch, **expected}
    store = DiskStore(path, "values")
    present = store.get([*expected, *others])
    assert present == {key: expected[key] for key in [*expected, *others] if key in expected}


def test_a_file_of_another_kind_is_refused(tmp_path):
    path, content = tmp_path / "values.sqlite", b"not a database, but long enough to be read as one " * 200
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"values\.sqlite"):
        DiskStore(path, "values")
    assert path.read_bytes() == content
    store = DiskStore(tmp_path / "later", "values")
    store.path.write_bytes(content)
    with pytest.raises(DataError):
        store.get([b"1"])


@pytest.mark.slow
def test_processes_share_a_file(tmp_path):
    path = tmp_path / "values.sqlite"
    code = (
        "import sys\n"
        "from corag.memory import DiskStore\n"
        "first = int(sys.argv[2])\n"
        "for row in range(first, first + 20):\n"
        "    DiskStore(sys.argv[1], 'text').put({b'%d' % row: b'%d' % row})\n"
    )
    workers = [subprocess.Popen([sys.executable, "-c", code, str(path), str(20 * number)]) for number in range(4)]
    assert [worker.wait(timeout=60) for worker in workers] == [0] * 4
    assert len(DiskStore(path, "text").get([b"%d" % row for row in range(80)])) == 80

"""The keyed memory: bounded by bytes, computed once, shared by threads and processes, refused when damaged."""

import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag.errors import DataError, InputError
from corag.memory import TEXT, Memory, Store, forget, megabytes, shared_store, structs, usage
from corag.memory.memory import size_of

NUMBERS = structs("numbers", "<d?")


def on_disk(path, max_bytes=0):
    return Memory(max_bytes, path=path, codec=NUMBERS)


# In RAM


def test_what_was_used_longest_ago_goes_first():
    memory = Memory(2, nbytes=lambda key, value: 1)
    memory.put({"a": 1, "b": 2})
    assert memory.get(["a"]) == {"a": 1}
    memory.put({"c": 3})
    assert memory.get("abc") == {"a": 1, "c": 3}
    memory.put({"a": 4})
    assert memory.get("abc") == {"a": 4, "c": 3}


def test_entries_are_counted_in_bytes():
    memory = Memory(10_000)
    memory.put({"large": np.zeros(2000)})
    assert memory.get(["large"]) == {}
    memory.put({number: np.zeros(100) for number in range(50)})
    kept = memory.get(range(50))
    assert 8 <= len(kept) <= 9
    assert set(kept) == set(range(50 - len(kept), 50))
    memory.put({49: np.zeros(500)})  # a larger value in the place of a smaller one
    assert set(memory.get(range(50))) < set(kept)


def test_sizes():
    @dataclass
    class Pair:
        vector: np.ndarray
        name: str

    assert size_of(np.zeros((3, 4))) == 96
    assert size_of("a" * 1000) >= 1000
    assert size_of([b"ab" * 500, {"key": np.zeros(10)}]) >= 1080
    assert size_of(Pair(np.zeros(10), "x" * 100)) >= 180


def test_a_memory_of_no_bytes():
    memory = Memory(0)
    memory.put({"a": 1})
    assert memory.get("a") == {}
    assert memory.get_many("aba", lambda new: [key.upper() for key in new]) == ["A", "B", "A"]
    with pytest.raises(InputError, match="a cache of -1 bytes is impossible"):
        Memory(-1)
    with pytest.raises(InputError, match=r"cache_mb must be at least 0, got -0\.5"):
        megabytes(-0.5)
    assert megabytes(1.5) == 1_500_000


@pytest.mark.parametrize(("batch", "expected"), [(None, ["cb"]), (1, ["c", "b"]), (5, ["cb"])])
def test_only_what_is_missing_is_computed_once_in_order(batch, expected):
    memory, asked = Memory(10_000), []

    def compute(new):
        asked.append("".join(new))
        return [key.upper() for key in new]

    memory.put({"a": "A"})
    assert memory.get_many("cabca", compute, batch) == ["C", "A", "B", "C", "A"]
    assert memory.get_many("abc", compute, batch) == ["A", "B", "C"]
    assert memory.get_many("", compute, batch) == []
    assert asked == expected


def test_batches_before_a_failure_are_kept(tmp_path):
    def compute(new):
        if new == [b"c"]:
            raise RuntimeError
        return [(1.0, False)] * len(new)

    with pytest.raises(RuntimeError):
        on_disk(tmp_path / "file").get_many([b"a", b"b", b"c", b"d"], compute, 1)
    assert set(on_disk(tmp_path / "file").get([b"a", b"b", b"c", b"d"])) == {b"a", b"b"}


def test_another_number_of_values_is_an_error():
    with pytest.raises(ValueError, match="zip"):
        Memory(100).get_many("ab", lambda new: ["A"])


def test_threads_share_a_memory():
    memory = Memory(8, nbytes=lambda key, value: 1)

    def work(seed):
        for key in np.random.default_rng(seed).integers(0, 32, 2000).tolist():
            memory.put({key: key})
            assert all(kept == value for kept, value in memory.get(range(32)).items())

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert len(memory.get(range(32))) == 8


# Together


class Owner:
    pass


def test_memories_of_one_store_share_its_bytes():
    store, owner = Store(8), Owner()
    words, others = (
        Memory(store, kind=kind, owner=owner, nbytes=lambda key, value: len(value)) for kind in ("words", "others")
    )
    words.put({"a": "aaaa", "b": "bb"})
    others.put({"a": "AA"})
    assert (words.get("ab"), others.get("ab")) == ({"a": "aaaa", "b": "bb"}, {"a": "AA"})
    words.get("a")
    others.put({"c": "CC"})  # `b` is what was used longest ago
    assert (words.get("ab"), others.get("ac")) == ({"a": "aaaa"}, {"a": "AA", "c": "CC"})
    assert sum(use.nbytes for use in store.uses()) == 8
    others.put({"d": "d" * 9})
    assert sum(use.nbytes for use in store.uses()) == 0 == sum(use.entries for use in store.uses())


def test_entries_are_shared_by_kind_and_owner():
    store, owner = Store(1000), Owner()
    Memory(store, kind="words", owner=owner).put({"a": "A"})
    assert Memory(store, kind="words", owner=owner).get("a") == {"a": "A"}
    for other in (Memory(store, kind="words"), Memory(store, kind="words", owner=Owner())):
        assert other.get("a") == {}
    assert Memory(store, kind="numbers", owner=owner).get("a") == {}


def test_entries_of_an_owner_that_is_gone_make_room():
    store = Store(4)
    for number in range(20):
        memory = Memory(store, kind="numbers", nbytes=lambda key, value: 1)
        memory.put({"a": number, "b": number})
        assert memory.get("ab") == {"a": number, "b": number}
    assert [(use.entries, use.nbytes) for use in store.uses()] == [(4, 4)]


def test_a_store_is_shared_by_size_while_somebody_has_it():
    held = shared_store(12_345)
    assert shared_store(12_345) is held
    assert shared_store(12_346) is not held
    Memory(held, kind="remnants").put({"a": "A"})
    assert any(use.kind == "remnants" for use in usage())
    del held
    assert not any(use.kind == "remnants" for use in usage())


def test_use_is_counted():
    store = Store(10_000_000)
    memory = Memory(store, kind="things", nbytes=lambda key, value: 1_000_000)
    assert store.uses() == []
    memory.get_many("abc", lambda new: [key.upper() for key in new])
    memory.get_many("aabx", lambda new: [key.upper() for key in new])
    [use] = [use for use in usage() if use.kind == "things"]
    assert (use.found, use.missing, use.entries, use.nbytes, use.max_bytes) == (2, 4, 4, 4_000_000, 10_000_000)
    assert use.hit_rate == pytest.approx(1 / 3)
    assert str(use) == "things: 2 of 6 found (33%), 4 entries, 4.0 of 10 MB"
    network = Memory(1000, kind="")
    network.put({"a": "A"})
    assert all(use.kind for use in usage())
    forget()
    assert (memory.get("abc"), network.get("a")) == ({}, {"a": "A"})
    [use] = store.uses()
    assert (use.found, use.missing, use.entries, use.nbytes) == (0, 3, 0, 0)


@pytest.mark.slow
def test_threads_share_a_store():
    store = Store(50)
    memories = [Memory(store, kind=str(kind), nbytes=lambda key, value: value) for kind in range(4)]

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(1500):
            memory = memories[rng.integers(4)]
            found = memory.get_many(rng.integers(0, 40, 3).tolist(), lambda new: [1 + key % 7 for key in new])
            assert all(1 <= value <= 7 for value in found)
            assert 0 <= sum(use.nbytes for use in store.uses()) <= 50

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    kept = [value for memory in memories for value in memory.get(range(40)).values()]
    assert (sum(kept), len(kept)) == tuple(
        sum(getattr(use, name) for use in store.uses()) for name in ("nbytes", "entries")
    )


# On disk

keys = st.binary(min_size=1, max_size=8)
entries = st.tuples(st.floats(allow_nan=False, allow_infinity=False), st.booleans())


@pytest.mark.slow
@given(st.lists(st.dictionaries(keys, entries, max_size=5), max_size=4), st.lists(keys, max_size=5), st.booleans())
def test_a_file_is_a_dictionary_that_keeps_what_came_first(tmp_path_factory, batches, others, in_ram):
    path = tmp_path_factory.mktemp("memory") / "values.sqlite"
    expected = {}
    for batch in batches:
        on_disk(path).put(batch)
        expected = {**batch, **expected}
    memory = on_disk(path, 10_000 if in_ram else 0)
    for _ in range(2):
        found = memory.get([*expected, *others])
        assert found == {key: expected[key] for key in [*expected, *others] if key in expected}


def test_more_keys_than_a_statement_takes(tmp_path):
    memory = on_disk(tmp_path / "file")
    memory.put({b"%d" % number: (number, True) for number in range(2100)})
    found = memory.get([b"%d" % number for number in range(3000)])
    assert {int(key): value for key, (value, _) in found.items()} == {number: number for number in range(2100)}


def test_kinds_of_values_stay_apart_in_one_file(tmp_path):
    path = tmp_path / "file"
    texts, numbers = Memory(0, path=path, codec=TEXT), on_disk(path)
    texts.put({b"a": "äöü \ud800"})
    assert numbers.get([b"a"]) == {}
    numbers.put({b"a": (1.5, True)})
    assert (texts.get([b"a"]), numbers.get([b"a"])) == ({b"a": "äöü \ud800"}, {b"a": (1.5, True)})


def test_a_file_in_a_folder_that_is_not_there(tmp_path):
    path = tmp_path / "new" / "folder" / "values.sqlite"
    assert on_disk(path).get([b"a"]) == {}
    assert path.is_file()


@pytest.mark.parametrize("content", [b"not a database, but long enough to be read as one " * 50, b"\x00" * 5000])
def test_what_is_no_cache_is_refused(tmp_path, content):
    path = tmp_path / "values.sqlite"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"the cache file .*values.sqlite cannot be used: .*; delete it, which"):
        on_disk(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("statement", ["CREATE TABLE mine (a)", "PRAGMA user_version = 1"])
def test_another_database_is_left_alone(tmp_path, statement):
    path = tmp_path / "values.sqlite"
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.close()
    content = path.read_bytes()
    with pytest.raises(DataError, match="another program's database, or one of another version; delete it"):
        on_disk(path)
    assert path.read_bytes() == content


def test_a_file_damaged_later(tmp_path):
    path = tmp_path / "values.sqlite"
    memory = on_disk(path)
    memory.put({bytes([row]) * 32: (0.5, False) for row in range(200)})
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"cannot be used: .*malformed.*; delete it"):
        memory.get([bytes([7]) * 32])
    with pytest.raises(DataError, match="cannot be used"):
        memory.put({b"new": (0.5, False)})


def test_a_damaged_value(tmp_path):
    memory = on_disk(tmp_path / "file")
    memory.put({b"a": (0.5, False)})
    connection = sqlite3.connect(tmp_path / "file")
    with connection:
        connection.execute("UPDATE numbers SET value = x'00'")
    connection.close()
    with pytest.raises(DataError, match="cannot be used: a value in it is damaged"):
        memory.get([b"a"])


def test_a_folder_in_the_place_of_the_file(tmp_path):
    with pytest.raises(DataError, match="cannot be used: unable to open"):
        on_disk(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be used"):
        on_disk(tmp_path / "file" / "values.sqlite")


def test_threads_share_a_file(tmp_path):
    memory = on_disk(tmp_path / "values.sqlite")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda row: memory.put({b"%d" % row: (row, False)}), range(40)))
    found = memory.get([b"%d" % row for row in range(40)])
    assert {int(key): value for key, (value, _) in found.items()} == {row: row for row in range(40)}


@pytest.mark.slow
def test_processes_share_a_file(tmp_path):
    path = tmp_path / "values.sqlite"
    code = (
        "import sys\n"
        "from corag.memory import TEXT, Memory\n"
        "first = int(sys.argv[2])\n"
        "for row in range(first, first + 20):\n"
        "    Memory(0, path=sys.argv[1], codec=TEXT).put({b'%d' % row: str(row)})\n"
    )
    workers = [subprocess.Popen([sys.executable, "-c", code, str(path), str(20 * number)]) for number in range(4)]
    assert [worker.wait(timeout=60) for worker in workers] == [0] * 4
    assert len(Memory(0, path=path, codec=TEXT).get([b"%d" % row for row in range(80)])) == 80


def test_a_new_file_may_be_opened_by_many_at_once(tmp_path):
    together = Barrier(8)

    def opened(row, path):
        together.wait()
        on_disk(path).put({b"%d" % row: (row, False)})

    with ThreadPoolExecutor(8) as pool:
        for path in (tmp_path / f"{number}.sqlite" for number in range(30)):
            list(pool.map(opened, range(8), [path] * 8))
            assert len(on_disk(path).get([b"%d" % row for row in range(8)])) == 8

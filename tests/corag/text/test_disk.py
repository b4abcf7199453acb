import gzip
import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

import corag.text.data as data_module
from corag.errors import DataError
from corag.text import disk
from corag.text.data import DataFolder, read_corpus
from corag.text.disk import DiskRows, RepeatedIdError, StoredDocuments
from corag.text.documents import Document


@pytest.fixture
def on_disk(monkeypatch):
    monkeypatch.setattr(data_module, "IN_MEMORY_BYTES", 0)


def write(folder, documents, queries=()):
    with gzip.open(folder / "corpus.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in documents)
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in queries))
    return folder


texts = st.text(st.characters(codec="utf-8"), max_size=5)


@given(
    st.lists(st.tuples(st.text(st.characters(codec="utf-8"), min_size=1), texts, texts), unique_by=lambda row: row[0])
)
def test_documents_on_disk_are_those_in_memory(rows):
    documents = {name: Document(name, text, title) for name, title, text in rows}
    stored = StoredDocuments(enumerate(documents.values(), start=1))
    assert dict(stored) == documents
    assert list(stored) == list(documents)
    assert list(stored.values()) == list(documents.values())
    assert list(stored.items()) == list(documents.items())
    assert len(stored) == len(stored.values()) == len(documents)
    assert "no such id at all" not in stored
    with pytest.raises(KeyError):
        stored["no such id at all"]


@pytest.mark.parametrize("number", [0, 1, 999, 1000, 1001, 2500])
def test_rows_come_in_order_from_any_number_on(number):
    rows = [(place, str(place), "a", "b") for place in range(number)]
    stored = DiskRows(rows)
    assert list(stored) == rows
    assert list(stored.ids()) == [str(place) for place in range(number)]
    assert list(stored.rows(998)) == rows[998:]


def test_the_first_repetition_is_named():
    rows = [(1, "a", "", ""), (2, "b", "", ""), (4, "c", "", ""), (7, "b", "", ""), (8, "a", "", ""), (9, "b", "", "")]
    with pytest.raises(RepeatedIdError) as error:
        DiskRows(rows)
    assert (error.value.name, error.value.first, error.value.second) == ("b", 2, 7)


def test_threads_share_rows():
    documents = StoredDocuments((number, Document(str(number), "x" * number)) for number in range(500))
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda number: len(documents[str(number)].text), range(500))) == list(range(500))


def test_a_full_disk_is_an_error_with_a_remedy():
    rows = DiskRows([(0, "a", "", "")])
    with pytest.raises(DataError, match=r"database or disk is full; free some space.*SQLITE_TMPDIR"), rows._errors():
        raise sqlite3.OperationalError("database or disk is full")


def test_a_large_corpus_is_read_as_a_small_one_is(tmp_path, monkeypatch):
    documents = [{"id": str(number), "title": f"t{number}", "text": "words " * number} for number in range(30)]
    queries = [{"id": "q", "question": "What?", "gold": ["3", "nowhere"], "candidates": ["1", "2"]}]
    write(tmp_path, documents, queries)
    small = DataFolder.open(tmp_path)
    monkeypatch.setattr(data_module, "IN_MEMORY_BYTES", 0)
    large = DataFolder.open(tmp_path)
    assert isinstance(large.documents, StoredDocuments)
    assert isinstance(small.documents, dict)
    assert (large.documents, large.queries) == (small.documents, small.queries)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['{"id": "a", "text": "1"}', "", '{"id": "b", "text": "1"}', '{"id": "a", "text": "2"}'],
         r"line 4: id 'a' is already used in line 1; ids must be unique"),
        ([], r"is empty; it needs at least one line"),
        (['{"id": "a", "text": "1"}', '{"id": "b"}'], r"line 2: field 'text' is missing"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("limit", [0, 10**9])
def test_broken_corpora_are_refused_alike(tmp_path, monkeypatch, limit, lines, message):
    monkeypatch.setattr(data_module, "IN_MEMORY_BYTES", limit)
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
    with pytest.raises(DataError, match=message):
        read_corpus(tmp_path)


def test_candidates_are_checked_on_disk_too(tmp_path, on_disk):
    write(tmp_path, [{"id": "a", "text": "1"}], [{"id": "q", "question": "What?", "candidates": ["b"]}])
    with pytest.raises(DataError, match="candidate 'b' is not in the corpus"):
        DataFolder.open(tmp_path)


def test_memory_is_bounded(monkeypatch):
    assert disk._CACHE_KB <= 65_536
    connection = DiskRows([])._connection
    assert connection.execute("PRAGMA cache_size").fetchone() == (-disk._CACHE_KB,)

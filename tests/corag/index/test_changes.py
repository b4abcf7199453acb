"""Large indexes, here of any size, are changed in place: what changes is written, what stays is not."""

import json
import os
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corag.errors import CoragError, DataError, IndexMismatchError
from corag.index import ChunkIndex, IndexUpdate, change, nearest, store, update_index
from corag.index.store import connect, read_records
from corag.text.chunking import ChunkConfig
from tests.corag.index.worlds import WORDS, HashingEmbedder, table_of

pytest.importorskip("lancedb")

NUM_FILES = 300


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest, "MIN_CHUNKS_TO_PARTITION", 1)
    monkeypatch.setattr(nearest, "_CHUNKS_PER_PARTITION", 50)


def text_of(number: int) -> str:
    return f"# Lake {number}\n\nA {WORDS[number % 10]} lake, number{number}.\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "docs"
    place.mkdir()
    for number in range(NUM_FILES):
        (place / f"{number:03}.md").write_text(text_of(number))
    return place


def update(folder: Path, uri: Path, embedder: HashingEmbedder | None = None, **more: Any) -> IndexUpdate:
    return update_index(folder, uri, embedder or HashingEmbedder(), ChunkConfig(32), **more)


def content_of(uri: str | Path) -> list[tuple]:
    """Chunks and vectors, whatever their order."""
    index = ChunkIndex.open(uri)
    vectors = index.vectors()
    assert len(vectors) == len(index)
    return sorted(
        (chunk.id, chunk.text, json.dumps(chunk.metadata), vector.tobytes())
        for chunk, vector in zip(index.chunks(), vectors, strict=True)
    )


def tables(uri: Path) -> list[str]:
    return sorted(path.name for path in uri.glob("corag_chunks_*"))


def unindexed(uri: Path) -> int:
    table = table_of(uri)
    found = table.list_indices()
    assert len(found) == 2
    return max(table.index_stats(index.name).num_unindexed_rows for index in found)


def change_some(folder: Path) -> None:
    """Three of 300 files: one new, one changed, one gone."""
    (folder / "new.md").write_text("# Pond\n\nA pond with a heron.\n")
    (folder / "007.md").write_text("# Lake 7\n\nA dry lake.\n")
    (folder / "200.md").unlink()


@pytest.mark.slow
def test_a_small_change_is_made_in_place(folder: Path, tmp_path: Path):
    uri = tmp_path / "index"
    first = update(folder, uri)
    assert first.index.manifest.format_version == 1
    change_some(folder)
    done = update(folder, uri, embedder := HashingEmbedder())
    changes = done.changes
    assert (changes.added, changes.changed, changes.deleted, changes.unchanged) == (1, 1, 1, NUM_FILES - 2)
    assert embedder.num_embedded == done.written.num_embedded == 2
    assert done.written.num_copied == NUM_FILES - 2
    assert tables(uri) == ["corag_chunks_1.lance"] and len(done.index) == NUM_FILES
    manifest = done.index.manifest
    assert (manifest.format_version, manifest.num_changed) == (2, 4)
    update(folder, tmp_path / "anew")
    assert content_of(uri) == content_of(tmp_path / "anew")
    # New chunks are found by vectors and by words, and are in the search structures; those gone are not found.
    [vector] = HashingEmbedder().embed(["Pond\nA pond with a heron."])
    assert done.index.search(vector, 1)[0].chunk.id.startswith("new.md")
    assert [one.chunk.id.split("#")[0] for one in done.index.search_text("heron", 9)] == ["new.md"]
    assert not done.index.search_text("number200", 9) and not done.index.search_text("number7", 9)
    assert unindexed(uri) == 0
    # Who opened the old state reads it on.
    assert first.index.search_text("number200", 9) and not first.index.search_text("heron", 9)
    assert len(list(first.index.chunks())) == NUM_FILES
    # Nothing has changed since.
    again = update(folder, uri, embedder)
    assert (again.written.num_embedded, again.written.num_copied, embedder.num_embedded) == (0, 0, 2)
    assert again.index.manifest == manifest


@pytest.mark.slow
def test_when_much_has_changed_the_index_is_written_anew(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store, "OLD_VERSIONS_KEPT", timedelta(milliseconds=1))
    uri = tmp_path / "index"
    update(folder, uri)
    sizes, names = [], []
    for number in range(8):
        # Seven files of 300 change: 14 rows.
        for place in range(7):
            (folder / f"{7 * number + place:03}.md").write_text(f"# Lake {number} {place}\n\nAnother lake.\n")
        embedder = HashingEmbedder()
        update(folder, uri, embedder)
        assert embedder.num_embedded == 7
        sizes.append(sum(file.stat().st_size for file in uri.rglob("*") if file.is_file()))
        names += tables(uri)
    # After 4 changes in place (56 rows of 60) the fifth writes anew.
    assert names == ["corag_chunks_1.lance"] * 4 + ["corag_chunks_2.lance"] * 4
    # Old versions do not pile up.
    assert max(sizes) < 2.5 * sizes[4]
    assert len(list((uri / "corag_manifest.lance").rglob("*.manifest"))) <= 2
    update(folder, tmp_path / "anew")
    assert content_of(uri) == content_of(tmp_path / "anew")
    # Written anew, the chunks stand in the order of the files again.
    update(folder, uri, overwrite=True)
    for place in range(100):
        (folder / f"{place:03}.md").write_text(f"# Lake {place}\n\nA third text.\n")
    update(folder, uri)
    assert [chunk.id for chunk in ChunkIndex.open(uri).chunks()] == sorted(
        one.id for one in update(folder, uri).index.chunks()
    )


@pytest.mark.slow
def test_after_some_changes_the_partitions_are_trained_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(change, "_MOST_PARTS", 2)
    uri, parts = tmp_path / "index", []
    update(folder, uri)
    for number in range(4):
        (folder / f"n{number}.md").write_text(f"# N\n\nNew text {number}.\n")
        [vector] = HashingEmbedder().embed([f"N\nNew text {number}."])
        assert update(folder, uri).index.search(vector, 1)[0].chunk.id.startswith(f"n{number}.md")
        parts.append(table_of(uri).index_stats("vector_idx").num_indices)
        assert unindexed(uri) == 0
    # LanceDB may merge parts by itself.
    assert max(parts) <= 2


STATES = st.dictionaries(
    st.sampled_from("abcdef"), st.sampled_from(["One.", "Two.", "# T\n\nA.\n\n# U\n\nB.\n\n# V\n\nC."]), min_size=1
)


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(st.lists(STATES, min_size=2, max_size=4), st.sampled_from([0.0, 0.5, 100.0]), st.data())
def test_any_series_of_changes_holds_what_a_new_index_holds(
    tmp_path_factory: pytest.TempPathFactory, states: list[dict[str, str]], most: float, data: st.DataObject
):
    place = tmp_path_factory.mktemp("series")
    folder, uri = place / "docs", place / "index"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(change, "MOST_CHANGED", most)
        for number, state in enumerate(states):
            for file in folder.iterdir():
                file.unlink()
            for name, text in state.items():
                (folder / f"{name}.md").write_text(text)
            if data.draw(st.booleans()):
                # An update that is cut off, of this state or of a part of it.
                with pytest.raises((KeyboardInterrupt, DataError)) if number else pytest.raises(KeyboardInterrupt):
                    update(folder, uri, StoppedEmbedder(data.draw(st.integers(0, 3))), batch_size=1)
                    raise KeyboardInterrupt
            done = update(folder, uri, embedder := HashingEmbedder(), batch_size=data.draw(st.integers(1, 3)))
            assert done.written.num_embedded == embedder.num_embedded
            update(folder, place / str(number))
            assert content_of(uri) == content_of(place / str(number))
            assert (
                done.changes is not None
                and done.changes.unchanged + done.changes.added + done.changes.changed == len(state)
            )


class StoppedEmbedder(HashingEmbedder):
    """Stops after so many calls."""

    def __init__(self, num_calls: int) -> None:
        super().__init__()
        self.num_calls = num_calls

    def embed(self, texts):
        self.num_calls -= 1
        if self.num_calls < 0:
            raise KeyboardInterrupt
        return super().embed(texts)


def test_a_stopped_change_leaves_the_old_state_and_its_work_is_kept(folder: Path, tmp_path: Path):
    uri = tmp_path / "index"
    update(folder, uri)
    old = content_of(uri)
    for number in range(6):
        (folder / f"n{number}.md").write_text(f"# N\n\nNew text {number}.\n")
    with pytest.raises(KeyboardInterrupt):
        update(folder, uri, StoppedEmbedder(3), batch_size=1)
    assert content_of(uri) == old and tables(uri) == ["corag_chunks_1.lance"]
    # Then another file changes, and one of the new ones goes again.
    (folder / "004.md").write_text("# Lake 4\n\nA deep lake.\n")
    (folder / "n0.md").unlink()
    done = update(folder, uri, embedder := HashingEmbedder())
    assert embedder.num_embedded == 6 - 3 + 1
    update(folder, tmp_path / "anew")
    assert content_of(done.index.uri) == content_of(tmp_path / "anew")


@pytest.mark.slow
@pytest.mark.parametrize("stop_at", [0, 1, 2])
def test_a_change_may_stop_at_each_record(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_at: int):
    uri = tmp_path / "index"
    update(folder, uri)
    old = content_of(uri)
    change_some(folder)
    write, calls = change.write_records, []

    def stop(*arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) > stop_at:
            raise KeyboardInterrupt
        write(*arguments)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(change, "write_records", stop)
        update(folder, uri)
    update(folder, tmp_path / "anew")
    new = content_of(tmp_path / "anew")
    # From the second record on the new state is read.
    assert content_of(uri) == (new if stop_at == 2 else old)
    update(folder, uri, embedder := HashingEmbedder())
    assert content_of(uri) == new and unindexed(uri) == 0
    assert embedder.num_embedded == (2 if stop_at == 0 else 0)


def new_files(folder: Path, number: int) -> list[Path]:
    found = [folder / f"new{one}.md" for one in range(number)]
    for one, path in enumerate(found):
        path.write_text(f"# New {one}\n\nA pond {one} with herons.\n")
    return found


def stop(*_: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.slow
def test_a_change_that_stopped_and_is_not_wanted_any_more_leaves_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    uri = tmp_path / "index"
    update(folder, uri)
    change_some(folder)
    old = content_of(update(folder, uri).index.uri)
    added = new_files(folder, 5)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(change, "write_records", stop)
        update(folder, uri)
    for path in added:
        path.unlink()
    version = update(folder, uri, embedder := HashingEmbedder()).index.manifest.version
    assert content_of(uri) == old and table_of(uri).count_rows() == len(old) and embedder.num_embedded == 0
    assert update(folder, uri).index.manifest.version == version


@pytest.mark.slow
def test_the_version_that_is_read_outlives_an_interrupted_merge(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    uri = tmp_path / "index"
    update(folder, uri)
    new_files(folder, 20)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(change, "_tidy", stop)
        update(folder, uri, batch_size=1)
    new = content_of(uri)
    # The next day.
    monkeypatch.setattr(store, "OLD_VERSIONS_KEPT", timedelta(seconds=1))
    time.sleep(1.1)
    write, calls = change.write_records, []

    def stop_later(*arguments: Any) -> None:
        calls.append(arguments)
        write(*arguments) if len(calls) == 1 else stop()

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(change, "write_records", stop_later)
        update(folder, uri)
    assert content_of(uri) == new and len(calls) == 2
    update(folder, uri, embedder := HashingEmbedder())
    assert content_of(uri) == new and unindexed(uri) == 0 and embedder.num_embedded == 0


@pytest.mark.slow
def test_a_row_that_an_interrupted_change_deleted_comes_back(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    uri = tmp_path / "index"
    update(folder, uri)
    old = content_of(uri)
    (folder / "200.md").unlink()

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(change.np, "array_equal", stop)
        update(folder, uri)
    assert table_of(uri).count_rows() == NUM_FILES - 1
    (folder / "200.md").write_text(text_of(200))
    (folder / "x.md").write_text("# X\n\nSomething else.\n")
    update(folder, uri)
    (folder / "x.md").unlink()
    update(folder, uri)
    assert content_of(uri) == old


def test_a_corpus_is_changed_in_place_and_moved_texts_keep_their_vectors(tmp_path: Path):
    def write_corpus(names: Iterator[str] | list[str]) -> None:
        rows = [json.dumps({"id": name, "title": "", "text": f"Text {name[-3:]}."}) for name in names]
        (tmp_path / "corpus.jsonl").write_text("\n".join(rows))

    names = [f"d{number:03}" for number in range(200)]
    write_corpus(names)
    update(tmp_path, tmp_path / "index")
    # Text 003 moves to another id, in front of all others.
    names[3], names[10] = "new", "z-d003"
    write_corpus(names[10:11] + names[:10] + names[11:])
    reports: list[tuple[int, int]] = []
    done = update(
        tmp_path, tmp_path / "index", embedder := HashingEmbedder(), report=lambda *counts: reports.append(counts)
    )
    assert embedder.num_embedded == 1 and (done.written.num_embedded, done.written.num_copied) == (1, 199)
    assert reports[0] == (198, 200) and reports[-1] == (200, 200)
    update(tmp_path, tmp_path / "anew")
    assert content_of(tmp_path / "index") == content_of(tmp_path / "anew")
    assert tables(tmp_path / "index") == ["corag_chunks_1.lance"]


@pytest.mark.slow
def test_searches_of_a_changed_index_equal_those_of_a_new_one(folder: Path, tmp_path: Path):
    uri = tmp_path / "index"
    update(folder, uri)
    for number in range(3):
        change_some(folder)
        (folder / "200.md").write_text(text_of(200 + number))
        (folder / f"more{number}.md").write_text(f"# More\n\nAnother {WORDS[number]} lake.\n")
        update(folder, uri)
    changed, anew = ChunkIndex.open(uri), update(folder, tmp_path / "anew").index
    assert changed.manifest.version is not None
    queries = np.random.default_rng(0).normal(size=(10, 8))
    for query in queries:
        for retrieval in ("vector", "hybrid"):
            found = [index.retrieve("a red lake", query, 12, retrieval) for index in (changed, anew)]
            ids = [{one.chunk.id for one in some} for some in found]
            assert len(ids[0] & ids[1]) >= 11
    where = {"document": ["new.md", "007.md"]}
    assert {one.chunk.id.split("#")[0] for one in changed.search(queries[0], 9, where)} == {"new.md", "007.md"}


def test_an_index_changed_in_place_says_so_to_earlier_versions_and_a_lost_version_is_told(folder: Path, tmp_path: Path):
    uri = tmp_path / "index"
    update(folder, uri)
    assert set(read_records(connect(uri))[0]) == {
        "format_version", "embedder_name", "dimension", "fingerprint", "num_chunks", "settings", "state", "table",
    }  # fmt: skip
    change_some(folder)
    update(folder, uri)
    [record] = read_records(connect(uri))
    assert record["format_version"] == 2 and record["version"] == table_of(uri).version
    for file in (uri / "corag_chunks_1.lance" / "_versions").glob("*.manifest"):
        os.remove(file)
    with pytest.raises((CoragError, IndexMismatchError), match="index"):
        ChunkIndex.open(uri)


def test_a_file_without_chunks_has_no_runs():
    assert change._runs(np.array([], dtype=np.int64)) == []
    assert change._runs(np.array([4, 5, 9, 2, 3])) == [4, 2, 9, 1, 2, 2]

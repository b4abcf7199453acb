"""Indexes of folders: documents of all formats, and updates that do only what is missing."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corag.index.write as writing
from corag.errors import CoragError, DataError, IndexMismatchError
from corag.index import ChunkIndex, IndexUpdate, update_index
from corag.index.lock import index_lock
from corag.index.reuse import KnownVectors, Rows
from corag.text.chunking import ChunkConfig
from tests.corag.files.worlds import pdf
from tests.corag.index.worlds import HashingEmbedder
from tests.paths import ROOT

lancedb = pytest.importorskip("lancedb")


def update(folder: Path, uri: Path, embedder: HashingEmbedder | None = None, **settings) -> IndexUpdate:
    config = ChunkConfig(settings.pop("max_tokens", 32))
    return update_index(folder, uri, embedder or HashingEmbedder(), config, **settings)


def files_of(changes) -> tuple[int, int, int, int]:
    """New, unchanged, changed and deleted files."""
    return changes.added, changes.unchanged, changes.changed, changes.deleted


def chunks_of(written) -> tuple[int, int]:
    return written.num_embedded, written.num_copied


def rows_of(uri: Path) -> list[dict]:
    return ChunkIndex.open(uri)._table.search().to_arrow().to_pylist()


def write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        (folder / f"{name}.md").write_text(text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "docs"
    place.mkdir()
    write(place, a="# A\n\nThe red stone.\n", b="# B\n\nThe blue river.\n\n## More\n\nMany green trees grow there.\n")
    return place


# --- Updates ---


def test_an_update_does_only_what_is_missing(folder: Path, tmp_path: Path):
    uri = tmp_path / "index"
    first = update(folder, uri)
    assert files_of(first.changes) == (2, 0, 0, 0) and chunks_of(first.written) == (3, 0)
    again = update(folder, uri, embedder := HashingEmbedder())
    assert files_of(again.changes) == (0, 2, 0, 0) and chunks_of(again.written) == (0, 0)
    write(folder, b="# B\n\nThe blue river.\n\n## More\n\nNo trees at all are left there now.\n", c="# C\n\nA cloud.\n")
    os.remove(folder / "a.md")
    third = update(folder, uri, embedder)
    assert files_of(third.changes) == (1, 0, 1, 1) and chunks_of(third.written) == (2, 1)
    assert embedder.num_embedded == 2
    assert [chunk.text for chunk in third.index.chunks()] == [
        "B\nThe blue river.", "B > More\nNo trees at all are left there now.", "C\nA cloud.",
    ]  # fmt: skip
    assert [one.chunk.id.split("#")[0] for one in third.index.search_text("cloud trees stone", 9)] == ["c.md", "b.md"]
    settings = third.index.manifest.settings
    assert settings["documents"] == 2 and settings["source"] == str(folder.resolve())


def test_an_update_equals_a_new_index(folder: Path, tmp_path: Path):
    update(folder, tmp_path / "old")
    write(folder, a="# A\n\nThe red stone.\n\n## New\n\nSomething else that is long enough.\n", c="# C\n\nA cloud.\n")
    update(folder, tmp_path / "old")
    update(folder, tmp_path / "new")
    assert rows_of(tmp_path / "old") == rows_of(tmp_path / "new")
    assert len(list((tmp_path / "old").glob("corag_chunks_*"))) == 1


STATES = st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["One.", "Two.", "One. Two.", "# T\n\nThree.", " "]))


@settings(max_examples=8, deadline=None)
@given(st.lists(STATES, min_size=2, max_size=4), st.data())
def test_any_series_of_updates_equals_a_new_index(tmp_path_factory: pytest.TempPathFactory, states: list, data):
    place = tmp_path_factory.mktemp("series")
    (place / "docs").mkdir()
    whole = False
    for number, state in enumerate(states):
        for file in (place / "docs").iterdir():
            file.unlink()
        write(place / "docs", **state)
        embedder = HashingEmbedder()
        try:
            done = update(place / "docs", place / "index", embedder, batch_size=data.draw(st.integers(1, 3)))
        except DataError:
            # Nothing is left: the index stays as it was.
            assert not any(text.strip() for text in state.values())
            assert not whole or len(ChunkIndex.open(place / "index"))
            continue
        whole = True
        assert done.written.num_embedded == embedder.num_embedded
        update(place / "docs", place / str(number))
        assert rows_of(place / "index") == rows_of(place / str(number))


def test_moved_and_copied_text_is_not_embedded_again(folder: Path, tmp_path: Path):
    update(folder, tmp_path / "index")
    (folder / "b.md").rename(folder / "z.md")
    (folder / "copy.md").write_bytes((folder / "a.md").read_bytes())
    done = update(folder, tmp_path / "index", embedder := HashingEmbedder())
    assert files_of(done.changes) == (2, 1, 0, 1) and embedder.num_embedded == 0


def test_a_corpus_is_updated_too(tmp_path: Path):
    def write_corpus(*texts: str) -> None:
        rows = [json.dumps({"id": f"d{number}", "title": "", "text": text}) for number, text in enumerate(texts)]
        (tmp_path / "corpus.jsonl").write_text("\n".join(rows))

    write_corpus("One text.", "Another text.")
    first = update(tmp_path, tmp_path / "index")
    assert first.changes is None and chunks_of(first.written) == (2, 0)
    write_corpus("A new text.", "One text.", "Another text.")
    assert chunks_of(update(tmp_path, tmp_path / "index").written) == (1, 2)
    assert chunks_of(update(tmp_path, tmp_path / "index").written) == (0, 0)


def test_an_index_of_something_else_is_refused(folder: Path, tmp_path: Path):
    uri, other = tmp_path / "index", tmp_path / "other"
    update(folder, uri)
    other.mkdir()
    write(other, x="Else.")
    with pytest.raises(IndexMismatchError, match=rf"source is '{folder}' there and '{other}' here.*overwrite"):
        update(other, uri)
    with pytest.raises(IndexMismatchError, match="max_tokens is 32 there and 40 here"):
        update(folder, uri, max_tokens=40)
    with pytest.raises(IndexMismatchError, match="embedder 'hashing'"):
        update(folder, uri, HashingEmbedder("else"))
    assert len(ChunkIndex.open(uri)) == 3
    assert len(update(other, uri, overwrite=True).index) == 1


def test_a_moved_folder_with_the_same_content_keeps_its_index(folder: Path, tmp_path: Path):
    update(folder, tmp_path / "index")
    moved = folder.rename(tmp_path / "moved")
    assert chunks_of(update(moved, tmp_path / "index").written) == (0, 0)


def test_vectors_are_found_by_the_whole_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from corag.index import reuse
    from tests.corag.index.worlds import make_chunks, table_of

    chunks = make_chunks(5)
    ChunkIndex.build(tmp_path, chunks, HashingEmbedder())
    monkeypatch.setattr(reuse, "_code", lambda text: 7)
    known = KnownVectors([Rows(table_of(tmp_path))])
    # One code for all: what is found is checked against the text.
    found = known.vectors([chunk.text for chunk in chunks] + ["else"])
    assert sum(vector is not None for vector in found) == 1
    [place] = [place for place, vector in enumerate(found) if vector is not None]
    np.testing.assert_array_equal(found[place], HashingEmbedder().embed([chunks[place].text])[0])


def test_who_holds_an_index_open_is_told_to_open_it_again(folder: Path, tmp_path: Path):
    index = update(folder, tmp_path / "index").index
    write(folder, a="# A\n\nAnother stone.\n")
    update(folder, tmp_path / "index")
    with pytest.raises(CoragError, match="open it again if it was brought up to date"):
        index.search_text("stone", 3)


# --- Files that cannot be read ---


def test_unreadable_files_are_listed_and_left_out(folder: Path, tmp_path: Path):
    (folder / "torn.pdf").write_bytes(pdf([["text"]])[:300])
    (folder / "locked.pdf").write_bytes(pdf([["text"]], password="x"))
    (folder / "scan.pdf").write_bytes(pdf([[]]))
    (folder / "empty.txt").write_bytes(b"")
    (folder / "old.docx").write_bytes(b"\xd0\xcf\x11\xe0")
    (folder / "binary.txt").write_bytes(bytes(range(256)) * 9 + bytes(900))
    (folder / "lost.md").symlink_to("nowhere")
    (folder / "western.txt").write_bytes("Die Größe der Straße beträgt fünf.".encode("cp1252"))
    done = update(folder, tmp_path / "index")
    reasons = done.changes.unreadable
    assert {name: reason.split(":")[0].split(";")[0] for name, reason in reasons.items()} == {
        "lost.md": "cannot be opened",
        "binary.txt": "it is no text, whatever its name says",
        "empty.txt": "empty",
        "locked.pdf": "encrypted",
        "old.docx": "encrypted, or in the old .doc format",
        "scan.pdf": "it holds no text",
        "torn.pdf": "damaged",
    }
    assert list(done.changes.guessed) == ["western.txt"]
    assert done.index.manifest.settings["unreadable"] == reasons
    again = update(folder, tmp_path / "index")
    assert again.changes.unreadable == reasons and files_of(again.changes) == (0, 3, 0, 0)
    (folder / "torn.pdf").write_bytes(pdf([["text"]]))
    (folder / "a.md").write_bytes(b"")
    mended = update(folder, tmp_path / "index")
    assert files_of(mended.changes) == (1, 2, 0, 0)
    assert mended.changes.unreadable["a.md"] == "empty" and "torn.pdf" not in mended.changes.unreadable


def test_a_file_that_vanishes_or_changes_after_it_was_listed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from corag.index import documents

    read = documents.read_bytes

    def meddle(path: Path) -> bytes:
        (folder / "a.md").unlink(missing_ok=True)
        write(folder, b="# B\n\nWhat it says now.\n")
        return read(path)

    with monkeypatch.context() as patch:
        patch.setattr(documents, "read_bytes", meddle)
        done = update(folder, tmp_path / "index")
    assert done.changes.unreadable == {"a.md": "cannot be opened: No such file or directory"}
    assert [chunk.text for chunk in done.index.chunks()] == ["B\nWhat it says now."]
    assert files_of(update(folder, tmp_path / "index").changes) == (0, 1, 0, 0)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "has neither corpus.jsonl.* nor documents .*.md, .*.docx"),
        ({"a.py": "x"}, "neither"),
        ({"a.md": ""}, "a.md: empty; an index needs at least one document"),
        ({"a.md": "\x1c\n\x1d"}, "a.md: it holds no text"),
        ({"a.md": "", "b.txt": " "}, r"none of the 2 documents in .* can be read \(a.md: empty\)"),
    ],
)
def test_a_folder_with_nothing_to_index_is_refused(tmp_path: Path, files: dict, message: str):
    (tmp_path / "docs").mkdir()
    for name, text in files.items():
        (tmp_path / "docs" / name).write_text(text)
    with pytest.raises(DataError, match=message):
        update(tmp_path / "docs", tmp_path / "index")
    with pytest.raises(IndexMismatchError):
        ChunkIndex.open(tmp_path / "index")


def test_a_folder_without_words_does_not_take_the_place_of_an_index(folder: Path, tmp_path: Path):
    (tmp_path / "blank").mkdir()
    (tmp_path / "blank" / "a.txt").write_text("\n")
    uri = tmp_path / "index"
    with pytest.raises(DataError, match=r"a\.txt"):
        update(tmp_path / "blank", uri)
    # What stored nothing is no index of something else.
    assert len(update(folder, uri).index) > 0
    assert not [name for name in lancedb.connect(uri).list_tables().tables if name.endswith("_1")]


def test_an_index_whose_documents_are_all_gone_stays_as_it_was(folder: Path, tmp_path: Path):
    update(folder, tmp_path / "index")
    for file in folder.iterdir():
        file.write_bytes(b"")
    with pytest.raises(DataError, match="none of the 2"):
        update(folder, tmp_path / "index")
    assert len(ChunkIndex.open(tmp_path / "index")) == 3


# --- Interruptions and other writers ---


class StoppedEmbedder(HashingEmbedder):
    def embed(self, texts):
        if self.num_embedded + len(texts) > 3:
            raise KeyboardInterrupt
        return super().embed(texts)


def test_a_stopped_update_leaves_the_old_index_and_its_work_is_kept(folder: Path, tmp_path: Path):
    uri = tmp_path / "index"
    update(folder, uri)
    old = rows_of(uri)
    write(folder, **{f"n{number}": f"# N\n\nNew text {number}." for number in range(6)})
    with pytest.raises(KeyboardInterrupt):
        update(folder, uri, StoppedEmbedder(), batch_size=1)
    assert rows_of(uri) == old
    # Then another file changes: what the stopped update embedded is still worth having.
    write(folder, a="# A\n\nAnother red stone.\n")
    done = update(folder, uri, embedder := HashingEmbedder(), batch_size=1)
    assert files_of(done.changes) == (6, 1, 1, 0)
    assert embedder.num_embedded == 6 - 3 + 1
    update(folder, tmp_path / "new")
    assert rows_of(uri) == rows_of(tmp_path / "new")
    assert len(list(uri.glob("corag_chunks_*"))) == 1


@pytest.mark.parametrize("step", ["write_records", "drop_unrecorded"])
def test_an_update_may_stop_at_each_of_its_last_steps(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
):
    update(folder, tmp_path / "index")
    write(folder, a="# A\n\nChanged.\n")

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(writing, step, stop)
        update(folder, tmp_path / "index")
    assert ChunkIndex.open(tmp_path / "index")
    update(folder, tmp_path / "index")
    assert next(ChunkIndex.open(tmp_path / "index").chunks()).text == "A\nChanged."
    assert len(list((tmp_path / "index").glob("corag_chunks_*"))) == 1


SLOW_UPDATE = """
import sys
from corag.index import update_index
from corag.text.chunking import ChunkConfig
from tests.corag.index.worlds import HashingEmbedder

print("begun", flush=True)
embedder = HashingEmbedder(delay_s=float(sys.argv[3]))
update = update_index(sys.argv[1], sys.argv[2], embedder, ChunkConfig(32), batch_size=2)
print(update.written.num_embedded, update.written.num_copied, flush=True)
"""


def start(folder: Path, uri: Path, delay_s: float) -> subprocess.Popen:
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_UPDATE, str(folder), str(uri), str(delay_s)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    return process


@pytest.mark.slow
def test_killed_updates_leave_the_old_index_and_the_last_one_finishes(folder: Path, tmp_path: Path):
    uri = tmp_path / "index"
    update(folder, uri)
    old = rows_of(uri)
    write(folder, **{f"n{number}": f"# N\n\nNew text {number}." for number in range(20)})
    for delay_s in (0.2, 0.6):
        process = start(folder, uri, 0.1)
        time.sleep(delay_s)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert rows_of(uri) == old
    update(folder, uri, batch_size=2)
    update(folder, tmp_path / "new")
    assert rows_of(uri) == rows_of(tmp_path / "new")


@pytest.mark.slow
def test_of_two_writers_one_waits(folder: Path, tmp_path: Path):
    write(folder, **{f"n{number}": f"# N\n\nNew text {number}." for number in range(8)})
    process = start(folder, tmp_path / "index", 0.05)
    own = update(folder, tmp_path / "index", HashingEmbedder(delay_s=0.05)).written
    said, _ = process.communicate()
    assert sorted([said, f"{own.num_embedded} {own.num_copied}\n"]) == ["0 0\n", "11 0\n"]
    update(folder, tmp_path / "new")
    assert rows_of(tmp_path / "index") == rows_of(tmp_path / "new")


def hold(uri: Path, held, release) -> None:
    with index_lock(uri):
        held.set()
        release.wait()


def test_who_waits_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    context = multiprocessing.get_context("fork")
    held, release = context.Event(), context.Event()
    process = context.Process(target=hold, args=(tmp_path, held, release))
    process.start()
    held.wait()
    began_s = time.monotonic()
    threading.Timer(0.3, release.set).start()
    with index_lock(tmp_path):
        assert time.monotonic() - began_s >= 0.25
    process.join()
    assert "another process is writing the index" in caplog.text


def test_a_place_that_cannot_be_made_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(CoragError, match=r"cannot write the index at .*file/index"),
        index_lock(tmp_path / "file/index"),
    ):
        pass

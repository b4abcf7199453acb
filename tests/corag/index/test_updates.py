"""Indexes of folders: updates do only what is missing, in place, and may stop at any moment."""

import gzip
import json
import os
import re
import shutil
import time
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corag.cli.main import main
from corag.errors import DataError, IndexMismatchError, InputError
from corag.files import process
from corag.index import ChunkIndex, store, update_index, write
from corag.text.chunking import ChunkConfig
from tests.corag.files.worlds import ODD, SAMPLES
from tests.corag.index.worlds import StoppedEmbedder, table_of
from tests.fakes import HashEmbedder


def update(folder, uri, embedder=None, **settings):
    config = ChunkConfig(settings.pop("max_tokens", 32))
    return update_index(folder, uri, embedder or HashEmbedder(), config, **settings)


def files_of(done):
    """New, unchanged, changed and deleted files."""
    return tuple(done.files[name] for name in ("new", "unchanged", "changed", "deleted"))


def chunks_of(done):
    return done.num_embedded, done.num_copied


def content_of(uri):
    """Chunks and vectors, whatever their order."""
    index = ChunkIndex.open(uri)
    vectors = index.vectors()
    assert len(vectors) == len(index)
    return sorted(
        (chunk.id, chunk.text, json.dumps(chunk.metadata), vector.tobytes())
        for chunk, vector in zip(index.chunks(), vectors, strict=True)
    )


def write_files(folder, **texts):
    for name, text in texts.items():
        (folder / f"{name}.md").write_text(text)


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "docs"
    place.mkdir()
    write_files(
        place, a="# A\n\nThe red stone.\n", b="# B\n\nThe blue river.\n\n## More\n\nMany green trees grow there.\n"
    )
    return place


def test_an_update_does_only_what_is_missing(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(write, "MIN_CHUNKS_TO_PARTITION", 1)
    uri = tmp_path / "index"
    announced = []
    first = update(folder, uri, announce=announced.append)
    assert files_of(first) == (2, 0, 0, 0) and chunks_of(first) == (3, 0)
    again = update(folder, f"file://{uri}", embedder := HashEmbedder(), announce=announced.append)
    assert announced == [0]
    assert files_of(again) == (0, 2, 0, 0) and chunks_of(again) == (0, 0)
    write_files(
        folder, b="# B\n\nThe blue river.\n\n## More\n\nNo trees at all are left there now.\n", c="# C\n\nA cloud.\n"
    )
    os.remove(folder / "a.md")
    third = update(folder, uri, embedder)
    assert files_of(third) == (1, 0, 1, 1) and chunks_of(third) == (2, 1)
    assert embedder.num_embedded == 2
    assert sorted(chunk.text for chunk in third.index.chunks()) == [
        "B\nThe blue river.", "B > More\nNo trees at all are left there now.", "C\nA cloud.",
    ]  # fmt: skip
    update(folder, tmp_path / "anew")
    assert content_of(uri) == content_of(tmp_path / "anew")
    [vector] = HashEmbedder().embed(["C\nA cloud."])
    found = third.index.retrieve("cloud trees stone", vector, 9, "text")
    assert [one.chunk.id.split("#")[0] for one in found] == ["c.md", "b.md"]
    assert third.index.retrieve("", vector, 1, "vector")[0].chunk.id.startswith("c.md")
    # An index opened before the update still reads the old state.
    assert first.index.retrieve("stone", vector, 9, "text") and not first.index.retrieve("cloud", vector, 9, "text")
    assert len(list(first.index.chunks())) == 3
    assert third.index.manifest.settings["source"] == str(folder.resolve())


def test_a_packed_file_that_has_not_changed_is_not_read_again(folder, tmp_path):
    (folder / "c.md.gz").write_bytes(gzip.compress(b"# C\n\nA cloud.\n"))
    update(folder, tmp_path / "index")
    write_files(folder, a="# A\n\nNo stone.\n")
    read = []
    assert files_of(update(folder, tmp_path / "index", report=lambda *numbers: read.append(numbers))) == (0, 2, 1, 0)
    assert read == [(0, 3), (3, 3)]


STATES_OF_A_FOLDER = st.dictionaries(
    st.sampled_from("abcd"), st.sampled_from(["One.", "Two.", "One. Two.", "# T\n\nA.\n\n# U\n\nB.", " "])
)


@pytest.mark.slow
@settings(max_examples=5, deadline=None)
@given(st.lists(STATES_OF_A_FOLDER, min_size=2, max_size=4), st.sampled_from([1, 10_000]), st.data())
def test_any_series_of_updates_equals_a_new_index(tmp_path_factory, states, large_from, data):
    place = tmp_path_factory.mktemp("series")
    folder, uri = place / "docs", place / "index"
    folder.mkdir()
    whole = False
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write, "MIN_CHUNKS_TO_PARTITION", large_from)
        for number, state in enumerate(states):
            for file in folder.iterdir():
                file.unlink()
            write_files(folder, **state)
            if data.draw(st.booleans()):
                # An update that is cut off, of this state or of a part of it.
                old = content_of(uri) if whole else None
                with pytest.raises((KeyboardInterrupt, DataError)):
                    update(folder, uri, StoppedEmbedder(data.draw(st.integers(0, 3))), batch_size=1)
                    old = None  # nothing was to be embedded, so it was not cut off
                    raise KeyboardInterrupt
                assert old is None or content_of(uri) == old
            embedder = HashEmbedder()
            try:
                done = update(folder, uri, embedder, batch_size=data.draw(st.integers(1, 3)))
            except DataError:
                # Nothing is left: the index stays as it was.
                assert not any(text.strip() for text in state.values())
                assert not whole or len(ChunkIndex.open(uri))
                continue
            whole = True
            assert done.num_embedded == embedder.num_embedded
            update(folder, place / str(number))
            assert content_of(uri) == content_of(place / str(number))
            assert table_of(uri).count_rows() == len(done.index)


@pytest.mark.slow
def test_search_structures_of_a_large_index_are_made_anew_when_much_has_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(write, "MIN_CHUNKS_TO_PARTITION", 1)
    monkeypatch.setattr(store, "OLD_VERSIONS_KEPT", timedelta(milliseconds=1))
    folder, uri = tmp_path / "docs", tmp_path / "index"
    folder.mkdir()
    write_files(folder, **{f"{number:03}": f"# Lake {number}\n\nA lake, number{number}.\n" for number in range(300)})
    update(folder, uri)
    changed, sizes = [], []
    for number in range(6):
        # Seven files of 300 change: 14 rows.
        texts = {f"{7 * number + at:03}": f"# Lake {number} {at}\n\nAnother lake.\n" for at in range(7)}
        write_files(folder, **texts)
        done = update(folder, uri, embedder := HashEmbedder())
        assert embedder.num_embedded == 7
        changed.append(done.index.manifest.num_changed)
        sizes.append(sum(file.stat().st_size for file in uri.rglob("*") if file.is_file()))
        table = table_of(uri)
        indexes = table.list_indices()
        assert len(indexes) == 2 and not any(table.index_stats(one.name).num_unindexed_rows for one in indexes)
    assert changed == [14, 28, 42, 56, 0, 14]
    # Old versions do not pile up.
    assert max(sizes) < 2.5 * sizes[0]
    update(folder, tmp_path / "anew")
    assert content_of(uri) == content_of(tmp_path / "anew")


def test_an_index_of_something_else_is_refused(folder, tmp_path):
    uri, other = tmp_path / "index", tmp_path / "other"
    update(folder, uri)
    other.mkdir()
    write_files(other, x="Else.")
    with pytest.raises(IndexMismatchError, match=str(other)):
        update(other, uri)
    with pytest.raises(IndexMismatchError, match="max_tokens"):
        update(folder, uri, max_tokens=40)
    with pytest.raises(IndexMismatchError, match="hash"):
        update(folder, uri, HashEmbedder("else"))
    assert len(ChunkIndex.open(uri)) == 3
    assert len(update(other, uri, overwrite=True).index) == 1


def test_what_the_files_of_a_folder_repeat_at_their_ends_is_in_one_of_them(tmp_path):
    """Whatever the order of the files; short, rare and inner text stays, and so does a file of nothing else."""
    docs, uri = tmp_path / "docs", tmp_path / "index"
    docs.mkdir()
    notice, foot, text = (
        "This site uses cookies. Do you agree?",
        "Documentation of the pump, 3.2",
        "The red stone of {}.",
    )
    pages = {
        name: f"{notice}\n\n# {name.upper()}\n\n{text.format(name)}\n\nStatus: new\n\n{foot}\n" for name in "abcdefgh"
    }
    pages |= {"only": f"{notice}\n\n{foot}\n", "inner": f"# I\n\nIt says:\n\n{notice}\n\nDo not agree.\n"}
    write_files(docs, **dict(list(pages.items())[:4]))
    update(docs, uri)
    for name, page in list(pages.items())[4:]:
        write_files(docs, **{name: page})
        done = update(docs, uri)
        assert files_of(done) == (1, len(list(docs.iterdir())) - 1, 0, 0)
    write_files(docs, later="# L\n\nIt came later.\n")
    update(docs, uri)
    update(docs, tmp_path / "at once")
    assert content_of(uri) == content_of(tmp_path / "at once")
    texts = [chunk.text for chunk in ChunkIndex.open(uri).chunks()]
    for repeated in (notice, foot):
        having = [text for text in texts if repeated in text]
        assert len(having) == 2 + (repeated == notice)  # one page, "only", and "inner"
    assert all(any(text.format(name) in one for one in texts) for name in "abcdefgh")
    assert sum("Status: new" in one for one in texts) == 8


def test_an_index_among_its_documents_is_no_document(folder):
    update(folder, folder / "index")
    again = update(folder, folder / "index")
    assert files_of(again) == (0, 2, 0, 0) and not again.skipped and chunks_of(again) == (0, 0)


def test_files_that_cannot_be_read_are_listed_and_left_out(folder, tmp_path, capsys):
    (folder / "torn.pdf").write_bytes((SAMPLES / "pump.pdf").read_bytes()[:300])
    for name in ("locked.pdf", "scan.pdf"):
        shutil.copy(ODD / name, folder)
    (folder / "empty.txt").write_bytes(b"")
    (folder / "old.docx").write_bytes(b"\xd0\xcf\x11\xe0")
    (folder / "binary.txt").write_bytes(bytes(range(256)) * 9 + bytes(900))
    (folder / "lost.md").symlink_to("nowhere")
    os.mkfifo(folder / "pipe.txt")
    (folder / "torn.gz").write_bytes(gzip.compress(b"some text of a file" * 99)[:40])
    os.close(os.open(os.fsencode(folder) + b"/caf\xe9.md", os.O_CREAT))
    (folder / "western.txt").write_bytes("Die Größe der Straße beträgt fünf.".encode("cp1252"))
    done = update(folder, tmp_path / "index")
    reasons = done.skipped
    assert {name: reason.split(":")[0].split(";")[0] for name, reason in reasons.items()} == {
        "lost.md": "a broken link, or not a regular file",
        "binary.txt": "not text, and of no type that is read",
        "empty.txt": "empty",
        "locked.pdf": "encrypted",
        "old.docx": "encrypted, or in the old .doc format",
        "pipe.txt": "a broken link, or not a regular file",
        "scan.pdf": "it holds no text",
        "torn.gz": "damaged",
        "torn.pdf": "damaged",
        "caf?.md": "its name is not valid UTF-8",
    }
    assert done.index.manifest.settings["skipped"] == reasons
    again = update(folder, tmp_path / "index")
    assert again.skipped == reasons and files_of(again) == (0, 3, 0, 0)
    for line in ("3 new, 10 skipped; 3 chunks embedded, 0 kept", "3 unchanged, 10 skipped; nothing to do"):
        assert main(["index", "--data", str(folder), "--out", str(tmp_path / "by command"), "--quiet"]) == 0
        said = capsys.readouterr().out
        assert said.startswith(f"files: {line}\n")
    # Files with one reason are on one line.
    for name, reason in reasons.items():
        assert re.search(rf"^  skipped: .*{re.escape(name)}.*: {re.escape(reason)}$", said, re.MULTILINE), name
    shutil.copy(SAMPLES / "pump.pdf", folder / "torn.pdf")
    (folder / "a.md").write_bytes(b"")
    mended = update(folder, tmp_path / "index")
    assert files_of(mended) == (1, 2, 0, 0)
    assert mended.skipped["a.md"] == "empty" and "torn.pdf" not in mended.skipped


def test_what_the_machine_lacked_is_tried_again(folder, tmp_path, monkeypatch):
    uri, programs = tmp_path / "index", tmp_path / "bin"
    programs.mkdir()
    (folder / "pump.1").write_text(".TH PUMP 1\n.SH NAME\npump\n")
    (folder / "shut.md").write_text("Shut.")
    (folder / "shut.md").chmod(0)
    monkeypatch.setenv("PATH", str(programs))
    process._reader(os.getpid()).end()  # another one knows this path
    assert "needs mandoc" in update(folder, uri).skipped["pump.1"]
    assert chunks_of(update(folder, uri)) == (0, 0)
    page = "<table><tr><td class=head-ltitle>pump(1)</table><div class=manual-text><h1>Name</h1><p>It pumps.</div>"
    (programs / "mandoc").write_text(f"#!/bin/sh\necho '{page}'\n")
    (programs / "mandoc").chmod(0o755)
    (folder / "shut.md").chmod(0o600)
    done = update(folder, uri)
    assert done.skipped == {} and done.num_embedded == (1 if os.geteuid() == 0 else 2)
    assert chunks_of(update(folder, uri)) == (0, 0)
    process._reader(os.getpid()).end()


def test_all_files_are_read_again_if_asked(folder, tmp_path, capsys):
    run = ["index", "--data", str(folder), "--out", str(tmp_path / "index"), "--quiet"]
    for more, said in (([], "2 new; 2 chunks embedded"), ([], "nothing to do"), (["--overwrite", "true"], "2 kept")):
        assert main([*run, *more]) == 0
        assert said in capsys.readouterr().out


def test_names_of_files_and_fields_of_a_filter(folder, tmp_path):
    (folder / "cafe\u0301.md").write_text("A cup.")
    assert len(update(folder, tmp_path / "one", include=["caf\u00e9.md"]).index) == 1
    index = update(folder, tmp_path / "all").index
    [vector] = HashEmbedder().embed(["cup"])
    for retrieval in ("vector", "text", "hybrid"):
        [found] = index.retrieve("cup", vector, 9, retrieval, {"document": "caf\u00e9.md"})
        assert found.chunk.metadata["document"] == "cafe\u0301.md"
        with pytest.raises(InputError, match=r"'auth'.*there are document, end, headings"):
            index.retrieve("cup", vector, 9, retrieval, {"auth": "Ann"})
        assert index.retrieve("cup", vector, 9, retrieval, {"document": "none.md"}) == []
    with pytest.raises(InputError, match="local folder, not from s3://a"):
        update("s3://a/b", tmp_path / "index")


@pytest.mark.parametrize(
    "files", [{}, {"a.py": "\0"}, {"a.md": ""}, {"a.md": "\x1c\n\x1d"}, {"a.md": "", "b.txt": " "}]
)
def test_a_folder_with_nothing_to_index_is_refused(tmp_path, files):
    (tmp_path / "docs").mkdir()
    for name, text in files.items():
        (tmp_path / "docs" / name).write_text(text)
    with pytest.raises(DataError, match="docs"):
        update(tmp_path / "docs", tmp_path / "index")
    with pytest.raises(IndexMismatchError):
        ChunkIndex.open(tmp_path / "index")


def test_the_version_that_is_read_outlives_an_interrupted_update(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "OLD_VERSIONS_KEPT", timedelta(seconds=1))
    uri = tmp_path / "index"
    update(folder, uri)
    old = content_of(uri)
    write_files(folder, **{f"n{number}": f"# N\n\nNew text {number}." for number in range(6)})
    # The next day.
    time.sleep(1.1)
    with pytest.raises(KeyboardInterrupt):
        update(folder, uri, StoppedEmbedder(5), batch_size=1)
    assert content_of(uri) == old
    update(folder, uri, embedder := HashEmbedder())
    assert embedder.num_embedded == 1 and len(ChunkIndex.open(uri)) == 9

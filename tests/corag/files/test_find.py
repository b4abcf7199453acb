"""Which files of a folder are documents."""

import os
from pathlib import Path

import pytest

from corag.files.find import find_files


def test_documents_of_all_types_in_one_order(tmp_path: Path):
    names = [
        "b.md", "a.txt", "a/z.PDF", "a/b/c.docx", "a-b/x.html", "B.markdown", "x.htm", "y.rst",
        ".hidden.md", ".git/config.md", "a/.cache/x.txt", "code.py", "picture.PNG", "a/LICENSE", "c.md/inside.md",
    ]  # fmt: skip
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text")
    found = find_files(tmp_path)
    assert found.paths == (
        "B.markdown", "a/b/c.docx", "a/z.PDF", "a-b/x.html", "a.txt", "b.md", "c.md/inside.md", "x.htm", "y.rst",
    )  # fmt: skip
    assert found.others == {".png": 1, ".py": 1, "no ending": 1}
    assert found.unreadable == {}


def test_one_document_is_a_folder_of_one(tmp_path: Path):
    (tmp_path / "a.md").write_text("text")
    found = find_files(tmp_path / "a.md")
    assert (found.root, found.paths) == (tmp_path, ("a.md",))


def test_links_to_files_count_and_links_to_folders_are_not_followed(tmp_path: Path):
    (tmp_path / "docs" / "deep").mkdir(parents=True)
    (tmp_path / "README.md").write_text("text")
    (tmp_path / "docs" / "index.md").symlink_to("../README.md")
    (tmp_path / "docs" / "deep" / "loop").symlink_to("..")
    (tmp_path / "docs" / "lost.md").symlink_to("nowhere.md")
    (tmp_path / "docs" / "self.md").symlink_to("self.md")
    found = find_files(tmp_path / "docs")
    assert found.paths == ("index.md",)
    assert found.unreadable == {
        "lost.md": "cannot be opened: No such file or directory",
        "self.md": "cannot be opened: Too many levels of symbolic links",
    }


def test_what_is_no_regular_file_is_never_opened(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe.txt")
    assert find_files(tmp_path).unreadable == {"pipe.txt": "no regular file"}


def test_a_name_that_is_no_unicode_is_refused(tmp_path: Path):
    os.close(os.open(os.fsencode(tmp_path) + b"/caf\xe9.md", os.O_CREAT))
    assert find_files(tmp_path).unreadable == {"caf?.md": "its name is no valid UTF-8; rename it"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list every folder")
def test_a_closed_folder_is_listed(tmp_path: Path):
    (tmp_path / "closed").mkdir(mode=0)
    assert find_files(tmp_path).unreadable == {"closed": "cannot be listed: Permission denied"}


def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "closed").mkdir()
    (tmp_path / "a.md").write_text("text")
    scandir = os.scandir

    def refuse(path):
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    found = find_files(tmp_path)
    assert (found.paths, found.unreadable) == (("a.md",), {"closed": "cannot be listed: Permission denied"})

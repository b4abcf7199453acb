"""Manual pages, and files without an ending."""

import gzip
import shutil

import pytest

from corag.files import read_file
from corag.files.read import UnreadableFileError, find_files, read_bytes
from corag.files.web import read_man
from tests.corag.files.worlds import PUMP, VALVE, outline


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc is not installed")
def test_a_manual_page_is_read_under_its_headings(tmp_path):
    (tmp_path / "pump.1.gz").write_bytes(gzip.compress(PUMP.read_bytes()))
    assert find_files(tmp_path).kinds == {"pump.1.gz": "man"}
    file = read_file(read_bytes(tmp_path / "pump.1.gz"), "pump.1.gz")
    described = "-a, --all\n    Pump \u201call\u201d of it now(1), for ever"
    assert outline(file) == [
        ("pump(1) > NAME", "pump - moves water"),
        ("pump(1) > OPTIONS AND MORE", f"{described}\n\n-q\n\nBe quiet.\n\nNext.\n\n```\npump \\\n  -a\n```"),
    ]
    assert [block.kind for block in file.sections[-1].blocks] == ["text", "text", "text", "text", "code"]


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc is not installed")
def test_a_manual_page_of_bsd():
    assert outline(read_file(VALVE.read_bytes(), "valve.8")) == [
        ("valve(8) > NAME", "valve \u2014 opens\npipes"),
        ("valve(8) > SYNOPSIS", "valve [-ab] [-f file,file] [--help]"),
        ("valve(8) > DESCRIPTION", "See pump(1).\n\n-a\n    Opens \u201call\u201d."),
    ]


def test_manual_pages_that_cannot_be_read_say_why(monkeypatch):
    with pytest.raises(UnreadableFileError, match=r"refers to man1/pump.1"):
        read_man(b".so man1/pump.1\n", "alias.1")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UnreadableFileError, match="needs mandoc: install it, or write the page as text"):
        read_man(VALVE.read_bytes(), "valve.8")


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc is not installed")
def test_a_manual_page_includes_no_other_file(tmp_path):
    (tmp_path / "key").write_text("secret")
    more = f".nop .so {tmp_path}/key\n.so {tmp_path}/key\n.so key\n"
    assert "secret" not in read_man(PUMP.read_bytes() + more.encode(), "pump.1").text


def test_files_without_an_ending_have_the_name_of_their_folder_in_the_title():
    assert outline(read_file(b"Free to use.", "bash/copyright")) == [("bash copyright", "Free to use.")]
    assert outline(read_file(b"Free to use.", "legal/MPL-1.1")) == [("legal MPL-1.1", "Free to use.")]
    assert outline(read_file(b"<!DOCTYPE html><p>Hello", "page")) == [("page", "Hello")]

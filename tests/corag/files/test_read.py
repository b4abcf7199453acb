"""Text and structure of files of each format, and files that cannot be read."""

import gzip
import io
import json
import os
import shutil
import sys
import zipfile
from datetime import date
from pathlib import Path

import openpyxl
import pptx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pptx.chart.data import CategoryChartData, XyChartData
from pptx.enum.chart import XL_CHART_TYPE

import corag.files.read as reading
from corag.files import process, read_file
from corag.files.lines import shortened_rules
from corag.files.markdown import read_markdown
from corag.files.plain import read_md
from corag.files.read import UnreadableFileError, decode, find_files, parse_file, read_bytes
from corag.files.web import read_man
from tests.corag.files.worlds import PUMP, SAMPLES, VALVE, outline

WORD = (SAMPLES / "pump.docx").read_bytes()


SECTIONS = json.loads(Path(__file__).with_name("sections.json").read_text(encoding="utf-8"))
"""Texts of Markdown, each with the headings and the body of its sections."""


@pytest.mark.parametrize(("text", "expected"), SECTIONS)
def test_sections_worked_out_by_hand(text, expected):
    assert [[*one] for one in outline(read_md(text.encode(), "notes"))] == expected


@given(st.text("#-|`>*_=~ \n\r\tab1.[]()<!\\", min_size=12))
@example("# a\n\r\n\r# b\r")
@example("|a|\n|-|\n")
def test_any_markdown_keeps_its_text_in_order(text):
    file = read_markdown(text, "x")
    text = shortened_rules(text)
    assert file.text == text
    at = 0
    for section in file.sections:
        assert at <= section.start <= section.body <= section.end <= len(text)
        at = section.end
        starts = [block.start for block in section.blocks]
        assert starts == sorted(set(starts))
        assert all(section.body <= start < section.end for start in starts)


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        *(("Zürich, 漢字, שלום 😀\r\n", name) for name in ("utf-8", "utf-8-sig", "utf-16", "utf-32")),
        ("Die Größe der Straße in Zürich beträgt fünf Kilometer. Übermäßig schön.", "cp1252"),
        ("A ação não está na página. São três irmãos. Você também é avó. O coração português.", "cp1252"),
        ("The café in Zürich sells crème brûlée. This is a long English text about nothing.", "cp1252"),
        ("Árvíztűrő tükörfúrógép. A szivattyú súlya tizenkét kilogramm, őrült.", "cp1250"),
        ("Příliš žluťoučký kůň úpěl ďábelské ódy. Před použitím čtěte návod k obsluze.", "cp1250"),
        ("これは日本語の文章です。文字コードを調べます。", "shift_jis"),
    ],
)
def test_encodings_are_read_or_guessed(text, encoding):
    assert decode(text.encode(encoding)) == text
    assert "\r" in text or read_file(text.encode(encoding), "a.md").text == text


@given(st.binary())
def test_any_bytes_are_text_or_refused(data):
    try:
        decode(data).encode()
    except UnreadableFileError:
        assert data


def test_bytes_that_are_partly_or_never_text():
    assert decode("Zürich é à ".encode() + b"\xff") == "Zürich é à \ufffd"
    assert decode(b"one \xef\xbf\xbd of its own") == "one \ufffd of its own"
    for data in (b"\0" * 100, bytes(range(256)) * 9):
        with pytest.raises(UnreadableFileError, match="not text"):
            decode(data)


def replaced(data, *pairs):
    """An archive with other bytes in its parts and in their names."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as whole, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for part in whole.infolist():
            name, content = part.filename.encode(), whole.read(part)
            for pair in pairs:
                name, content = name.replace(*pair), content.replace(*pair)
            archive.writestr(name.decode(), content)
    return file.getvalue()


def test_damaged_office_documents_are_refused():
    for damaged in (b"\xd0\xcf\x11\xe0" + bytes(100), b"plain text", WORD[:-30]):
        for name in ("a.docx", "a.pptx", "a.xlsx"):
            with pytest.raises(UnreadableFileError):
                read_file(damaged, name)


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        *(("a.ipynb", data, "no notebook") for data in (b"{", b"[]", b'{"cells": [1]}')),
        ("a.epub", b"no zip", "damaged"),
        ("a.jsonl", b"1\n{", "line 2 is not JSON"),
    ],
)
def test_other_damaged_files_are_refused(name, data, reason):
    with pytest.raises(UnreadableFileError, match=reason):
        read_file(data, name)


@pytest.mark.parametrize("main", [b"word/document.xml", b"word/document.body", b"word/media/document.xml"])
def test_a_word_document_is_not_unpacked_beyond_the_limit(main):
    moved, more = replaced(WORD, (b"word/document.xml", main)), b"<w:p><w:r><w:t>text</w:t></w:r></w:p>" * 2**20
    assert read_file(moved, "a.docx") == read_file(WORD, "a.docx")
    with pytest.raises(UnreadableFileError, match="MiB"):
        read_file(replaced(moved, (b"</w:body>", more + b"</w:body>")), "a.docx")


def test_pictures_do_not_count_as_text():
    file = io.BytesIO(WORD)
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("word/media/photo.jpg", os.urandom(40 * 2**20))
    assert read_file(file.getvalue(), "a.docx") == read_file(WORD, "a.docx")


def written(document):
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


def test_slides_without_a_title_and_charts_of_dates_and_points(monkeypatch):
    talk, dated, points = pptx.Presentation(), CategoryChartData(), XyChartData()
    talk.slides.add_slide(talk.slide_layouts[5]).shapes.title.text = "Sales"
    dated.categories = [date(2024, 1, 1), date(2024, 1, 2)]
    dated.add_series("Pumps", (7, 8))
    points.add_series("Flow").add_data_point(3, 4)
    shapes = talk.slides.add_slide(talk.slide_layouts[6]).shapes
    for kind, chart in ((XL_CHART_TYPE.LINE, dated), (XL_CHART_TYPE.XY_SCATTER, points)):
        shapes.add_chart(kind, 0, 0, 999, 999, chart)
    # Kinds that python-pptx does not know, and a chart without anything in it, make no file unreadable.
    shapes.add_chart(XL_CHART_TYPE.LINE, 0, 0, 999, 999, CategoryChartData())
    values = (b"<c:v>4</c:v>", b"<c:v>#N/A</c:v>"), (b"<c:v>45293.0</c:v>", b"<c:v>1e10</c:v>")  # no number, no date
    data = replaced(written(talk), (b"c:lineChart>", b"c:line3DChart>"), *values)
    [(title, text)] = outline(read_file(data, "a.pptx"))
    assert title == "a" and text.split("\n\n") == [
        "|  | Pumps |\n| --- | --- |\n| 2024-01-01 | 7 |\n| 1e10 | 8 |",
        "|  | Flow |\n| --- | --- |\n| 3 | #N/A |",
    ]
    monkeypatch.setitem(sys.modules, "openpyxl.styles.numbers", None)
    with pytest.raises(UnreadableFileError, match="needs a package that is missing"):
        parse_file(data, "a.pptx")


def test_a_table_of_contents_of_word_is_left_out():
    style = b'<w:style w:type="paragraph" w:styleId="TOC1"><w:name w:val="toc 1"/></w:style></w:styles>'
    entry = b'<w:p><w:pPr><w:pStyle w:val="TOC1"/></w:pPr><w:r><w:t>1 Use 3</w:t></w:r></w:p></w:body>'
    changed = replaced(WORD, (b"</w:styles>", style), (b"</w:body>", entry))
    assert changed != WORD and read_file(changed, "a.docx") == read_file(WORD, "a.docx")


def test_nothing_in_the_format_of_accounts_has_no_digits():
    book = openpyxl.Workbook()
    for row, value in enumerate((5, 0), start=1):
        cell = book.active.cell(row, 1, value)
        cell.number_format = '_-* #,##0.00\\ "€"_-;\\-* #,##0.00\\ "€"_-;_-* "-"??\\ "€"_-;_-@_-'
    assert "| 5.00 € |\n| --- |\n| - € |" in read_file(written(book), "a.xlsx").text


NESTED = [
    b"<table><tr><td>",
    b"<div>",
    b"<ul><li>",
    b"<h1><h2>",
    b"<section id=a><h2>",
    b"<b>",
    b"<caption>",
    b"<math>",
]


@pytest.mark.timeout(30)
@pytest.mark.parametrize("element", NESTED)
def test_endless_nesting_is_refused(element):
    with pytest.raises(UnreadableFileError, match="nested"):
        read_file(b"<body>" + element * 5_000 + b"a", "a.html")


def test_a_document_that_takes_too_long_is_ended_and_the_next_is_read(monkeypatch):
    monkeypatch.setattr(process, "MAX_SECONDS", 0.2)
    with pytest.raises(UnreadableFileError, match=r"0\.2 seconds"):
        read_file(b"<p>a</p>" * 30_000, "a.html")
    monkeypatch.undo()
    assert read_file(b"<p>a</p>", "a.html").text == "a"


def test_files_beyond_the_limits_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MAX_TEXT_BYTES", 2**20)
    monkeypatch.setattr(reading, "MAX_FILE_BYTES", 2**21)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"a\n" * 2**22))
    for name in ("a.txt", "a.pdf"):
        (tmp_path / name).write_bytes(b"a" * (2**20 + 1))
    for name in ("a.txt.gz", "a.txt"):
        with pytest.raises(UnreadableFileError, match="MiB"):
            read_bytes(tmp_path / name)
    # Pictures make a PDF large; what counts is its text.
    assert read_bytes(tmp_path / "a.pdf")
    monkeypatch.setattr(reading, "MAX_LINES", 1000)
    with pytest.raises(UnreadableFileError, match="2,000 lines"):
        parse_file(b"a.\n" * 2000, "a.txt")


def write_files(folder, names, data=b"text"):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def test_documents_in_one_order_and_why_others_are_skipped(tmp_path):
    write_files(tmp_path, [
        "b.md", "a.txt", "a/z.PDF", "a/b/c.docx", "a-b/x.html", "B.markdown", "code.py", "a/LICENSE", "c.md/inside.md",
        ".hidden.md", ".git/config.md", "a/.cache/x.txt",
    ])  # fmt: skip
    write_files(tmp_path, ["picture.PNG", "a/program"], b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    write_files(tmp_path, ["empty"], b"")
    write_files(tmp_path, ["time.info"], b"It measures time. " * 20 + b"\0\b[index\0\b]")
    found = find_files(tmp_path)
    assert tuple(found.kinds) == (
        "B.markdown", "a/LICENSE", "a/b/c.docx", "a/z.PDF", "a-b/x.html", "a.txt", "b.md", "c.md/inside.md", "code.py",
        "time.info",
    )  # fmt: skip
    binary = "not text, and of no type that is read"
    assert found.skipped == {"a/program": binary, "empty": "empty", "picture.PNG": binary}
    one = find_files(tmp_path / "b.md")
    assert (one.root, one.kinds) == (tmp_path, {"b.md": "markdown"})


GLOBS = json.loads(Path(__file__).with_name("globs.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("include", "exclude", "expected"), GLOBS)
def test_globs_choose_files(tmp_path, include, exclude, expected):
    write_files(tmp_path, ["a.md", "sub/b.txt", "sub/deep/c.md"])
    assert list(find_files(tmp_path, include=include, exclude=exclude).kinds) == expected


def test_links_out_of_the_folder_are_not_followed(tmp_path):
    (tmp_path / "docs" / "deep").mkdir(parents=True)
    (tmp_path / "README.md").write_text("text")
    (tmp_path / "docs" / "index.md").symlink_to("../README.md")
    (tmp_path / "docs" / "again.md").symlink_to("index.md")
    (tmp_path / "docs" / "own.txt").write_text("text")
    (tmp_path / "docs" / "alias.txt").symlink_to("own.txt")
    (tmp_path / "docs" / "secrets").symlink_to("/etc/passwd")
    (tmp_path / "docs" / "deep" / "loop").symlink_to("..")
    (tmp_path / "docs" / "deep" / "out").symlink_to(tmp_path)
    found = find_files(tmp_path / "docs")
    assert list(found.kinds) == ["own.txt"]
    assert list(found.skipped) == ["again.md", "alias.txt", "deep/out", "index.md", "secrets"]
    assert all("a link " in reason for reason in found.skipped.values())
    # A link to a file of the folder is that file.
    assert found.skipped["alias.txt"] == "a link to own.txt"
    # The folder itself, or a document that is named, may be a link.
    (tmp_path / "link").symlink_to("docs/deep")
    (tmp_path / "docs" / "deep" / "a.md").write_text("text")
    assert list(find_files(tmp_path / "link").kinds) == ["a.md"]
    assert list(find_files(tmp_path / "docs" / "index.md").kinds) == ["index.md"]


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


def test_a_manual_page_that_is_another_one_says_which():
    with pytest.raises(UnreadableFileError, match=r"refers to man1/pump.1"):
        read_man(b".so man1/pump.1\n", "alias.1")


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc is not installed")
def test_a_manual_page_includes_no_other_file(tmp_path):
    (tmp_path / "key").write_text("secret")
    more = f".nop .so {tmp_path}/key\n.so {tmp_path}/key\n.so key\n"
    assert "secret" not in read_man(PUMP.read_bytes() + more.encode(), "pump.1").text


def test_files_without_an_ending_have_the_name_of_their_folder_in_the_title():
    assert outline(read_file(b"Free to use.", "bash/copyright")) == [("bash copyright", "Free to use.")]
    assert outline(read_file(b"Free to use.", "legal/MPL-1.1")) == [("legal MPL-1.1", "Free to use.")]
    assert outline(read_file(b"<!DOCTYPE html><p>Hello", "page")) == [("page", "Hello")]

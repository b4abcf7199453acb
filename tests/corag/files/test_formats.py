"""Slides, spreadsheets, rows of data, manual pages, and printed text."""

import gzip
import io
import shutil
from datetime import datetime, timedelta

import pytest

import corag
from corag.files import read_file
from corag.files.chunks import chunk_file
from corag.files.lines import joined_words, without_manual_heads, without_running_heads
from corag.files.read import UnreadableFileError, find_files, read_bytes
from corag.files.web import read_man
from corag.text.documents import citation
from tests.corag.files.worlds import SAMPLES, outline


def test_notes_above_a_table_of_a_sheet_are_text():
    book = pytest.importorskip("openpyxl").Workbook()
    rows = (["Prices"], ["of", "2026"], ["part", "size", "price"], ["valve", "big", 5], ["pump", "big", 7])
    for row in rows:
        book.active.append(row)
    book.save(data := io.BytesIO())
    [(_, text)] = outline(read_file(data.getvalue(), "a.xlsx"))
    table = "| part | size | price |\n| --- | --- | --- |\n| valve | big | 5 |\n| pump | big | 7 |"
    assert text == f"Prices\nof 2026\n\n{table}"


def test_numbers_of_a_sheet_are_read_as_it_shows_them_and_hidden_sheets_are_not():
    book = pytest.importorskip("openpyxl").Workbook()
    shown = [
        (0.075, "0.0%", "7.5%"), (0.5, "0%", "50%"), (1234.5, "$#,##0.00", "$1,234.50"), (421, "00000", "00421"),
        (timedelta(hours=30), "[h]:mm", "30:00"), (-3, "0.00", "-3.00"), (-3, "0;(0)", "(3)"),
        (0, '0;-0;"none"', "none"),
        (1234.5, '#,##0.## "kg"', "1,234.5 kg"), (2, "#,##0.##", "2"), (5, "[$€-407] 0", "€ 5"),
        (7, "@", "7"), (0.1 + 0.2, "General", "0.3"),
        (12_000, "0.0,", "12.0"), (0.00012, "0.00E+00", "0.00012"), (True, "General", "True"), ("0.5", "0%", "0.5"),
        (datetime(2026, 1, 2, 3, 4), "yyyy", "2026-01-02 03:04:00"), (datetime(2026, 1, 2), "d", "2026-01-02"),
    ]  # fmt: skip
    book.active.append(["value"])
    for number, (value, form, _) in enumerate(shown, start=2):
        cell = book.active.cell(number, 1, value)
        cell.number_format = form
    book.create_sheet("Hidden").append(["secret"])
    book["Hidden"].sheet_state = "hidden"
    book.save(data := io.BytesIO())
    file = read_file(data.getvalue(), "a.xlsx")
    assert [row.strip("| ") for row in file.text.strip().splitlines()[4:]] == [text for _, _, text in shown]
    assert "secret" not in file.text


def test_a_chart_is_a_table():
    pptx = pytest.importorskip("pptx")
    from pptx.chart.data import CategoryChartData
    from pptx.enum.chart import XL_CHART_TYPE

    shown, data = pptx.Presentation(), CategoryChartData()
    data.categories = ["2024", "2025"]
    data.add_series("pumps", (3, 4.5))
    data.add_series("valves", (None, 6))
    shown.slides.add_slide(shown.slide_layouts[6]).shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, 0, 0, 9, 9, data)
    shown.save(file := io.BytesIO())
    assert read_file(file.getvalue(), "a.pptx").text.splitlines()[:4] == [
        "|  | pumps | valves |", "| --- | --- | --- |", "| 2024 | 3 |", "| 2025 | 4.5 | 6 |",
    ]  # fmt: skip


def test_every_chunk_of_a_csv_file_has_the_header_and_its_line():
    rows = ["name,price", *(f'"part {number},\nlarge",{number}' for number in range(40))]
    file = read_file("\n".join(rows).encode(), "prices.csv")
    chunks = chunk_file("prices.csv", file, corag.tokens(), corag.ChunkConfig(48))
    assert len(chunks) > 3 and all("\n| name | price |\n" in chunk.text for chunk in chunks)
    for chunk in chunks[1:]:
        number = (chunk.metadata["line"] - 2) // 2
        assert chunk.text.split("\n")[3] == f"| part {number}, large | {number} |"
        assert citation(chunk).startswith("prices.csv, line ")
    assert read_file(b"a;b\n1;2,5\n", "a.csv").text == read_file(b"a\tb\n1\t2,5\n", "a.tsv").text


def test_rows_of_a_wide_table_are_records():
    header = ",".join(["name", *(f"a long column {number}" for number in range(20))])
    rows = [
        ",".join([part, *(f"{part} {number}" if number else "" for number in range(20))]) for part in ("seal", "bolt")
    ]
    file = read_file("\n".join([header, "", *rows]).encode(), "parts.csv")
    chunks = chunk_file("parts.csv", file, corag.tokens(), corag.ChunkConfig(64))
    assert all(chunk.text.startswith(("parts > seal\n", "parts > bolt\n")) for chunk in chunks)
    assert {chunk.metadata["line"] for chunk in chunks} == {3, 4}
    assert "a long column 7: bolt 7" in chunks[-2].text + chunks[-1].text + chunks[-3].text
    assert "column 0" not in file.text


def test_a_line_of_json_ends_with_a_line_feed_alone():
    file = read_file('{"id": "one", "text": "a\u2028b\x85c"}\r\n{"id": "two", "text": "d"}\r\n'.encode(), "a.jsonl")
    assert [section.headings[-1] for section in file.sections] == ["one", "two"]


def test_parts_of_a_row_that_fits_no_chunk_repeat_its_key():
    text = f"part,note\nseal,{'word ' * 100}\nbolt,short\n"
    chunks = chunk_file("a.csv", read_file(text.encode(), "a.csv"), corag.tokens(), corag.ChunkConfig(48))
    assert len(chunks) > 3
    assert all("\n| part | note |\n" in chunk.text and "| seal |" in chunk.text for chunk in chunks[:-1])
    assert chunks[-1].text.endswith("| bolt | short |")


PUMP, VALVE = ((SAMPLES / name).read_bytes() for name in ("pump.1", "valve.8"))


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc is not installed")
def test_a_manual_page_is_read_under_its_headings(tmp_path):
    (tmp_path / "pump.1.gz").write_bytes(gzip.compress(PUMP))
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
    assert outline(read_file(VALVE, "valve.8")) == [
        ("valve(8) > NAME", "valve \u2014 opens\npipes"),
        ("valve(8) > SYNOPSIS", "valve [-ab] [-f file,file] [--help]"),
        ("valve(8) > DESCRIPTION", "See pump(1).\n\n-a\n    Opens \u201call\u201d."),
    ]


def test_manual_pages_that_cannot_be_read_say_why(monkeypatch):
    with pytest.raises(UnreadableFileError, match=r"refers to man1/pump.1"):
        read_man(b".so man1/pump.1\n", "alias.1")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UnreadableFileError, match="needs mandoc: install it, or write the page as text"):
        read_man(VALVE, "valve.8")


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc is not installed")
def test_a_manual_page_includes_no_other_file(tmp_path):
    (tmp_path / "key").write_text("secret")
    more = f".nop .so {tmp_path}/key\n.so {tmp_path}/key\n.so key\n"
    assert "secret" not in read_man(PUMP + more.encode(), "pump.1").text


def test_heads_and_feet_of_a_printed_manual_page_are_left_out():
    text = (
        "LS(1)              User Commands              LS(1)\n\nNAME\n       ls - list\n\n"
        "GNU coreutils 9.1    September 2022           LS(1)\n"
    )
    file = read_file(text.encode(), "ls.txt")
    assert file.text.split() == ["NAME", "ls", "-", "list"]
    [chunk] = chunk_file("ls.txt", file, corag.tokens())
    assert chunk.metadata["line"] == 3
    assert without_manual_heads("LS(1) is a program\nLS(1)  and  more") == "LS(1) is a program\nLS(1)  and  more"


def test_running_heads_of_pages_that_form_feeds_end_are_left_out():
    pages = [
        f"Reed      Standards Track      [Page {number}]\n\f\nRFC 9999      Pumps      May 2026\n\n"
        + "".join(f"Line {number} {row} of the text.\n" for row in range(6))
        for number in range(5)
    ]
    left = read_file("".join(pages).encode(), "a.txt").text
    assert "Track" not in left.split("\f", 1)[1] and "RFC" not in left
    assert left.count("\n") == "".join(pages).count("\n") and left.count(" of the text.") == 30


def test_the_head_of_a_chapter_stays_once_and_what_all_pages_repeat_does_not():
    bodies = [f"Text {page} begins.\nb\nc\nThe end of {page} now." for page in range(48)]
    chapters = ["ONE", "TWO", "THREE", "FOUR", "FIVE", "SIX", "SEVEN", "EIGHT"]
    pages = [
        f"CHAPTER {chapters[page // 6]}\n\n{body}\n\nPrev | Up | Next\n{page} of 48" for page, body in enumerate(bodies)
    ]
    read = [page.strip() for page in without_running_heads(pages)]
    assert read[1:6] == bodies[1:6] and read[6] == f"CHAPTER TWO\n\n{bodies[6]}"
    assert sum("CHAPTER" in page for page in read) == 8


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        ("The imple-\n    mentation, of the implementation.", "The implementation,\n    of the implementation."),
        ("A well-\nknown one.", "A well-known\none."),
        ("A pro\u2010\r\n  gram here.", "A program\r\n  here."),
        ("to-\nday is to-day", "to-day\nis to-day"),
        ("from A-\nB and 3-\n4", "from A-B\nand 3-4\n"),
        ("a --\nb and - \nc", "a --\nb and - \nc"),
    ],
)
def test_words_broken_at_line_ends_are_joined(text, joined):
    assert joined_words([text], typed=True) == [joined]


def test_files_without_an_ending_have_the_name_of_their_folder_in_the_title():
    assert outline(read_file(b"Free to use.", "bash/copyright")) == [("bash copyright", "Free to use.")]
    assert outline(read_file(b"Free to use.", "legal/MPL-1.1")) == [("legal MPL-1.1", "Free to use.")]
    assert outline(read_file(b"<!DOCTYPE html><p>Hello", "page")) == [("page", "Hello")]

"""Text and structure of files of each format, and files that cannot be read."""

import gzip
import io
import os
import zipfile

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import corag
import corag.files.read as reading
from corag.files import process, read_file
from corag.files.chunks import chunk_file
from corag.files.markdown import read_markdown
from corag.files.read import UnreadableFileError, decode, find_files, parse_file, read_bytes
from corag.text.documents import citation
from tests.corag.files.worlds import SAMPLES, docx, html, outline, pdf

GUIDE = (SAMPLES / "install.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("just text", [("notes", "just text")]),
        ("## Only second level\n\nx", [("notes > Only second level", "x")]),
        ("# One\n\nx\n\n# Two\n\ny", [("notes > One", "x"), ("notes > Two", "y")]),
        ("before\n\n# One\n\nx", [("notes", "before"), ("One", "x")]),
        ("# A\n\n#### Deep\n\nx\n\n## B\n\ny", [("A > Deep", "x"), ("A > B", "y")]),
        ("# \n\nx", [("notes", "x")]),
        ("---\ntitle: 'The \"pump\"'\ndate: 1\n---\n## Use\n\nx", [('The "pump" > Use', "x")]),
        ("+++\ntitle = \"TOML\"\n+++\n\nx", [("TOML", "x")]),
        ("---\ntitle: >-\n  Two\n  lines # still\nauthor: A # one\n...\nx", [("Two lines # still", "x")]),
        ("---\nJust words.\n---\nx", [("notes > Just words.", "x")]),
        ("---\n\nOne: two.\n\n---\nx", [("notes", "---\n\nOne: two.\n\n---\nx")]),
        ("+++\nno toml\n+++\nx", [("notes", "+++\nno toml\n+++\nx")]),
        ("# C#\n\n## Press [#](#p)\n\n## F#\n\nx\n\n## Article 5 §\n\ny\n\n## G¶\n\nz",
         [("C# > F#", "x"), ("C# > Article 5 §", "y"), ("C# > G", "z")]),
        ("---\n\nA rule, no front matter\n", [("notes", "---\n\nA rule, no front matter")]),
        ("> # quoted\n\n- # listed", [("notes", "> # quoted\n\n- # listed")]),
        ("<!-- # comment -->\n\n# A\n\nx\n\n<!-- end -->", [("A", "x\n\n<!-- end -->")]),
        ("# *A* `b` [c](d) <br> \\# ![e](f) {#id}\n\nx", [("A b c # e", "x")]),
    ],
)  # fmt: skip
def test_sections_worked_out_by_hand(text, expected):
    assert outline(read_markdown(text, "notes")) == expected


def test_front_matter_is_metadata():
    fields = "author: Ann\ndate: 2026-01-02\ntags: [a, b]\nline: 9\npage: home\nanchor: top\nnested: {a: 1}\nsize: .nan"
    written = f"---\n{fields}\n---\n# A\n\nx"
    [chunk] = chunk_file("a.md", read_file(written.encode(), "a.md"), corag.tokens())
    assert chunk.metadata == {
        "author": "Ann", "date": "2026-01-02", "tags": ["a", "b"], "document": "a.md", "title": "A", "headings": ["A"],
        "start": len(written) - 1, "end": len(written), "line": 13,
    }  # fmt: skip


def test_a_section_begins_with_words():
    badges = '<p align="a > b">\n  <img src="a.png">\n</p>\n\n[![a](b)](c) [![d][e]][f]\n\n<!-- g -->\n\n'
    file = read_markdown(f"# A\n\n{badges}x <br>\n\n## B\n\n![y](z)\n\n## C\n\n{badges}[e]: x\n[f]: y", "notes")
    assert [chunk.text for chunk in chunk_file("a.md", file, corag.tokens())] == ["A\nx <br>", "A > B\n![y](z)"]


@given(st.text("#-|`>*_=~ \n\r\tab1.[]()<!\\", min_size=12))
@example("# a\n\r\n\r# b\r")
@example("|a|\n|-|\n")
def test_any_markdown_keeps_its_text_in_order(text):
    file = read_markdown(text, "x")
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


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("10<sup>6</sup> m", "10^6 m"),
        ("<sup>14</sup>C and x<sup>n + 1</sup>", "^14C and x^(n + 1)"),
        ("the 1<sup>st</sup>, noted<sup><a href='#n'>2</a></sup>", "the 1st, noted[2]"),
        ("a</p><pre>```\nx\n```</pre><p>b", "a\n\n``````\n```\nx\n```\n``````\n\nb"),
        ("</p><h2>C# <a href='#c'>#</a></h2><p>x", "## C#\n\nx"),
        ("</p><h2>Press #</h2><p>x", "## Press \\#\n\nx"),
        ("H<sub>2</sub>O, log<sub>2</sub>8", "H2O, log_2 8"),
        ("<math><mfrac><mn>1</mn><mn>2</mn></mfrac></math> cup", "1/2 cup"),
        ("<math><msup><mi>x</mi><mn>2</mn></msup><mo>=</mo><msqrt><mi>a</mi><mo>+</mo><mi>b</mi></msqrt></math>",
         "x^2 = √(a + b)"),
        ("<math><semantics><mi>y</mi><annotation>y</annotation></semantics></math>", "y"),
        ("<math><mfrac><mrow><mi>a</mi><mo>+</mo><mi>b</mi></mrow><msub><mi>n</mi><mi>i</mi></msub></mfrac></math>",
         "(a + b)/n_i"),
    ],
)  # fmt: skip
def test_raised_and_lowered_signs_and_formulas_are_no_digits_of_a_number(written, read):
    assert read_file(html(f"<p>{written}"), "a.html").text == read


def test_headings_of_a_page_have_anchors():
    body = """<h1 id=top>Pump</h1><p>a<h2><a name=use></a>Use</h2><p>b<section id=care><h2>Care &amp; oil</h2>
    <p>c</section><h2>Plain</h2><p>d<h2 id=again>Use</h2><p>e<table><tr><td><h2 id=cell>In a cell</h2></table>"""
    file = read_file(html(body), "a.html")
    assert [(section.headings[-1], section.anchor) for section in file.sections] == [
        ("Pump", "top"), ("Use", "use"), ("Care & oil", "care"), ("Plain", ""), ("Use", "again"), ("In a cell", "cell"),
    ]  # fmt: skip
    [last] = chunk_file("a.html", file, corag.tokens(), corag.ChunkConfig(24))[-1:]
    assert citation(last) == "a.html#again: Pump > Use"
    assert read_file(html("<h2 id=x></h2><h2>Y</h2><p>z"), "a.html").sections[-1].anchor == ""


def test_formulas_of_a_word_document_are_text():
    square = "<m:sSup><m:e><m:r><m:t>v</m:t></m:r></m:e><m:sup><m:r><m:t>2</m:t></m:r></m:sup></m:sSup>"
    half = f"<m:f><m:fPr/><m:num>{square}</m:num><m:den><m:r><m:t>2g</m:t></m:r></m:den></m:f>"
    names = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
    formula = f"</w:t></w:r><m:oMathPara {names}><m:oMath>{half}</m:oMath></m:oMathPara><w:r><w:t>"
    file, whole = io.BytesIO(), zipfile.ZipFile(io.BytesIO(docx([("Normal", "It is HERE in metres.")])))
    with zipfile.ZipFile(file, "w") as archive:
        for part in whole.infolist():
            archive.writestr(part, whole.read(part).replace(b"HERE", formula.encode()))
    assert " ".join(read_file(file.getvalue(), "a.docx").text.split()) == "It is (v^2)/2g in metres."


def bomb(main, size):
    """Write a Word document with a main part of this name that unpacks to this many bytes."""
    file, whole = io.BytesIO(), zipfile.ZipFile(io.BytesIO(docx([("Normal", "text")])))
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for part in whole.infolist():
            data = whole.read(part).replace(b"word/document.xml", main.encode())
            if part.filename == "word/document.xml":
                data = data.replace(
                    b"</w:body>", b"<w:p><w:r><w:t>text</w:t></w:r></w:p>" * (size // 40) + b"</w:body>"
                )
            archive.writestr(part.filename.replace("word/document.xml", main), data)
    return file.getvalue()


def test_damaged_office_documents_are_refused():
    whole = docx([("Normal", "text")])
    assert read_file(whole, "a.docx").text == "text"
    for damaged in (b"\xd0\xcf\x11\xe0" + bytes(100), b"plain text", whole[:-30], docx([])):
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


@pytest.mark.parametrize("main", ["word/document.xml", "word/document.body", "word/media/document.xml"])
def test_a_word_document_is_not_unpacked_beyond_the_limit(main):
    assert read_file(bomb(main, 0), "a.docx").text == "text"
    with pytest.raises(UnreadableFileError, match="MiB"):
        read_file(bomb(main, 40 * 2**20), "a.docx")


def test_pictures_do_not_count_as_text():
    file = io.BytesIO(docx([("Normal", "text")]))
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("word/media/photo.jpg", os.urandom(40 * 2**20))
    assert read_file(file.getvalue(), "a.docx").text == "text"


@pytest.mark.parametrize(
    ("line", "starts"), [("Kapitel 2.1 Use", True), ("iv Use", True), ("2Use", True), ("Do not Use", False)]
)
def test_bookmarks_and_titles_of_a_pdf_are_those_of_its_pages(line, starts):
    lines = ["Before it.", line, "Open the valve."]
    file = read_file(pdf([lines], outline={"Use": 1}, title="untitled"), "pump.pdf")
    before = [("pump", "Before it.")] if starts else []
    assert outline(file) == [*before, ("Use", "\n".join(lines[2:] if starts else lines))]


def test_running_heads_and_page_numbers_are_left_out():
    pages = [[f"Line {number} {row} of the text" for row in range(5)] for number in range(4)] + [["The last line"]]
    file = read_file(pdf(pages, head="The pump company"), "a.pdf")
    assert "company" not in file.text and "Page" not in file.text
    assert file.text.split("\n") == [line for page in pages for line in page] + [""]


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


def test_cells_over_several_columns_and_rows_keep_others_in_their_place():
    rows = "<tr><th>part<th colspan=2>price<tr><td rowspan=2>seal<td>1<td>2<tr><td>3<td>4<tr><td>bolt<td>5<td>6"
    [(_, table)] = outline(read_file(html(f"<table>{rows}</table>"), "a.html"))
    assert [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()] == [
        ["part", "price", ""], ["---"] * 3, ["seal", "1", "2"], ["", "3", "4"], ["bolt", "5", "6"],
    ]  # fmt: skip


def test_numbers_of_a_list_go_on_from_its_start():
    assert outline(read_file(html("<ol start=9><li>a<li>b<ul><li>c</ul></ol>"), "a.html"))[0][1] == (
        "9. a\n10. b\n    - c"
    )


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
    found = find_files(tmp_path)
    assert tuple(found.kinds) == (
        "B.markdown", "a/LICENSE", "a/b/c.docx", "a/z.PDF", "a-b/x.html", "a.txt", "b.md", "c.md/inside.md", "code.py",
    )  # fmt: skip
    binary = "not text, and of no type that is read"
    assert found.skipped == {"a/program": binary, "empty": "empty", "picture.PNG": binary}
    one = find_files(tmp_path / "b.md")
    assert (one.root, one.kinds) == (tmp_path, {"b.md": "markdown"})


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        (["*.md"], [], ["a.md", "sub/deep/c.md"]),
        (["sub"], [], ["sub/b.txt", "sub/deep/c.md"]),
        (["sub/*.md"], [], ["sub/deep/c.md"]),
        ([], ["*.md"], ["sub/b.txt"]),
        ([], ["deep/"], ["a.md", "sub/b.txt"]),
        (["*.md"], ["sub/deep"], ["a.md"]),
        (["*.pdf"], [], []),
    ],
)
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

"""Mail, notebooks, books, RST, AsciiDoc and TeX; and what leads elsewhere in a page."""

import json
from email.message import EmailMessage

import pytest

import corag
from corag.files import read_file
from corag.files.chunks import chunk_file
from corag.files.read import UnreadableFileError, find_files
from tests.corag.files.worlds import book, html, outline


def mail(subject="Prüfung of the pump", body="Open the välve.\n\nBest, Ann", **parts):
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "Ann <ann@example.org>", "bob@example.org", subject
    message["Message-ID"] = "<1@example.org>"
    message.set_content(body, cte="base64")
    if "page" in parts:
        message.add_alternative(parts["page"], subtype="html")
    message.add_attachment(b"\0" * 99, maintype="application", subtype="pdf", filename="plan.pdf")
    return message.as_bytes()


def test_mail_is_read_under_its_subject(tmp_path):
    file = read_file(mail(), "a.eml")
    heads = "From: Ann <ann@example.org>\nTo: bob@example.org"
    text = f"{heads}\n\nOpen the välve.\n\nBest, Ann\n\n\nAttached: plan.pdf"
    assert outline(file) == [("Prüfung of the pump", text)]
    assert file.fields == {"from": "Ann <ann@example.org>", "to": "bob@example.org"}
    (tmp_path / "1.M2P3").write_bytes(mail())
    assert find_files(tmp_path).kinds == {"1.M2P3": "mail"}
    box = b"".join(b"From a@b Mon\n" + mail(subject) + b"\n" for subject in ("One", "Two"))
    assert [headings for headings, _ in outline(read_file(box, "box.mbox"))] == ["box > One", "box > Two"]


def test_a_notebook_is_its_text_its_code_and_what_was_printed():
    cells = [
        {"cell_type": "markdown", "source": ["# Pump\n", "It pumps."]},
        {"cell_type": "code", "source": "run()", "outputs": [
            {"output_type": "stream", "text": ["on\n"]},
            {"output_type": "display_data", "data": {"image/png": "iVBORw0KGgo" * 99, "text/plain": "<Figure>"}},
        ]},
        {"cell_type": "raw", "source": ""},
    ]  # fmt: skip
    file = read_file(json.dumps({"cells": cells, "nbformat": 4}).encode(), "a.ipynb")
    assert outline(file) == [("Pump", "It pumps.\n\n```\nrun()\n```\n\n```\non\n```\n\n```\n<Figure>\n```")]
    for damaged in (b"{", b"[]", b'{"cells": [1]}'):
        with pytest.raises(UnreadableFileError, match="no notebook"):
            read_file(damaged, "a.ipynb")


def test_a_book_is_read_in_its_order():
    file = read_file(book(), "a.epub")
    assert outline(file) == [("Pumps > Start", "Open it."), ("Pumps > Stop", "Close it.")]
    assert file.fields == {"creator": "Ann"}
    with pytest.raises(UnreadableFileError, match="damaged"):
        read_file(b"no zip", "a.epub")


def test_rtf_is_skipped_and_says_why(tmp_path):
    for name in ("a.rtf", "b"):
        (tmp_path / name).write_bytes(rb"{\rtf1 text}")
    found = find_files(tmp_path)
    assert not found.kinds and all(reason.startswith("RTF is not read; save") for reason in found.skipped.values())
    with pytest.raises(UnreadableFileError, match="RTF"):
        read_file(rb"{\rtf1 text}", "a.rtf")


def test_rst_with_what_sphinx_adds():
    text = """
Pump
====

.. toctree::

   install

Use :func:`open() <pump.open>` or :ref:`start`, **now**.

.. versionadded:: 3.2

.. py:function:: close(now)
   :async:

   Closes it, see :pep:`8`.

Code
----

::

    x = 1

=====  =====
part   price
=====  =====
seal   5
=====  =====

.. include:: /etc/passwd
.. raw:: html

   <script>x</script>
"""
    file = read_file(text.encode(), "a.rst")
    table = "| part | price |\n| --- | --- |\n| seal | 5 |"
    described = "close(now)\n:   Closes it, see PEP 8."
    assert outline(file) == [
        ("Pump", f"Use open() or start, **now**.\n\nversionadded: 3.2\n\n{described}"),
        ("Pump > Code", f"```\nx = 1\n```\n\n{table}"),
    ]
    assert [block.kind for block in file.sections[-1].blocks] == ["code", "table"]


def test_rst_without_a_title_or_with_a_line_without_end():
    assert outline(read_file(b"One `two |three| four_.", "a.rst")) == [("a", "One `two |three| four_.")]
    assert read_file(b"`a " * 20_000, "a.rst").text == "`a " * 20_000


def test_asciidoc():
    text = """= Pump
:toc:

It pumps.

[source,sh]
----
== no heading
----

== Parts
// a comment
.Prices
|===
|part |price

|seal
|5
|bolt |7
|===

* one
** two
. first
"""
    assert outline(read_file(text.encode(), "a.adoc")) == [
        ("Pump", "It pumps.\n\n\n```\n== no heading\n```"),
        (
            "Pump > Parts",
            ".Prices\n\n| part | price |\n| --- | --- |\n| seal | 5 |\n| bolt | 7 |\n\n\n* one\n** two\n. first",
        ),
    ]  # fmt: skip


def test_tex():
    text = r"""\documentclass{article}
\title{The pump}
\begin{document}\maketitle
\section{Use \emph{now}}\label{use} % a comment
It costs 5\% of \textbf{all~of} it.\cite{a}
\begin{verbatim}
\section{no heading}
\end{verbatim}
\begin{itemize}
\item one
\end{itemize}
\begin{tabular}{l|r}
part & price \\ \hline
a \& b & 5 \\
\end{tabular}
\end{document}"""
    file = read_file(text.encode(), "a.tex")
    [(headings, body)] = outline(file)
    assert headings == "The pump > Use now"
    assert list(filter(None, map(str.rstrip, body.split("\n")))) == [
        "It costs 5% of all of it.", "```", r"\section{no heading}", "```", "- one",
        "| part | price |", "| --- | --- |", "| a & b | 5 |",
    ]  # fmt: skip


def test_navigation_is_found_by_its_links():
    links = "<a href=a.html rel=prev>Back</a> | <a href=b.html rel=up>Up</a> | <a href=c.html>Next chapter</a>"
    contents = "<ul><li><a href=#a>One</a><li><a href=#b>Two</a><li><a href=#c>Three</a></ul>"
    text = "<h1>Pump</h1>{}<p>See <a href=x>one</a> and <a href=y>two</a> for it.<ul><li><a href=d>Four</a></ul>"
    page = html(f"<table><tr><td>{links}</table>{text.format(contents)}<p>It pumps.<div><p>{links}</div>")
    assert outline(read_file(page, "a.html")) == [("Pump", "See one and two for it.\n\n- Four\n\nIt pumps.")]
    # Wherever a row of links is; an enumeration, a list, a cell, and a row under a heading of its own say something.
    row = "<p><a href=x>Home</a> | <a href=y>Map</a></p>"
    kept = "<p><a href=x>a(1)</a>, <a href=y>b(1)</a></p><ul><li><a href=x>Text</a> | <a href=y>Number</a></ul>"
    page = html(f"<h1>Pump</h1><p>It pumps.</p>{row}{kept}<h2>Links</h2>{row}")
    assert outline(read_file(page, "a.html")) == [
        ("Pump", "It pumps.\n\na(1), b(1)\n\n- Text | Number"),
        ("Pump > Links", "Home | Map"),
    ]
    # A page of links alone is an index, which is its text.
    assert outline(read_file(html(contents), "a.html")) == [("a", "- One\n- Two\n- Three")]


def test_navigation_of_markdown_is_found_by_its_links():
    row, contents = "[Home](x) | [Map][m] · <a href=y>Chat</a>\n", "- [One](#one)\n  - [Two](#two)\n- [Three](#three)\n"
    page = f"# Pump\n\n{row}\n{contents}\nIt pumps.\n\n- [One](one.md)\n- [Two](#two)\n\n## Links\n\n{row}\n[m]: z\n"
    file = read_file(page.encode(), "a.md")
    assert outline(file) == [
        ("Pump", "It pumps.\n\n- [One](one.md)\n- [Two](#two)"),
        ("Pump > Links", f"{row}\n[m]: z"),
    ]
    assert file.text.count("\n") == page.count("\n") and len(file.text) == len(page)
    assert outline(read_file(contents.encode(), "a.md")) == [("a", contents.strip())]


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        *(("a.tex", shape) for shape in ("\\begin{verbatim}", "\\section[", "\\emph{", "\\item[", "\\cite[", "{")),
        *(("a.adoc", shape) for shape in ("link:", "<<a", "|===\n|a\n", "----\n", "= a\n", "* a\n", "[a]\n")),
        *(("a.rst", shape) for shape in (":a", "`a", "* a\n\n", "a\n=\n\n", ".. a::\n", "|a", "::\n\n", "a:: b\n")),
        *(("a.eml", shape) for shape in ("A: b\n", "From a\n", "=?utf-8?q?", "Message-ID: <", "\n")),
        *(("a.ipynb", shape) for shape in ("[", '{"cells":', "`")),
        *(("a", shape) for shape in ("A: b\n", "A: b\n c\n", "From ")),
    ],
)
def test_what_is_repeated_takes_no_longer_than_other_text(name, shape):
    data = (shape * (15_000 // len(shape))).encode()
    try:
        file = read_file(data, name)
    except UnreadableFileError as error:
        assert "seconds" not in str(error)
        return
    assert len(file.text) <= 8 * len(data)
    chunk_file(name, file, corag.tokens())

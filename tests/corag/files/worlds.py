"""Real files of each format, written by other libraries than those that read them; and what was read."""

import io
import zipfile
from email.message import EmailMessage
from pathlib import Path

import pytest

SAMPLES = Path(__file__).with_name("samples")


def pdf(pages, *, outline=None, title="", head="", password=""):
    """Write a PDF with one line of text below the other.

    Args:
        pages: Lines of each page.
        outline: Title of a bookmark -> page from 1; two leading spaces for each level below the first.
        title: Title in the document's properties.
        head: Running head; a page number is put below each page.
        password: Encrypts the file.
    """
    canvas = pytest.importorskip("reportlab.pdfgen.canvas")
    from reportlab.lib.pdfencrypt import StandardEncryption

    file = io.BytesIO()
    drawn = canvas.Canvas(file, encrypt=StandardEncryption(password) if password else None)
    if title:
        drawn.setTitle(title)
    for number, lines in enumerate(pages, start=1):
        for name, page in (outline or {}).items():
            if page == number:
                drawn.bookmarkPage(name)
                level = (len(name) - len(name.lstrip())) // 2
                drawn.addOutlineEntry(name.strip(), name, level)
        if head:
            drawn.drawString(72, 800, head)
            drawn.drawString(300, 30, f"Page {number}")
        for row, line in enumerate(lines):
            drawn.drawString(72, 760 - 20 * row, line)
        drawn.showPage()
    drawn.save()
    return file.getvalue()


def docx(parts):
    """Write a Word document from (style, text) pairs; style `table` takes rows of cells."""
    document = pytest.importorskip("docx").Document()
    for style, content in parts:
        if style == "table":
            table = document.add_table(rows=0, cols=len(content[0]))
            for row in content:
                for cell, text in zip(table.add_row().cells, row, strict=True):
                    cell.text = text
        else:
            document.add_paragraph(str(content), style=style)
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


def slides():
    """Write slides: a title and a text with notes, then a table and a group."""
    shown = pytest.importorskip("pptx").Presentation()
    shown.core_properties.title = "The pump"
    first = shown.slides.add_slide(shown.slide_layouts[1])
    first.shapes.title.text = "Start"
    first.placeholders[1].text = "Open the valve.\vTurn the key.\nWait."
    first.notes_slide.notes_text_frame.text = "Say it slowly."
    second = shown.slides.add_slide(shown.slide_layouts[6])
    table = second.shapes.add_table(2, 2, 0, 0, 9, 9).table
    for cell, text in zip(table.iter_cells(), ["part", "price", "valve", "5"], strict=True):
        cell.text = text
    group = second.shapes.add_group_shape()
    group.shapes.add_textbox(0, 0, 9, 9).text_frame.text = "In a group."
    shown.save(data := io.BytesIO())
    return data.getvalue()


def sheets():
    """Write a workbook of a sheet with empty rows and columns, and of an empty one."""
    book = pytest.importorskip("openpyxl").Workbook()
    book.active.title = "Prices"
    rows = [["part", None, "price", None], ["valve | a", None, 5.5, None], [], ["pump", "big", 7, None]]
    for row in rows:
        book.active.append(row)
    book.create_sheet("Empty")
    book.save(data := io.BytesIO())
    return data.getvalue()


def book():
    """Write an EPUB book of two pages and a table of contents; the second page comes first in its folder."""
    package = """<package xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata><dc:title>Pumps</dc:title>
    <dc:creator>Ann</dc:creator></metadata><manifest><item id="n" href="nav.xhtml" properties="nav"/>
    <item id="b" href="text/a.xhtml"/><item id="a" href="text/b%20b.xhtml"/></manifest>
    <spine><itemref idref="n"/><itemref idref="a"/><itemref idref="b"/></spine></package>"""
    parts = {
        "META-INF/container.xml": '<container><rootfiles><rootfile full-path="O/p.opf"/></rootfiles></container>',
        "O/p.opf": package, "O/nav.xhtml": "<nav>Contents</nav>",
        "O/text/b b.xhtml": "<html><body><h1>Start</h1><p>Open it.</p></body></html>",
        "O/text/a.xhtml": "<html><body><h1>Stop</h1><p>Close it.</p></body></html>",
    }  # fmt: skip
    with zipfile.ZipFile(data := io.BytesIO(), "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return data.getvalue()


def mail(subject="Prüfung of the pump"):
    """Write a message with an attached file."""
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "Ann <ann@example.org>", "bob@example.org", subject
    message["Message-ID"] = "<1@example.org>"
    message.set_content("Open the välve.\n\nBest, Ann", cte="base64")
    message.add_attachment(b"\0" * 99, maintype="application", subtype="pdf", filename="plan.pdf")
    message.set_boundary("part")
    return message.as_bytes()


def html(body, *, title=""):
    """Write an HTML page with navigation and footer around its body."""
    page = f"""<!DOCTYPE html><html><head><meta charset="utf-8"><title>{title}</title>
    <style>p {{ color: red }}</style><script>var hidden = 1;</script></head>
    <body><nav><a href="/">Home</a></nav>{body}<footer>All rights reserved</footer></body></html>"""
    return page.encode()


def outline(file):
    """Path of headings and stripped body of each section with text."""
    return [
        (" > ".join(section.headings), file.text[section.body : section.end].strip())
        for section in file.sections
        if section.blocks
    ]

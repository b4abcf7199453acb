"""PDFs and HTML pages of given texts, and what was read of a file."""

import io

import pytest


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

"""Samples of files, PDFs of given texts, and what was read of a file."""

import io
from pathlib import Path

import pytest

SAMPLES = Path(__file__).with_name("samples")
"""As other libraries than those that read them wrote them."""
PUMP, VALVE = SAMPLES / "pump.1", SAMPLES / "valve.8"
"""Manual pages."""


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


def outline(file):
    """Path of headings and stripped body of each section with text."""
    return [
        (" > ".join(section.headings), file.text[section.body : section.end].strip())
        for section in file.sections
        if section.blocks
    ]

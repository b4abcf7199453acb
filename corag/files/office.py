"""Slides and spreadsheets: PPTX by python-pptx, XLSX by openpyxl."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from datetime import datetime, time
from typing import Any

from corag.files.markdown import FileText, TextBuilder
from corag.files.web import check_archive
from corag.optional import require


def read_pptx(data: bytes, name: str) -> FileText:
    """Return the text of a PowerPoint document: a page for each slide, under its title, with tables and notes."""
    pptx = require("pptx", "documents")
    document = TextBuilder()
    with check_archive(data, "pptx"):
        slides = pptx.Presentation(io.BytesIO(data))
        for slide in slides.slides:
            document.page()
            title = slide.shapes.title
            document.heading(2, "" if title is None else title.text)
            for shape in _shapes(slide.shapes):
                if shape.has_text_frame and (title is None or shape.shape_id != title.shape_id):
                    document.block(_text(shape))
                elif shape.has_table:
                    document.table([[cell.text for cell in row.cells] for row in shape.table.rows])
            if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
                document.block(_visible(slide.notes_slide.notes_text_frame.text))
        title = " ".join((slides.core_properties.title or "").split())
    return document.file(name if title.casefold() in ("", "powerpoint presentation") else title)


def _shapes(shapes: Iterable[Any]) -> Iterator[Any]:
    """Yield shapes, those of groups included."""
    for shape in shapes:
        if hasattr(shape, "shapes"):
            yield from _shapes(shape.shapes)
        else:
            yield shape


def _text(shape: Any) -> str:
    """Return the paragraphs of a shape; several of a placeholder as the list that its layout makes of them."""
    items = [(one.level, _visible(one.text)) for one in shape.text_frame.paragraphs if one.text.strip()]
    if len(items) < 2 or not shape.is_placeholder:
        return _visible(shape.text_frame.text)
    return "\n".join(f"{'  ' * level}- {text}" for level, text in items)


def _visible(text: str) -> str:
    # A vertical tab is a line break inside a paragraph.
    return text.replace("\v", "\n").strip()


def read_xlsx(data: bytes, name: str) -> FileText:
    """Return the sheets of an Excel workbook as tables, with the last values that were calculated."""
    openpyxl = require("openpyxl", "documents")
    document = TextBuilder()
    with check_archive(data, "xlsx"):
        book = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
        for sheet in book.worksheets:
            document.heading(2, sheet.title)
            # The size that a file claims may be wrong.
            sheet.reset_dimensions()
            document.table([[_cell(value) for value in row] for row in sheet.iter_rows(values_only=True)])
    return document.file(name)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime) and value.time() == time():
        return value.date().isoformat()
    return str(value)

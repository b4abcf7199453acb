"""DOCX: the text of a Word document with its headings, lists and tables, turned into Markdown."""

from __future__ import annotations

import io
import zipfile
from typing import Any

from corag.files.markdown import read_markdown
from corag.files.read import MAX_TEXT_BYTES, UnreadableFileError
from corag.files.structure import FileText
from corag.files.web import parse_html, to_markdown
from corag.optional import require

_COMPOUND_FILE = b"\xd0\xcf\x11\xe0"
# The style `Title` names the document; headings keep their levels below it.
_STYLES = "p[style-name='Title'] => p.title:fresh\np[style-name='Subtitle'] => p:fresh"


def read_docx(data: bytes, name: str) -> FileText:
    """Return the text of a Word document; see `read_file`. Pictures, comments and page headers are left out."""
    if data.startswith(_COMPOUND_FILE):
        raise UnreadableFileError("encrypted, or in the old .doc format; save it as .docx without a password")
    mammoth = require("mammoth", "documents")
    _check_size(data)

    def no_picture(_: Any) -> list[Any]:
        return []

    try:
        page = mammoth.convert_to_html(io.BytesIO(data), style_map=_STYLES, convert_image=no_picture).value
    except RecursionError:
        raise
    # It raises errors of many kinds (of XML, zip, missing parts) for a damaged document.
    except Exception as error:
        raise UnreadableFileError(f"damaged: {type(error).__name__}: {error}") from error
    soup = parse_html(page)
    titles = soup.select("p.title")
    title = " ".join(titles[0].get_text().split()) if titles else ""
    for element in titles[:1]:
        element.decompose()
    return read_markdown(to_markdown(soup), name, title=title, lines=False)


def _check_size(data: bytes) -> None:
    """Refuse what is no zip archive, and one that would fill the memory when it is unpacked."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(part.file_size for part in archive.infolist() if part.filename.endswith((".xml", ".rels")))
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise UnreadableFileError(f"damaged: no zip archive, as .docx files are ({error})") from error
    if size > MAX_TEXT_BYTES:
        raise UnreadableFileError(f"{size / 2**20:,.0f} MiB when it is unpacked; split it")

"""HTML, DOCX and manual pages in roff, turned into Markdown: the main part of a page, and the text of a document."""

from __future__ import annotations

import io
import subprocess
import warnings
import zipfile
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from shutil import which
from typing import Any

from corag.files.formulas import linear
from corag.files.markdown import FileText, letters, read_markdown
from corag.files.navigation import remove_navigation
from corag.files.read import MAX_TEXT_BYTES, NESTED, UnreadableFileError, decode
from corag.optional import require
from corag.text.units import INDENT

MAX_DEPTH = 150
"""Elements within each other: what is deep inside is looked at once for each element around it."""
MAX_SECONDS = 60
"""Time for mandoc: less than for a reader, which would leave it running."""

# What is no text of the document: code, forms, and what leads to other pages.
_NO_TEXT = (
    "script, style, noscript, template, svg, iframe, object, form, button, nav, aside, dialog, [hidden], "
    "[role=navigation], [role=search], [role=banner], [role=contentinfo], [aria-hidden=true], a.headerlink, a.anchor"
)
_HEADING_LINKS = ", ".join(f"h{level} a[href]" for level in range(1, 7))
_MAIN = "main, [role=main]"
_COMPOUND_FILE = b"\xd0\xcf\x11\xe0"
# The style `Title` names the document; headings keep their levels below it.
_STYLES = "p[style-name='Title'] => p.title:fresh\np[style-name='Subtitle'] => p:fresh"


def read_html(data: bytes, name: str) -> FileText:
    """Return the text of an HTML page, or of the main part that it marks.

    The title in its head counts if it has no single first-level heading.
    """
    soup = parse_html(data)
    title = " ".join(soup.title.get_text().split()) if soup.title else ""
    anchors = _anchors(soup)
    markdown = markdown_of(page_content(soup))
    return _with_anchors(read_markdown(markdown, name, title=title, lines=False), anchors)


def page_content(soup: Any) -> Any:
    """Return the element with the text of a page, of which what is no text of the document is removed."""
    for element in soup.select(_NO_TEXT):
        element.decompose()
    for link in soup.select(_HEADING_LINKS):
        if not letters(link.get_text()):
            link.decompose()  # a sign that leads to the heading itself
    main = soup.select(_MAIN)
    if not main:
        # A header of the site names the site; one inside an article names the article.
        for element in soup.select("body > footer, body > header:not(:has(h1)), body > * > footer"):
            element.decompose()
    content = main[0] if len(main) == 1 else soup.body or soup
    remove_navigation(content)
    return content


def _anchors(tree: Any) -> list[tuple[str, str]]:
    """Return the letters of each heading and the name by which a link leads to it."""
    anchors = []
    for heading in tree.select("h1, h2, h3, h4, h5, h6"):
        # The name is at the heading, inside it, or at the section that it begins.
        elements = [heading, *heading.select("[id], a[name]")]
        if heading.parent is not None and heading.find_previous_sibling() is None:
            elements.append(heading.parent)
        names = [element.get("id") or element.get("name") for element in elements]
        anchors.append((letters(heading.get_text()), next(filter(None, names), "")))
    return anchors


def _with_anchors(file: FileText, anchors: list[tuple[str, str]]) -> FileText:
    """Return a file whose sections have the anchors of their headings; both are in the page's order."""
    places: dict[str, deque[int]] = {}
    for number, (heading, _) in enumerate(anchors):
        places.setdefault(heading, deque()).append(number)
    sections, first = [], 0
    for section in file.sections:
        numbers = places.get(letters(section.headings[-1]), deque())
        while numbers and numbers[0] < first:
            numbers.popleft()
        if section.start < section.body and numbers:
            number = numbers.popleft()
            section, first = replace(section, anchor=anchors[number][1]), number + 1
        sections.append(section)
    return replace(file, sections=tuple(sections))


def parse_html(data: bytes | str, parser: str = "lxml") -> Any:
    """Return the tree of a page, or of an XML document by the parser `xml`."""
    require("lxml", "documents")
    soup = require("bs4", "documents")
    with warnings.catch_warnings():
        # It warns of XHTML, of texts that look like a file's name, and of bytes in another encoding than declared.
        warnings.simplefilter("ignore")
        tree = soup.BeautifulSoup(data, parser)
    depths = {id(tree): 0}
    for element in tree.find_all(True):
        depths[id(element)] = depths[id(element.parent)] + 1
    if max(depths.values()) > MAX_DEPTH:
        raise UnreadableFileError(NESTED)
    return tree


def markdown_of(tree: Any) -> str:
    """Return a tree as Markdown: without pictures, links as their words."""
    require("markdownify", "documents")
    from corag.files.converter import to_markdown

    return to_markdown(tree)


def read_docx(data: bytes, name: str) -> FileText:
    """Return the text of a Word document, without pictures, comments and page headers."""
    mammoth = require("mammoth", "documents")
    with check_archive(data, "docx"):
        document = io.BytesIO(_with_formulas_as_text(data))
        page = mammoth.convert_to_html(document, style_map=_STYLES, convert_image=lambda _: []).value
    soup = parse_html(page)
    titles = soup.select("p.title")
    title = " ".join(titles[0].get_text().split()) if titles else ""
    for element in titles[:1]:
        element.decompose()
    return read_markdown(markdown_of(soup), name, title=title, lines=False)


def _with_formulas_as_text(data: bytes) -> bytes:
    """Return a Word document with its formulas as text in one line: mammoth leaves them out."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(file, "w") as changed:
        parts = {part: archive.read(part) for part in archive.infolist()}
        formulas = [part for part, content in parts.items() if b"<m:oMath" in content]
        if not formulas:
            return data
        for part, content in parts.items():
            changed.writestr(part, _formulas_as_text(content) if part in formulas else content)
    return file.getvalue()


def _formulas_as_text(document: bytes) -> bytes:
    tree = parse_html(document, "xml")
    for formula in tree.find_all("m:oMath"):
        run, text = tree.new_tag("w:r"), tree.new_tag("w:t", attrs={"xml:space": "preserve"})
        text.string = linear(formula)
        run.append(text)
        formula.replace_with(run)
    for paragraph in tree.find_all("m:oMathPara"):
        paragraph.unwrap()
    return bytes(tree.encode("utf-8"))


def read_man(data: bytes, name: str) -> FileText:
    """Return the text of a manual page under its headings, titled as in `ls(1)`, as mandoc renders it.

    Of the programs that render roff, mandoc is the one that opens no other file when it reads from standard input:
    groff, which `man` calls on many systems, copies any file of this machine that a page names in `.so` into its text.

    Raises:
        UnreadableFileError: mandoc is not installed, or the page only refers to another one.
    """
    page = decode(data)
    request = page.partition("\n")[0][1:].split()
    if request[:1] == ["so"] and len(request) > 1:
        raise UnreadableFileError(f"it only refers to {request[1]}")
    if (mandoc := which("mandoc")) is None:
        raise UnreadableFileError(
            "a manual page in roff, which needs mandoc: install it, or write the page as text (man -l FILE)"
        )
    # What is wrong with a page is for its author; mandoc renders it as far as it goes.
    command = [mandoc, "-K", "utf-8", "-T", "html", "-O", "fragment"]
    try:
        done = subprocess.run(command, input=page.encode(), capture_output=True, check=False, timeout=MAX_SECONDS)
    except subprocess.TimeoutExpired:
        raise UnreadableFileError(f"mandoc takes more than {MAX_SECONDS} seconds for it") from None
    tree = parse_html(done.stdout)
    for line_end in tree.select("pre br"):
        if str(line_end.next_sibling)[:1] == "\n":
            line_end.next_sibling.replace_with(line_end.next_sibling[1:])
        line_end.decompose()
    title = tree.select_one(".head-ltitle").get_text().lower()
    for mark in tree.select("b, i, :not(pre) > code"):
        mark.unwrap()
    for synopsis in tree.select("table.Nm"):
        synopsis.replace_with(" ".join(synopsis.get_text().split()))
    markdown = markdown_of(tree.select_one(".manual-text"))
    described = markdown.replace("\n:   ", f"\n{INDENT}")  # an option, by what is set in below it
    return read_markdown(described, name, title="" if title == "()" else title, lines=False)


@contextmanager
def check_archive(data: bytes, ending: str) -> Iterator[None]:
    """Refuse data that is no Office document, or would fill the memory when it is unpacked; name errors of its reader.

    Raises:
        UnreadableFileError: It is encrypted, damaged or too large.
    """
    if data.startswith(_COMPOUND_FILE):
        raise UnreadableFileError(
            f"encrypted, or in the old .{ending[:-1]} format; save it as .{ending} without a password"
        )
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            # Pictures are packed already, and no text; whatever grows when it is unpacked may be text in their place.
            size = sum(
                max(part.file_size - ("/media/" in part.filename) * part.compress_size, 0)
                for part in archive.infolist()
            )
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise UnreadableFileError(f"damaged: no zip archive, as .{ending} files are ({error})") from error
    if size > MAX_TEXT_BYTES:
        raise UnreadableFileError(f"{size / 2**20:,.0f} MiB when it is unpacked; split it")
    try:
        yield
    except (MemoryError, RecursionError):
        raise
    # Readers raise errors of many kinds (of XML, zip, missing parts) for a damaged document.
    except Exception as error:
        raise UnreadableFileError(f"damaged: {type(error).__name__}: {error}") from error

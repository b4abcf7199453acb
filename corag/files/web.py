"""HTML, DOCX and manual pages in roff, turned into Markdown: the main part of a page, and the text of a document."""

from __future__ import annotations

import io
import re
import subprocess
import warnings
import zipfile
from codecs import BOM_UTF8, lookup
from collections import deque
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from shutil import which
from typing import Any
from unicodedata import category

from bs4 import BeautifulSoup
from bs4.dammit import EncodingDetector
from markdownify import MarkdownConverter

from corag.files.markdown import FileText, fenced, letters, read_markdown
from corag.files.navigation import remove_navigation
from corag.files.office import check_archive
from corag.files.read import NESTED, UnreadableFileError, decode

MAX_DEPTH = 150
"""Elements within each other: what is deep inside is looked at once for each element around it."""
MAX_SECONDS = 60
"""Time for mandoc: less than for a reader, which would leave it running."""

# What is no text of the document: code, forms, and what leads to other pages.
_NO_TEXT = (
    "script, style, noscript, template, svg, iframe, object, button, select, nav, dialog, [hidden], "
    "form:not(:has(h1, h2)), html:has(h1:not(form *)) form, aside:not(article aside, section aside, [epub\\:type]), "
    "[role=navigation], [role=search], [role=banner], [role=contentinfo], [aria-hidden=true], "
    "a.headerlink, a.anchor, a.copiable-anchor, a.copiable-link"
)
_MAIN = "main, [role=main]"
# The style `Title` names the document; headings keep their levels below it. Tables of contents are left out.
_STYLES = "p[style-name='Title'] => p.title:fresh\np[style-name='Subtitle'] => p:fresh\n"
_STYLES += "p[style-name^='toc '] => !\np[style-name='table of figures'] => !"


def read_html(data: bytes, name: str) -> FileText:
    """Return the text of an HTML page, or of the main part that it marks.

    The title in its head counts if it has no single first-level heading.
    """
    soup = parse_html(data)
    title = " ".join(soup.title.get_text().split()) if soup.title else ""
    anchors = _anchors(soup)
    markdown = markdown_of(page_content(soup))
    return _with_anchors(read_markdown(markdown, name, title=title), anchors)


def page_content(soup: Any) -> Any:
    """Return the element with the text of a page, of which what is no text of the document is removed."""
    for element in soup.select(_NO_TEXT):
        element.decompose()
    for link in soup.select(":is(h1, h2, h3, h4, h5, h6) a[href]"):
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
    if isinstance(data, bytes) and parser != "xml":
        data = _decoded(data)
    with warnings.catch_warnings():
        # It warns of XHTML, and of texts that look like a file's name.
        warnings.simplefilter("ignore")
        tree = BeautifulSoup(data, parser)
    depths = {id(tree): 0}
    for element in tree.find_all(True):
        depths[id(element)] = depths[id(element.parent)] + 1
    if max(depths.values()) > MAX_DEPTH:
        raise UnreadableFileError(NESTED)
    return tree


def _decoded(page: bytes) -> str:
    """Return the text of a page by the encoding that it declares, or else, and where that is wrong, as any text."""
    declared = EncodingDetector.find_declared_encoding(page, is_html=True)
    if declared is not None and not page.startswith(BOM_UTF8):
        with suppress(LookupError, UnicodeDecodeError):
            # As browsers read what is declared to be ISO-8859-1: its other characters are controls, which no page has.
            return page.decode("cp1252" if lookup(declared).name == "iso8859-1" else declared)
    return decode(page)


def read_docx(data: bytes, name: str) -> FileText:
    """Return the text of a Word document, without pictures, comments and page headers."""
    import mammoth  # type: ignore[import-untyped]

    with check_archive(data, "docx"):
        document = io.BytesIO(_with_formulas_as_text(data))
        page = mammoth.convert_to_html(document, style_map=_STYLES, convert_image=lambda _: []).value
    soup = parse_html(page)
    named = soup.select_one("p.title")
    title = "" if named is None else " ".join(named.extract().get_text().split())
    return read_markdown(markdown_of(soup), name, title=title)


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
    # A list with signs; an option, by what is set in below it.
    described = markdown.replace("•\n:   ", "- ").replace("\n:   ", "\n    ")
    return read_markdown(described, name, title="" if title == "()" else title)


# --- The tree of a page as Markdown, by markdownify, in a time and size in proportion to the page's ---

# A cell over more columns or rows is taken for one over these; a table has at most so many empty cells for one.
_MOST_SPANNED = 32
_EMPTY_CELLS = 4
_CELLS = ["td", "th"]
# Blocks that markdownify takes for words of the line.
_OTHER_BLOCKS = ["address", "center", "details", "footer", "header", "legend", "main", "summary"]
_TABLE_PARTS = ["caption", "thead", "tbody", "tfoot", "tr", *_CELLS]
# A table around these is there for the layout, as line numbers beside code are.
_NOT_IN_TABLES = ["table", "h1", "h2", "h3", "h4", "h5", "h6", "pre"]
# Patterns of markdownify take the square of such a run's length.
_LONG_SPACE = re.compile(r"(?<!\s)(\s{1000})\s++")
# What is before signs at the beginning of a paragraph, a quotation or an item of a list; see `_Converter.escape`.
_LINE_OF_SIGNS = re.compile(r"(?m)^([ \t>]*+(?:(?:-|\d++\.)[ \t]++)*+)\xad(?=#)")


def markdown_of(tree: Any) -> str:
    """Return a tree as Markdown: without pictures, links as their words."""
    _unwrap_layout_tables(tree)
    for text in tree.find_all(string=_LONG_SPACE):
        text.replace_with(type(text)(_LONG_SPACE.sub(r"\1", text)))
    for table in tree.find_all("table"):
        _set_spans(table)
    for items in tree.find_all("ol"):
        start = str(items.get("start", ""))
        first = int(start) if start.isdecimal() and len(start) < 10 else 1
        for number, item in enumerate(items.find_all("li", recursive=False), start=first):
            item["number"] = number
    for heading in tree.find_all(["h1", "h2", "h3", "h4", "h5", "h6"]):
        if text := [text for text in heading.find_all(string=True) if text.strip()]:
            # Signs at its end would be taken for its mark.
            words = text[-1].rstrip().rstrip("#")
            if words != text[-1].rstrip() and not words[-1:].strip():
                text[-1].replace_with(f"{words}\\{text[-1][len(words) :]}")
    for formula in tree.find_all("math"):
        formula.replace_with(linear(formula))
    for block in tree.find_all(_OTHER_BLOCKS):
        block.name = "div"
    converter = _Converter(
        heading_style="ATX",
        strip=["a", "img"],
        escape_asterisks=False,
        escape_underscores=False,
        strong_em_symbol="*",
    )
    markdown = _LINE_OF_SIGNS.sub(r"\1\\", converter.convert_soup(tree)).replace("\xad", "")
    lines = [line.rstrip(" \t") for line in markdown.split("\n")]
    return "\n".join(line for above, line in pairwise(["", *lines]) if line or above).strip()


def _unwrap_layout_tables(tree: Any) -> None:
    """Make tables that are there for the layout blocks."""
    tables = [one for one in tree.find_all("table") if one.get("role") == "presentation" or one.find(_NOT_IN_TABLES)]
    layout = set(map(id, tables))
    parts = [part for part in tree.find_all(_TABLE_PARTS) if id(part.find_parent("table")) in layout]
    for element in (*tables, *parts):
        element.name = "div"


def _set_spans(table: Any) -> None:
    """Write into the cells of a table how many columns they take, and how many before them are those of rows above."""
    lines = table.find_all("tr")
    rows = [line.find_all(_CELLS, recursive=False) for line in lines]
    left = _EMPTY_CELLS * sum(map(len, rows)) + _MOST_SPANNED
    below: dict[int, int] = {}  # column -> further rows that a cell above takes there
    for number, cells in enumerate(rows):
        column = 0
        taken = {at: more - 1 for at, more in below.items() if more > 1}
        for cell in cells:
            before = 0
            while left and below.get(column):
                before, column, left = before + 1, column + 1, left - 1
            columns = min(_spanned(cell, "colspan"), left + 1)
            left -= columns - 1
            further = min(_spanned(cell, "rowspan"), len(rows) - number) - 1
            if further:
                taken.update(dict.fromkeys(range(column, column + columns), further))
            cell["before"], cell["columns"] = before, columns
            column += columns
        if number == 0:
            lines[0]["columns"] = column
        below = taken


def _spanned(cell: Any, name: str) -> int:
    number = str(cell.get(name, ""))
    return max(1, min(_MOST_SPANNED, int(number))) if number.isdecimal() and len(number) < 10 else 1


class _Converter(MarkdownConverter):
    """Converts elements that `markdown_of` has prepared; markdownify looks for a cell's or an item's neighbours."""

    def escape(self, text: str, parent_tags: set[str]) -> str:
        # Behind such a soft hyphen `markdown_of` escapes what would be a heading: it knows whether a line begins here.
        return re.sub(r"(?m)^([ \t]*)(?=#+\s)", "\\1\xad", text)

    def convert_li(self, el: Any, text: str, parent_tags: set[str]) -> str:
        mark = f"{el['number']}. " if "number" in el.attrs else "- "
        first, *lines = text.strip().split("\n")
        return "\n".join([mark + first, *(line and " " * len(mark) + line for line in lines)]) + "\n" if text else "\n"

    def convert_td(self, el: Any, text: str, parent_tags: set[str]) -> str:
        before, columns = int(el.get("before", 0)), int(el.get("columns", 1))
        words = " ".join(text.split()).replace("|", "\\|")  # it would end the cell
        return "  |" * before + f" {words} |" + "  |" * (columns - 1)

    convert_th = convert_td

    def convert_tr(self, el: Any, text: str, parent_tags: set[str]) -> str:
        # The first row of a table is its header.
        return f"|{text}\n|{' --- |' * int(el['columns'])}\n" if "columns" in el.attrs else f"|{text}\n"

    def convert_pre(self, el: Any, text: str, parent_tags: set[str]) -> str:
        return f"\n\n{fenced(text)}\n\n" if text.strip() else ""

    def convert_sup(self, el: Any, text: str, parent_tags: set[str]) -> str:
        words = text.strip()
        before = str(el.previous_sibling or "")[-1:]
        if not words or words[0] in "[(":
            return words
        if el.find("a", href=True) is not None:
            return f"[{words}]"  # a note
        if before.isdigit() and words.isalpha() and len(words) > 1:
            return words  # 1st
        return f"^{words}" if words.isalnum() else f"^({words})"

    def convert_sub(self, el: Any, text: str, parent_tags: set[str]) -> str:
        words, following = text.strip(), str(el.next_sibling or "")[:1]
        return f"_{words} " if following.isdigit() and words[-1:].isdigit() else words


# --- Formulas of MathML and of Office documents in one line: `(a + b)/2`, `x^2`, `√(n)` ---

# By the names of both formats: what stands between the parts of a formula, with parts of more than a word in brackets.
_BETWEEN = {
    "mfrac": "/", "f": "/", "msup": "^", "sSup": "^", "mover": "^", "limUpp": "^", "acc": "", "msub": "_", "sSub": "_",
    "munder": "_", "limLow": "_", "msubsup": "_^", "sSubSup": "_^", "munderover": "_^",
}  # fmt: skip
_NO_PARTS = ("Pr", "annotation", "annotation-xml")
"""What names of elements end with that have properties, or the same formula in another notation."""
_LISTS = {"mtr": ", ", "mr": ", ", "mtable": "; ", "m": "; "}


def linear(element: Any) -> str:
    """Return a formula, an element of Beautiful Soup, in one line."""
    if element.name is None:
        return " ".join(element.split())
    name = _name(element)
    children = [child for child in element.children if not _name(child).endswith(_NO_PARTS)]
    parts = [part for part in map(linear, children) if part]
    if name in _BETWEEN and len(parts) > 1:
        first, *others = map(_grouped, parts)
        return first + "".join(mark + part for mark, part in zip(_BETWEEN[name], others, strict=False))
    if name in ("msqrt", "mroot", "rad") and parts:
        # The degree is the second part in MathML, the first in Office Math.
        *degree, root = parts if name == "rad" else reversed(parts) if name == "mroot" else ["".join(parts)]
        return f"{''.join(degree)}√({root})"
    if name == "nary":
        sign, marks = _property(element, "chr", "∫"), {"sub": "_", "sup": "^"}
        limits = [(marks.get(_name(child), " "), linear(child)) for child in children if child.name is not None]
        return sign + "".join(f"{mark}{_grouped(part) if mark != ' ' else part}" for mark, part in limits if part)
    if name == "d":
        return f"{_property(element, 'begChr', '(')}{', '.join(parts)}{_property(element, 'endChr', ')')}"
    if name in _LISTS:
        joined = _LISTS[name].join(parts)
        return f"[{joined}]" if _LISTS[name] == "; " else joined
    text = "".join(parts)
    return f" {text} " if name == "mo" and (text == "-" or (len(text) == 1 and category(text) == "Sm")) else text


def _name(element: Any) -> str:
    return str(element.name).rpartition(":")[2]


def _grouped(part: str) -> str:
    is_word = all(character.isalnum() or character in "_.," for character in part.removeprefix("-"))
    return part if is_word else f"({part.strip()})"


def _property(element: Any, name: str, default: str) -> str:
    found = next((one for one in element.find_all(True) if _name(one) == name), None)
    return default if found is None else str(found.get("m:val", found.get("val", "")))

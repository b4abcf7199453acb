"""Files that are text, or hold texts: Markdown, plain text, CSV, JSON, mail, notebooks and EPUB books."""

from __future__ import annotations

import csv
import email
import email.policy
import io
import json
import posixpath
import zipfile
from collections.abc import Mapping
from email.message import EmailMessage, MIMEPart
from typing import Any
from urllib.parse import unquote

from corag.files.lines import joined_words, shortened_rules, without_manual_heads, without_running_heads
from corag.files.markdown import (
    Block,
    FileText,
    TextBuilder,
    fenced,
    fields_of,
    front_matter,
    read_markdown,
    sections_of,
    without_navigation,
)
from corag.files.office import check_archive
from corag.files.read import MAX_TEXT_BYTES, UnreadableFileError, decode

_DELIMITERS = ",;\t|"
# What names a row, in this order.
_TITLES = ("title", "name", "question", "id", "_id")
_NAMED_FIELDS = ("From", "To", "Date")
"""Of mail."""


def read_md(data: bytes, name: str) -> FileText:
    """Return the text of a Markdown file, without its table of contents."""
    text = decode(data)
    start, fields = front_matter(text)
    body = without_navigation(text[start:])
    return read_markdown(text[:start] + body, name, fields=fields, start=start, lines=True)


def read_text(data: bytes, name: str) -> FileText:
    """Return a plain text as one section; no line moves, so that lines can be cited."""
    pages = without_running_heads(shortened_rules(decode(data)).split("\f"))
    [text] = joined_words([without_manual_heads("\f".join(pages))], typed=True)
    blocks = [Block(len(text) - len(text.lstrip()))] if text.strip() else []
    return FileText(text, sections_of(text, (), blocks, name), lines=True)


def read_csv(data: bytes, name: str) -> FileText:
    """Return a CSV file as a table whose first row is its header; a cell is on one line, whatever its line breaks.

    Rows of one cell above the header are text, and `sep=;` in the first line is none.
    """
    text = decode(data)
    unquoted = ("".join(line.split('"')[::2]) for line in io.StringIO(text))
    first = next((line for line in unquoted if any(map(line.count, _DELIMITERS))), "")
    delimiter = max(_DELIMITERS, key=first.count)
    csv.field_size_limit(MAX_TEXT_BYTES)
    rows, numbers, line = [], [], 1
    read = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    for row in read:
        if any(cell.strip() for cell in row) and row != ["sep=", ""]:
            rows.append(row)
            numbers.append(line)
        line = read.line_num + 1
    document = TextBuilder()
    document.sheet(rows, numbers)
    return document.file(name)


def read_jsonl(data: bytes, name: str) -> FileText:
    """Return the rows of a file of JSON lines, each under its title, as `field: value` lines."""
    document = TextBuilder()
    # A line ends with a line feed alone: texts in it may hold other separators of lines.
    for number, line in enumerate(io.StringIO(decode(data)), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UnreadableFileError(f"line {number} is not JSON: {error}") from error
        _add_row(document, number, row)
    return document.file(name)


def read_json(data: bytes, name: str) -> FileText:
    """Return a JSON list of objects, alone or as the only field of an object, as rows; other JSON as it is written."""
    text, document, decoder = decode(data), TextBuilder(), json.JSONDecoder()
    line, last, end = 1, 0, 0
    try:
        rows = decoder.decode(text)
        if isinstance(rows, dict) and len(rows) == 1:
            [rows] = rows.values()
            _, end = decoder.raw_decode(text, text.index('"'))  # the name of the field may have brackets
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            return read_text(data, name)
        for row in rows:
            start = text.index("{", end)
            _, end = decoder.raw_decode(text, start)
            line, last = line + text.count("\n", last, start), start
            _add_row(document, line, row)
    except (ValueError, RecursionError):
        return read_text(data, name)
    return document.file(name)


def _add_row(document: TextBuilder, number: int, row: Any) -> None:
    fields = row if isinstance(row, dict) else {"": row}
    titles = [str(fields[field]).strip() for field in _TITLES if isinstance(fields.get(field), str | int)]
    document.line(number)
    document.heading(2, next(filter(None, titles), f"{number}"))
    document.block("\n".join(_field(field, value) for field, value in fields.items() if value not in (None, "")))


def _field(name: str, value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"{name}: {text}" if name else text


def read_mail(data: bytes, name: str) -> FileText:
    """Return the text of mail under its subject; attachments are named. Sender, receivers and date are fields, too."""
    parts = [data]
    if data.startswith(b"From "):  # of several each begins with such a line
        parts = [part.partition(b"\n")[2] for part in data[5:].replace(b"\r\n", b"\n").split(b"\n\nFrom ")]
    messages = [email.message_from_bytes(part, policy=email.policy.default) for part in parts]
    if len(messages) > 1:
        return read_markdown("\n\n".join(f"## {_subject(one, name)}\n\n{_mail(one)}" for one in messages), name)
    [message] = messages
    fields = fields_of({part.lower(): text for part, text in _named_fields(message).items()})
    return read_markdown(_mail(message), name, title=_subject(message, name), fields=fields)


def _subject(message: EmailMessage, name: str) -> str:
    return " ".join(str(message["Subject"] or name).split())


def _named_fields(message: EmailMessage) -> dict[str, str]:
    fields = {}
    for part in _NAMED_FIELDS:
        try:
            fields[part] = str(message[part] or "")
        except (AttributeError, IndexError):  # the package fails on some texts that are no addresses
            fields[part] = next(str(text) for name, text in message.raw_items() if name.lower() == part.lower())
    return {part: text for part, text in fields.items() if text}


def _mail(message: EmailMessage) -> str:
    lines = [f"{part}: {text}" for part, text in _named_fields(message).items()]
    body = message.get_body(("plain", "html"))
    if body is not None and body.get_content_type() == "text/html":
        from corag.files.web import markdown_of, page_content, parse_html

        text = markdown_of(page_content(parse_html(_content(body))))
    else:
        text = "" if body is None else _content(body)
    attached = [part.get_filename() for part in message.iter_attachments()]
    named = [f"Attached: {', '.join(filter(None, attached))}"] if any(attached) else []
    return "\n\n".join(["\n".join(lines), text, *named])


def _content(part: MIMEPart) -> str:
    """Return a part of a message as its charset says, whatever a page in it declares; without one it is guessed."""
    data: bytes = part.get_payload(decode=True)  # type: ignore[assignment]
    try:
        return data.decode(part.get_content_charset(""), "replace")
    except LookupError:
        return decode(data)


def read_notebook(data: bytes, name: str) -> FileText:
    """Return the text of a Jupyter notebook: its Markdown, its code, and what the code printed as text."""
    try:
        notebook = json.loads(decode(data))
        cells = notebook["cells"]
        parts = [part for cell in cells for part in _cell(cell)]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UnreadableFileError(f"damaged: no notebook of version 4 ({type(error).__name__}: {error})") from error
    return read_markdown("\n\n".join(parts), name)


def _cell(cell: Mapping[str, Any]) -> list[str]:
    source = _joined(cell["source"]).strip()
    if cell["cell_type"] != "code":
        return [source]
    printed = [_joined(one.get("text") or one.get("data", {}).get("text/plain", "")) for one in cell.get("outputs", [])]
    return [fenced(text) for text in (source, *printed) if text.strip()]


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)


def read_epub(data: bytes, name: str) -> FileText:
    """Return the text of an EPUB book: its pages in reading order, without its table of contents."""
    from corag.files.web import markdown_of, page_content, parse_html

    with check_archive(data, "epub"), zipfile.ZipFile(io.BytesIO(data)) as archive:
        container = parse_html(archive.read("META-INF/container.xml"), "xml")
        package_path = unquote(container.find("rootfile")["full-path"])
        package = parse_html(archive.read(package_path), "xml")
        items = {item.get("id"): item for item in package.find_all("item")}
        pages = [items[one.get("idref")] for one in package.find_all("itemref") if one.get("idref") in items]
        folder = posixpath.dirname(package_path)
        known = set(archive.namelist())
        texts = []
        for page in pages:
            path = posixpath.normpath(posixpath.join(folder, unquote(page.get("href", ""))))
            if "nav" not in page.get("properties", "").split() and path in known:
                texts.append(markdown_of(page_content(parse_html(archive.read(path)))))
        found = {
            field: package.find(field) or package.find(f"dc:{field}") for field in ("title", "creator", "language")
        }
    fields = fields_of({field: element.get_text().strip() for field, element in found.items() if element is not None})
    title = str(fields.pop("title", ""))
    text = "\n\n".join(without_running_heads(texts))
    return read_markdown(text, name, title=title, fields=fields)

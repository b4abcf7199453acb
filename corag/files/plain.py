"""Files that are text: Markdown, plain text and CSV as they are, and JSON lines as fields and their values."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

from corag.files.lines import joined_words, without_manual_heads, without_running_heads
from corag.files.markdown import Block, FileText, TextBuilder, read_markdown, sections_of, without_navigation
from corag.files.read import MAX_TEXT_BYTES, UnreadableFileError, decode

_DELIMITERS = ",;\t|"
# What names a row, in this order.
_TITLES = ("title", "name", "question", "id", "_id")


def read_md(data: bytes, name: str) -> FileText:
    """Return the text of a Markdown file, without its table of contents."""
    return read_markdown(without_navigation(decode(data)), name)


def read_text(data: bytes, name: str) -> FileText:
    """Return a plain text as one section; no line moves, so that lines can be cited."""
    pages = without_running_heads(decode(data).split("\f"))
    [text] = joined_words([without_manual_heads("\f".join(pages))], typed=True)
    blocks = [Block(len(text) - len(text.lstrip()))] if text.strip() else []
    return FileText(text, sections_of(text, (), blocks, name), lines=True)


def read_csv(data: bytes, name: str) -> FileText:
    """Return a CSV file as a table whose first row is its header; a cell is on one line, whatever its line breaks."""
    text = decode(data)
    first = text.lstrip().partition("\n")[0]
    delimiter = max(_DELIMITERS, key=first.count)
    csv.field_size_limit(MAX_TEXT_BYTES)
    rows, numbers, line = [], [], 1
    read = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    for row in read:
        if any(cell.strip() for cell in row):
            rows.append(row)
            numbers.append(line)
        line = read.line_num + 1
    document = TextBuilder()
    document.table(rows)
    file = document.file(name)
    if file.sections and file.sections[0].blocks[0].kind == "table":
        numbers.insert(0, numbers[0])  # the rule below the header is in no file
    else:
        starts = [section.start for section in file.sections]
        sizes = (file.text.count("\n", *part) for part in pairwise([*starts, len(file.text)]))
        numbers = [number for number, size in zip(numbers[1:], sizes, strict=True) for _ in range(size)]
    return replace(file, line_numbers=(*numbers, line))


def read_jsonl(data: bytes, name: str) -> FileText:
    """Return the rows of a file of JSON lines, each under its title, as `field: value` lines."""
    document = TextBuilder()
    for number, line in enumerate(decode(data).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UnreadableFileError(f"line {number} is not JSON: {error}") from error
        fields = row if isinstance(row, dict) else {"": row}
        titles = [str(fields[field]) for field in _TITLES if isinstance(fields.get(field), str | int)]
        document.heading(2, titles[0] if titles else f"{number}")
        document.block("\n".join(_field(field, value) for field, value in fields.items() if value not in (None, "")))
    return document.file(name)


def _field(name: str, value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"{name}: {text}" if name else text

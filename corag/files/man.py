"""Manual pages in roff, as they are under /usr/share/man, rendered by mandoc.

Of the programs that render roff, mandoc is the one that opens no other file when it reads from standard input: groff,
which `man` calls on many systems, copies any file of this machine that a page names in `.so` into its text.
"""

from __future__ import annotations

import re
import subprocess
from shutil import which

from corag.files.markdown import FileText, read_markdown
from corag.files.read import UnreadableFileError, decode
from corag.files.web import parse_html, to_markdown
from corag.text.units import INDENT

MAX_SECONDS = 60
"""Time for mandoc: less than for a reader, which would leave it running."""

_CODE = re.compile("<pre.*?</pre>", re.DOTALL)
_INCLUDED = re.compile(r"[.']\s*so\s+(\S+)")


def read_man(data: bytes, name: str) -> FileText:
    """Return the text of a manual page under its headings, titled as in `ls(1)`.

    Raises:
        UnreadableFileError: mandoc is not installed, or the page only refers to another one.
    """
    page = decode(data)
    if included := _INCLUDED.match(page):
        raise UnreadableFileError(f"it only refers to {included[1]}")
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
    html = done.stdout.decode()
    tree = parse_html(_CODE.sub(lambda code: code[0].replace("<br/>\n", ""), html))
    title = tree.select_one(".head-ltitle").get_text().lower()
    for mark in tree.select("b, i, :not(pre) > code"):
        mark.unwrap()
    for synopsis in tree.select("table.Nm"):
        synopsis.replace_with(" ".join(synopsis.get_text().split()))
    markdown = to_markdown(tree.select_one(".manual-text"))
    described = re.sub(r"^:   ", INDENT, markdown, flags=re.MULTILINE)  # an option, by what is set in below it
    return read_markdown(described, name, title="" if title == "()" else title, lines=False)

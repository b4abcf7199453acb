"""RST by docutils, and AsciiDoc and TeX as Markdown: their headings, code and tables."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from corag.files.markdown import FileText, read_markdown
from corag.files.plain import read_text
from corag.files.read import decode
from corag.files.web import read_html
from corag.optional import require

_MAX_PARAGRAPH = 20_000
"""Characters; a file with a longer paragraph is read as plain text."""
_DIRECTIVE = re.compile(r"^[ \t]*\.\.[ \t]+(?:\|[^|\n]*\|[ \t]*)?([\w:+.-]+?)::", re.MULTILINE)
_ROLE = re.compile(r":([\w+.-]{1,64}(?::[\w+.-]{1,64}){0,3}):(?=`)")
# Directives of Sphinx that hold names of files, or of entries of an index.
_NO_TEXT = {"toctree", "index", "literalinclude", "highlight", "currentmodule", "module"}


def read_rst(data: bytes, name: str) -> FileText:
    """Return the text of a reStructuredText file; directives and roles that Sphinx adds are read by their content."""
    core = require("docutils.core", "documents")
    text = decode(data)
    if max(map(len, re.split(r"\n[ \t\r]*\n", text))) > _MAX_PARAGRAPH:
        return read_text(data, name)  # docutils takes the square of its length
    _register_others(text)
    settings = {
        "input_encoding": "unicode", "output_encoding": "unicode", "file_insertion_enabled": False,
        "raw_enabled": False, "_disable_config": True, "report_level": 5, "halt_level": 5, "math_output": "LaTeX",
        "syntax_highlight": "none", "embed_stylesheet": False, "stylesheet_path": None, "toc_backlinks": False,
        "line_length_limit": _MAX_PARAGRAPH, "section_self_link": False, "initial_header_level": 2,
    }  # fmt: skip
    page = core.publish_string(text, source_path=name, writer="html5", settings_overrides=settings)
    return read_html(str(page).encode(), name)


def _register_others(text: str) -> None:
    """Tell docutils how to read the directives and roles of a text that it does not know."""
    from docutils import nodes  # type: ignore[import-untyped]
    from docutils.parsers.rst import Directive, directives, languages, roles  # type: ignore[import-untyped]
    from docutils.utils import new_document  # type: ignore[import-untyped]

    any_option = defaultdict(lambda: directives.unchanged, {"name": directives.unchanged})

    class Other(Directive):  # type: ignore[misc]
        has_content = True
        optional_arguments = 1
        final_argument_whitespace = True
        option_spec = any_option

        def run(self) -> list[Any]:
            if self.name in _NO_TEXT:
                return []
            content = nodes.container()
            self.state.nested_parse(self.content, self.content_offset, content)
            argument = " ".join(self.arguments)
            if not argument:
                return list(content.children)
            if not content.children:
                return [nodes.paragraph("", f"{self.name}: {argument}")]
            described = nodes.definition("", *content.children)
            return [nodes.definition_list("", nodes.definition_list_item("", nodes.term("", argument), described))]

    def other(role: str, rawtext: str, text: str, *_: Any, **__: Any) -> tuple[list[Any], list[Any]]:
        shown = nodes.unescape(text)
        # Behind its title is what it refers to: "the guide <target>".
        title = shown.rpartition("<")[0].strip() if shown.endswith(">") else ""
        return [nodes.inline(rawtext, title or shown.lstrip("~!"))], []

    language, document = languages.get_language("en"), new_document("")
    document.settings.report_level = 5
    document.reporter.report_level = 5
    for found in set(_DIRECTIVE.findall(text)):
        if directives.directive(found, language, document)[0] is None:
            directives.register_directive(found, Other)
    for found in set(_ROLE.findall(text)):
        if roles.role(found, language, 0, document.reporter)[0] is None:
            roles.register_local_role(found, other)


def read_asciidoc(data: bytes, name: str) -> FileText:
    """Return the text of an AsciiDoc file as Markdown."""
    return read_markdown("\n".join(_of_asciidoc(decode(data).splitlines())), name, lines=False)


_HEADING = re.compile(r"(={1,6}|#{1,6})[ \t]+(\S.*)")
_FENCE = re.compile(r"(-{4,}|\.{4,}|`{3,}|/{4,}|\|===)[ \t]*\S*")
_ATTRIBUTE = re.compile(r":!?[\w-]+!?:.*|\[[^\]]*\][ \t]*|//(?!/).*|<<<")
_BLOCK_TITLE = re.compile(r"\.(?![. \t])(.+)")
_ITEM = re.compile(r"(\*{1,5}|\.{1,5}|-)[ \t]+(\S.*)")
_LINK = re.compile(r"(?:link:|xref:|https?://)[^\s\[\]]{1,500}\[([^\[\]]+)\]|<<[^<>,]*,([^<>]*)>>")


def _of_asciidoc(lines: list[str]) -> Iterator[str]:
    fence = ""
    table: list[str] = []
    for line in lines:
        closing = line.strip() == fence
        if fence and closing:
            if fence == "|===":
                yield from _table_of(table)
            elif fence[0] != "/":
                yield "```"
            fence = ""
        elif fence == "|===":
            table.append(line)
        elif fence:
            if fence[0] != "/":  # a comment
                yield line
        elif (block := _FENCE.fullmatch(line.strip())) and not line.startswith(" "):
            fence, table = block[1], []
            if fence[0] in "-.`":
                yield "\n```"
            elif fence == "|===":
                yield ""
        elif heading := _HEADING.fullmatch(line):
            yield f"\n{'#' * len(heading[1])} {heading[2]}\n"
        elif item := _ITEM.fullmatch(line.strip()):
            mark = "1." if item[1][0] == "." else "-"
            yield f"{'    ' * (len(item[1]) - 1)}{mark} {_linked(item[2])}"
        elif title := _BLOCK_TITLE.fullmatch(line):
            yield f"\n{title[1]}:\n"
        elif not _ATTRIBUTE.fullmatch(line):
            yield "" if line == "+" else _linked(line)
    if fence and fence != "|===":
        yield "```"
    elif fence:
        yield from _table_of(table)


def _linked(line: str) -> str:
    return _LINK.sub(lambda link: link[1] or link[2], line)


def _table_of(lines: list[str]) -> Iterator[str]:
    """Yield a table in Markdown; cells are on one line, or each on its own with as many to a row as the first has."""
    rows: list[list[str]] = []
    for line in lines:
        if "|" in line:
            rows.append([cell.strip() for cell in line.split("|")[1:]])
        elif line.strip() and rows:
            rows[-1][-1] += f" {line.strip()}"
    width = len(rows[0]) if rows else 0
    cells = [cell for row in rows for cell in row]
    for first in range(0, len(cells), width or 1):
        yield f"| {' | '.join(cells[first : first + width])} |"
        if first == 0:
            yield "|" + " --- |" * width
    yield ""


def read_tex(data: bytes, name: str) -> FileText:
    """Return the text of a TeX document as Markdown: its body, with commands of fonts and references left out."""
    text = decode(data).replace("\r\n", "\n")
    title = _TEX_TITLE.search(text)
    _, begun, body = text.partition("\\begin{document}")
    body = (body if begun else text).partition("\\end{document}")[0]
    written, start, opened = [], 0, None
    for mark in _TEX_ENVIRONMENT.finditer(body):
        if opened is None and mark[1] == "begin":
            written.append(_of_tex(body[start : mark.start()]))
            start, opened = mark.end(), mark[2]
        elif mark[1] == "end" and mark[2] == opened:
            part = body[start : mark.start()]
            code = f"\n```\n{_TEX_SETTINGS.sub('', part, count=1).strip()}\n```\n"
            written.append(code if opened in _TEX_CODE else _tex_table(part))
            start, opened = mark.end(), None
    written.append(_of_tex(body[start:]))
    named = " ".join(_plain_tex(title[1]).split()) if title else ""
    return read_markdown("".join(written), name, title=named, lines=False)


_TEX_TITLE = re.compile(r"\\title\{([^{}]*)\}")
_TEX_CODE = ("verbatim", "lstlisting", "minted", "alltt")
_TEX_ENVIRONMENT = re.compile(rf"\\(begin|end)\{{({'|'.join(_TEX_CODE)}|tabular\*?|tabularx|longtable)\}}")
_TEX_SETTINGS = re.compile(r"\A(?:\[[^\]\n]{0,200}\]|\{[^{}\n]{0,200}\})*")
_TEX_COMMENT = re.compile(r"(?<!\\)%.*")
_LEVELS = {"part": 1, "chapter": 1, "section": 2, "subsection": 3, "subsubsection": 4, "paragraph": 5}
_TEX_HEADING = re.compile(
    rf"\\({'|'.join(_LEVELS)})\*?(?:\[[^\]\n]{{0,200}}\])?\{{([^{{}}]*(?:\{{[^{{}}]*\}}[^{{}}]*)*)\}}"
)
_TEX_ITEM = re.compile(r"[ \t]*\\item(?:\[([^\]\n]{0,200})\])?[ \t]*")
_TEX_BRACED = re.compile(r"\\(?:emph|text\w*|underline|url|footnote|caption|mbox)\*?\{([^{}]*)\}")
_TEX_NO_TEXT = re.compile(
    r"\\(?:label|begin|end|cite\w*|includegraphics|vspace|hspace|bibliography\w*)\*?(?:\[[^\]\n]{0,200}\])?\{[^{}]*\}"
    r"|\\(?:maketitle|tableofcontents|centering|noindent|[hv]line|toprule|midrule|bottomrule|newpage|clearpage)\b"
)
_TEX_SIGN = re.compile(r"\\([%&$#_{}])|~")


def _of_tex(text: str) -> str:
    text = _TEX_COMMENT.sub("", text)
    text = _TEX_HEADING.sub(lambda found: f"\n\n{'#' * _LEVELS[found[1]]} {_plain_tex(found[2])}\n\n", text)
    text = _TEX_ITEM.sub(lambda item: f"- {item[1]}: " if item[1] else "- ", text)
    return _plain_tex(text)


def _plain_tex(text: str) -> str:
    for _ in range(3):  # commands within each other
        text = _TEX_BRACED.sub(r"\1", text)
    return _TEX_SIGN.sub(lambda sign: sign[1] or " ", _TEX_NO_TEXT.sub("", text))


def _tex_table(rows: str) -> str:
    rows = _TEX_COMMENT.sub("", _TEX_SETTINGS.sub("", rows, count=1))
    cells = [[" ".join(_plain_tex(cell).split()) for cell in re.split(r"(?<!\\)&", row)] for row in rows.split(r"\\")]
    lines = [f"| {' | '.join(row)} |" for row in cells if any(row)]
    return "\n\n" + "\n".join([*lines[:1], *(["|" + " --- |" * len(cells[0])] if lines else []), *lines[1:]]) + "\n\n"

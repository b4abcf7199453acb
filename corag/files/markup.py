"""RST by docutils, TeX by pylatexenc, and the headings, code, tables and lists of AsciiDoc, as Markdown."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import Any, ClassVar

from corag.files.markdown import FileText, fenced, read_markdown, table_lines
from corag.files.plain import read_text
from corag.files.read import decode

_MAX_PARAGRAPH = 20_000
"""Characters; a file with a longer paragraph is read as plain text."""
_UNDERLINES = "=-~^+"
"""Of headings of AsciiDoc in two lines, from the highest level on."""
# Directives of Sphinx that hold names of files, or of entries of an index.
_NO_TEXT = {"toctree", "index", "literalinclude", "highlight", "currentmodule", "module"}


def read_rst(data: bytes, name: str) -> FileText:
    """Return the text of a reStructuredText file; directives and roles that Sphinx adds are read by their content."""
    from docutils import core  # type: ignore[import-untyped]

    from corag.files.web import read_html

    text = decode(data)
    paragraphs = groupby(text.splitlines(), key=lambda line: bool(line.strip()))
    if max((sum(map(len, lines)) for _, lines in paragraphs), default=0) > _MAX_PARAGRAPH:
        return read_text(data, name)  # docutils takes the square of its length
    settings = {
        "input_encoding": "unicode", "output_encoding": "unicode", "file_insertion_enabled": False,
        "raw_enabled": False, "_disable_config": True, "report_level": 5, "halt_level": 5, "math_output": "LaTeX",
        "syntax_highlight": "none", "embed_stylesheet": False, "stylesheet_path": None, "toc_backlinks": False,
        "line_length_limit": _MAX_PARAGRAPH, "section_self_link": False, "initial_header_level": 2,
    }  # fmt: skip
    with _unknown_names_by_their_content():
        page = core.publish_string(text, source_path=name, writer="html5", settings_overrides=settings)
    # Notes and footnotes are asides in its pages, which in other pages are no text of the document.
    return read_html(str(page).replace("<aside", "<div").replace("</aside", "</div").encode(), name)


@contextmanager
def _unknown_names_by_their_content() -> Iterator[None]:
    """Have docutils read directives and roles that it does not know; Sphinx replaces the same two functions."""
    from docutils import nodes
    from docutils.parsers.rst import Directive, directives, roles  # type: ignore[import-untyped]

    class Other(Directive):  # type: ignore[misc]
        has_content = True
        optional_arguments = 1
        final_argument_whitespace = True
        option_spec: ClassVar = {"name": directives.unchanged}

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

    def with_any_option(directive: Any) -> Any:
        options = defaultdict(lambda: directives.unchanged, directive.option_spec or {})
        return type(directive.__name__, (directive,), {"option_spec": options})

    known_directive, known_role = directives.directive, roles.role
    directives.directive = lambda *of: (with_any_option(known_directive(*of)[0] or Other), [])
    roles.role = lambda *of: (known_role(*of)[0] or other, [])
    try:
        yield
    finally:
        directives.directive, roles.role = known_directive, known_role


_TEX_LEVELS = {"part": 1, "chapter": 1, "section": 2, "subsection": 3, "subsubsection": 4, "paragraph": 5}
_TEX_CODE = ("lstlisting", "minted", "alltt")
_TEX_TABLES = ("tabular", "tabular*", "tabularx", "longtable")
_TEX_REFERENCES = ("label", "ref", "autoref", "cref", "Cref", "eqref", "cite", "citet", "citep")
# Commands whose last argument is text, which pylatexenc leaves out.
_TEX_LAST = dict.fromkeys(("mbox", "textmd", "textsf", "texttt", "textup"), "{")
_TEX_LAST |= {"href": "[{{", "multicolumn": "{{{", "multirow": "[{[{[{"}
_MAX_DEFINED = 300
"""Characters of a command of the document's own, which may be written as often as there are words."""
_TEX_NO_TEXT = (*_TEX_REFERENCES, "maketitle", "includegraphics")


def read_tex(data: bytes, name: str) -> FileText:
    """Return the text of a TeX document as Markdown: its body, formulas as they are, without references."""
    from pylatexenc import latex2text, latexwalker, macrospec  # type: ignore[import-untyped]

    text = decode(data).replace("\r\n", "\n")
    for code in _TEX_CODE:  # pylatexenc knows code by one name
        for mark in ("begin", "end"):
            text = text.replace(f"\\{mark}{{{code}}}", f"\\{mark}{{verbatim}}")
    preamble, begun, body = text.partition("\\begin{document}")
    walked, written = latexwalker.get_default_latex_context_db(), latex2text.get_default_latex_context_db()
    known = [macrospec.MacroSpec(*one) for one in (dict.fromkeys(_TEX_LEVELS, "*[{") | _TEX_LAST).items()]
    walked.add_context_category("corag", known, [macrospec.EnvironmentSpec("longtable", "[{")], prepend=True)
    macro, environment = latex2text.MacroTextSpec, latex2text.EnvironmentTextSpec
    defined: dict[str, str] = {}

    def define(node: Any, l2tobj: Any) -> str:
        # A command at the end of a file or a group has no arguments, and one with parameters stands for no text.
        if node.nodeargd and node.nodeargd.argnlist[2] is None:
            name = node.nodeargd.argnlist[1].latex_verbatim().strip("{\\ }")
            defined[name] = l2tobj.node_arg_to_text(node, 4)[:_MAX_DEFINED]
        return ""

    def own(node: Any) -> str:
        return defined[node.macroname] + node.macro_post_space if node.macroname in defined else ""

    def text_of(source: str) -> str:
        return str(converter.nodelist_to_text(latexwalker.LatexWalker(source, walked).get_latex_nodes()[0]))

    macros = [macro("title", lambda node, l2tobj: defined.update(title=l2tobj.node_arg_to_text(node, 0)))]
    macros += [macro("item", _tex_item), *(macro(level, _tex_heading) for level in _TEX_LEVELS)]
    macros += [macro(command, "") for command in _TEX_NO_TEXT]
    macros += [macro(command, define) for command in ("newcommand", "renewcommand", "providecommand")]
    macros += [macro(command, lambda node, l2tobj: l2tobj.node_arg_to_text(node, -1)) for command in _TEX_LAST]
    macros.append(macro("verb", lambda node: node.nodeargd.verbatim_text if node.nodeargd else ""))
    environments = [environment("verbatim", _tex_code), *(environment(table, _tex_table) for table in _TEX_TABLES)]
    written.add_context_category("corag", macros, environments, prepend=True)
    written.set_unknown_macro_spec(macro("", own))
    converter = latex2text.LatexNodes2Text(written, math_mode="verbatim")
    if begun:
        text_of(preamble)  # which may have the title, and commands of its own
    markdown = text_of(body.partition("\\end{document}")[0] if begun else text).replace("\xa0", " ")
    return read_markdown(markdown, name, title=" ".join(defined.get("title", "").split()))


def _tex_heading(node: Any, l2tobj: Any) -> str:
    return f"\n\n{'#' * _TEX_LEVELS[node.macroname]} {' '.join(l2tobj.node_arg_to_text(node, 2).split())}\n\n"


def _tex_item(node: Any, l2tobj: Any) -> str:
    return f"\n- {l2tobj.nodelist_to_text([node.nodeoptarg])}: " if node.nodeoptarg else "\n- "


def _tex_code(node: Any) -> str:
    code = node.nodeargd.verbatim_text.partition("\n")[2]  # what its first line has are settings
    return f"\n{fenced(code)}\n"


def _tex_table(node: Any, l2tobj: Any) -> str:
    rows: list[list[list[Any]]] = [[[]]]
    for part in node.nodelist:
        if getattr(part, "macroname", "") in ("\\", "tabularnewline"):
            rows.append([[]])
        elif getattr(part, "specials_chars", "") == "&":
            rows[-1].append([])
        else:
            rows[-1][-1].append(part)
    return f"\n\n{''.join(table_lines([[l2tobj.nodelist_to_text(cell) for cell in row] for row in rows]))}\n\n"


def read_asciidoc(data: bytes, name: str) -> FileText:
    """Return the text of an AsciiDoc file as Markdown: its headings, code and tables; the rest is as written."""
    return read_markdown("\n".join(_of_asciidoc(decode(data).splitlines())), name)


def _of_asciidoc(lines: list[str]) -> Iterator[str]:
    end = ""  # of a block that is open
    block: list[str] = []
    in_paragraph = False
    remaining = deque[str | None]([*map(str.rstrip, lines), None])
    while remaining:
        line = remaining.popleft()
        if end and line not in (end, None):
            block.append(str(line))
        elif end:
            yield _block_of_asciidoc(end, block)
            end = ""
        elif line is None:
            return
        elif line.startswith(("```", "|===")) or _is_rule(line, "-./"):
            end, block = "```" if line[0] == "`" else line, []
        elif line.startswith("=") and line.lstrip("=").startswith(" "):
            level = len(line) - len(line.lstrip("="))
            yield f"\n{'#' * level} {line[level:].strip()}\n"
        elif _is_attribute(line):
            in_paragraph = False
        elif not in_paragraph and (level := _level_by(remaining[0] or "", line)):
            remaining.popleft()
            yield f"\n{'#' * level} {line}\n"
        else:
            yield line
            in_paragraph = line != ""


def _level_by(underline: str, title: str) -> int:
    """Return the level of a heading above its underline, which is as long, give or take one; 0 if it is none."""
    is_underline = len(underline) > 2 and not underline.strip(underline[0]) and underline[0] in _UNDERLINES
    is_title = any(map(str.isalnum, title)) and abs(len(underline) - len(title)) < 2 and title[0] != "."
    return _UNDERLINES.index(underline[0]) + 1 if is_underline and is_title else 0


def _is_rule(line: str, marks: str) -> bool:
    return len(line) > 3 and line[0] in marks and not line.strip(line[0])


def _is_attribute(line: str) -> bool:
    """Return whether a line is a setting, a comment, or a mark of what is around it."""
    setting = line[:1] == ":" and " " not in line[1:].partition(":")[0] and ":" in line[1:]
    in_brackets = line[:1] == "[" and line[-1] == "]"
    return setting or in_brackets or line.startswith("//") or line in ("+", "--", "<<<") or _is_rule(line, "=*_+")


def _block_of_asciidoc(end: str, lines: list[str]) -> str:
    if end[0] == "|":
        # Cells are on one line, or each on its own with as many to a row as the first line has.
        cells = " ".join(lines).split("|")[1:]
        width = next((line.count("|") for line in lines if "|" in line), 1)
        return "\n" + "".join(table_lines([cells[first : first + width] for first in range(0, len(cells), width)]))
    return "" if end[0] == "/" else f"\n{fenced(chr(10).join(lines))}\n"

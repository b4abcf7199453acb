"""Markdown: headings, paragraphs, list items, code blocks and tables, each with its place in the text."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise

from markdown_it import MarkdownIt
from markdown_it.token import Token

from corag.files.structure import Block, FileText, Heading, sections_of

_LINE_END = re.compile(r"\r\n?|\n")
# Front matter in YAML or TOML, as static site generators write it.
_FRONT_MATTER = re.compile(r"\A(---|\+\+\+)[ \t]*(?:\r\n?|\n)(.*?)^\1[ \t]*(?:\r\n?|\n|\Z)", re.DOTALL | re.MULTILINE)
_TITLE = re.compile(r"""^title[ \t]*[:=][ \t]*(["']?)(.*?)\1[ \t]*$""", re.MULTILINE)
# Marks of an anchor behind a heading: {#name}, {: #name}, and the link that documentation tools put there.
_ANCHOR = re.compile(r"\s*(?:\{[:#][^{}]*\}|[¶§#]+)\s*$")
_COMMENT = re.compile(r"\s*(?:<!--.*?-->\s*)+", re.DOTALL)
_LEAVES = {"paragraph_open", "heading_open", "fence", "code_block", "table_open", "html_block"}


def read_markdown(text: str, name: str, *, title: str = "", lines: bool = True) -> FileText:
    """Return the structure of a Markdown text (CommonMark with tables).

    Args:
        text: The text.
        name: What stands for a title where the text gives none.
        title: The document's title, if it is known from elsewhere.
        lines: True if the text is a file's own.
    """
    front = _FRONT_MATTER.match(text)
    start = front.end() if front else 0
    named = _TITLE.search(front[2]) if front else None
    body = text[start:]
    starts = [start, *(start + match.end() for match in _LINE_END.finditer(body)), len(text)]
    headings: list[Heading] = []
    blocks: list[Block] = []
    tokens = _parser().parse(body)
    for token, following in pairwise([*tokens, Token("end", "", 0)]):
        if token.type not in _LEAVES or token.map is None:
            continue
        begin, end = starts[token.map[0]], starts[min(token.map[1], len(starts) - 1)]
        if token.type == "heading_open" and token.level == 0:
            headings.append(Heading(int(token.tag[1]), plain(following.content), begin, end))
        elif token.type == "table_open":
            # The row of dashes ends the header.
            blocks.append(Block(begin, "table", starts[token.map[0] + 2]))
        elif token.type in ("fence", "code_block"):
            blocks.append(Block(begin, "code"))
        elif token.type != "html_block" or not _COMMENT.fullmatch(text[begin:end]):
            blocks.append(Block(begin))
    known = title or (named[2].strip() if named else "") or name
    return FileText(text, sections_of(text, headings, blocks, known, start=start), lines=lines)


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    # What is inside a line matters for headings alone.
    return MarkdownIt("commonmark").enable("table").disable("inline")


@lru_cache(maxsize=1)
def _inline() -> MarkdownIt:
    return MarkdownIt("commonmark")


def plain(content: str) -> str:
    """Return the words of a heading, without markup."""
    [whole] = _inline().parseInline(_ANCHOR.sub("", content)) or [Token("inline", "", 0)]
    kept = [" " if "break" in one.type else one.content for one in whole.children or () if one.type != "html_inline"]
    return " ".join(_ANCHOR.sub("", "".join(kept)).split())

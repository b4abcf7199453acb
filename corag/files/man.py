"""Manual pages in roff with the macros of man(7), as they are under /usr/share/man: headings, paragraphs and examples.

Fonts and indentation are dropped, and so is all before the title, where pages define macros.
"""

from __future__ import annotations

import re

from corag.files.compose import TextBuilder
from corag.files.markdown import FileText
from corag.files.read import decode

_HEADINGS = {"SH": 1, "SS": 2}
_CODE = {"nf": True, "EX": True, "Vb": True, "fi": False, "EE": False, "Ve": False}
_BREAKS = {"PP", "P", "LP", "HP", "TP", "TQ", "IP", "sp", "br", "RS", "RE", "SY", "YS", *_CODE}
# Macros that set their words, with spaces between them or without.
_WORDS = {"B", "I", "SM", "SB", "UR", "MT", "SY", "OP"}
_JOINED = {"BR", "RB", "BI", "IB", "IR", "RI"}
_MACRO = re.compile(r"[.'][ \t]*(\w*)(.*)")
_ESCAPE = re.compile(
    r"\\(?:[fsnmF](?:\[[^]]{0,99}\]|\(..|[-+]?.)|[hvwkoZ]'[^']{0,99}'|\*?(?:\[([^]]{0,99})\]|\((..))|\".*|(.)|$)"
)
_CHARACTERS = {
    "aq": "'", "dq": '"', "lq": '"', "rq": '"', "oq": "'", "cq": "'", "em": "\u2014", "en": "\u2013", "bu": "\u2022",
    "hy": "-", "mi": "-", "ti": "~", "ha": "^", "rs": "\\", "co": "\xa9", "ga": "`", "ba": "|", "at": "@", "Do": "$",
    "-": "-", "e": "\\", "\\": "\\", " ": " ", "~": " ", "0": " ", "'": "'", "`": "`", ".": ".", "t": "\t",
}  # fmt: skip
"""What escapes mean, of groff_char(7) those that manual pages use."""


def read_man(data: bytes, name: str) -> FileText:
    """Return the text of a manual page under its headings, titled as in `ls(1)`."""
    title, is_code = name, False
    document, lines = TextBuilder(), list[str]()

    def end_paragraph() -> None:
        document.block(("\n" if is_code else " ").join(lines), "code" if is_code else "text")
        lines.clear()

    page = decode(data)
    begin = re.search(r"^\.TH ", page, re.MULTILINE)
    for line in page[begin.start() if begin else len(page) :].splitlines():
        found = _MACRO.fullmatch(line)
        macro, words = (found[1], _arguments(found[2])) if found else ("", [])
        if macro == "TH" and len(words) > 1:
            title = f"{words[0].lower()}({words[1]})"
        elif not line or macro in _BREAKS or macro in _HEADINGS:
            end_paragraph()
            is_code = macro not in _HEADINGS and _CODE.get(macro, is_code)
        if macro in _HEADINGS:
            document.heading(_HEADINGS[macro], " ".join(words))
        elif not found or macro in _WORDS:
            lines.append(" ".join(words) if found else _plain(line))
        elif macro in _JOINED or macro == "IP":
            lines.append("".join(words[:1] if macro == "IP" else words))
    end_paragraph()
    return document.file(title)


def _arguments(rest: str) -> list[str]:
    """Return the arguments of a macro, which quotation marks may hold together."""
    matches = re.findall(r'"((?:[^"]|"")*)"?|(\S+(?:(?<=\\) \S*)*)', rest)
    return [_plain(other or word.replace('""', '"')) for word, other in matches]


def _plain(text: str) -> str:
    """Return a text with the characters that its escapes mean."""
    return _ESCAPE.sub(lambda match: _CHARACTERS.get(match[1] or match[2] or match[3] or "", ""), text)

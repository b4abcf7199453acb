"""Manual pages in roff, as they are under /usr/share/man: the macros of man(7), and those of mdoc(7) that mark words.

Fonts, indentation and conditional requests are dropped; what a macro does not set as text is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from corag.files.compose import TextBuilder
from corag.files.markdown import FileText
from corag.files.read import UnreadableFileError, decode

_SECTIONS = {"SH": 1, "Sh": 1, "SS": 2, "Ss": 2}
_CODE_BEGINS, _CODE_ENDS = {"nf", "EX", "Bd", "TS", "Vb"}, {"fi", "EE", "Ed", "TE", "Ve"}
_TAGGED = {"TP", "TQ", "IP", "It"}
"""Macros that begin a paragraph whose first line is its tag."""
_BREAKS = {"PP", "P", "LP", "HP", "sp", "Pp", "RS", "RE", "SY", "YS", "D1", "Dl", "Bl", "El", *_TAGGED}
_SILENT = {"Bl", "Bk", "Ek", "El", "Dd", "Os", "Sm"}
"""Macros of mdoc(7) that set no words; those of man(7) that do are named below, with others of one line."""
_WORDS = {"B", "I", "SM", "SB", "UR", "MT", "SY"}
_MIXED = {"BR", "RB", "BI", "IB", "IR", "RI"}
_MDOC = re.compile(r"[A-Z][a-z]|[DF]\d")
_BRACKETS = {
    "Op": "[]", "Oo": "[", "Oc": "]", "Bq": "[]", "Aq": "<>", "Pq": "()", "Dq": '""', "Qq": '""', "Sq": "''",
    "Ql": "''",
}  # fmt: skip
_MARKS = (".", ",", ":", ";", ")", "]", "?", "!")
"""Words of mdoc(7) that follow what they end without a space."""
_CHARACTERS = {
    "aq": "'", "dq": '"', "lq": '"', "rq": '"', "oq": "'", "cq": "'", "em": "\u2014", "en": "\u2013", "bu": "\u2022",
    "hy": "-", "mi": "-", "ti": "~", "ha": "^", "rs": "\\", "co": "\xa9", "ga": "`", "mu": "\xd7", "R": "\xae",
    "Tm": "\u2122", "->": "->", "ba": "|", "or": "|", "at": "@", "sh": "#", "Do": "$", "+-": "\xb1", "de": "\xb0",
}  # fmt: skip
"""Name of a character in roff -> the character; of groff_char(7) those that manual pages use."""
_ESCAPE = re.compile(
    r"""\\(?:
        f(?:\[[^]]{0,99}\]|\(..|.) | s(?:\[[^]]{0,99}\]|[-+]?\d?\d?) | [hvwkbloXZ]'[^']{0,99}'
        | [mMRnVYF](?:\[[^]]{0,99}\]|\(..|.)
        | \*?\[(?P<long>[^]]{0,99})\] | \*?\((?P<two>..) | \*(?P<string>.) | (?P<one>.) | $
    )""",
    re.VERBOSE,
)
_ONE = {"-": "-", "e": "\\", "\\": "\\", " ": " ", "~": " ", "0": " ", "'": "'", "`": "`", ".": ".", "t": "\t"}
_COMMENT = re.compile(r"""\\["#].*|^[.'][ \t]*\\?$""")


def read_man(data: bytes, name: str) -> FileText:
    """Return the text of a manual page under its headings, titled as in `ls(1)`."""
    page = _ManualPage(name)
    for line in _lines(decode(data)):
        page.add(line)
    return page.file()


def _lines(page: str) -> Iterator[str]:
    """Yield the lines of a page without comments, definitions and conditional blocks."""
    until, depth = "", 0
    for line in page.splitlines():
        if until:
            until = "" if line.strip() == until else until
            continue
        request = re.match(r"[.'][ \t]*(\w+)[ \t]*(\S*)", line)
        if depth or (request and request[1] in ("if", "ie", "el", "while")):
            depth = max(0, depth + line.count("\\{") - line.count("\\}"))
        elif request and request[1] in ("de", "de1", "am", "ig"):
            until = "." + (line.split()[2] if len(line.split()) > 2 else ".")
        elif (text := _COMMENT.sub("", line)) or not line:
            yield text


class _ManualPage:
    """What has been read of a manual page."""

    def __init__(self, name: str) -> None:
        self._title, self._name = name, ""
        self._document = TextBuilder()
        self._paragraph: list[str] = []
        self._code = False
        # What the next words are: a heading of this level, or the tag of a paragraph.
        self._heading, self._tag = 0, False

    def file(self) -> FileText:
        """Return the page."""
        self._end_paragraph()
        return self._document.file(self._title)

    def add(self, line: str) -> None:
        """Read a line."""
        if not line.startswith((".", "'")):
            if not line:
                self._end_paragraph()
            self._add_words(_plain(line))
            return
        macro, _, rest = line[1:].strip().partition(" ")
        arguments = _arguments(rest)
        if macro == "so":
            raise UnreadableFileError(f"it only refers to {rest.strip()}")
        if macro in ("TH", "Dt"):
            self._title = f"{arguments[0].lower()}({arguments[1]})" if len(arguments) > 1 else self._title
        elif macro in _SECTIONS:
            self._end_paragraph()
            self._code = False
            self._heading = _SECTIONS[macro]
            if arguments:
                self._add_words(" ".join(arguments))
        elif macro in _CODE_BEGINS | _CODE_ENDS:
            self._end_paragraph()
            self._code = macro in _CODE_BEGINS
        else:
            if macro in _BREAKS:
                self._end_paragraph()
            self._tag = self._tag or macro in _TAGGED
            if macro == "br":
                self._paragraph.append("\n")
            self._add_words(self._text_of(macro, arguments))

    def _text_of(self, macro: str, arguments: list[str]) -> str:
        """Return the words that a macro sets."""
        if _MDOC.fullmatch(macro):
            return "" if macro in _SILENT else self._mdoc([macro, *arguments])
        if macro in _MIXED:
            return "".join(arguments)
        if macro == "OP":
            return f"[{' '.join(arguments)}]"
        if macro == "IP":
            return " ".join(arguments[:1])
        return " ".join(arguments) if macro in _WORDS else ""

    def _mdoc(self, words: list[str]) -> str:
        """Return what a line of mdoc(7) sets; macros may follow each other in it."""
        text, closing, marks, glue = "", "", "", False
        while words[-1] in _MARKS:
            marks = words.pop() + marks

        def put(word: str) -> None:
            nonlocal text, glue
            if not word:
                return
            attached = glue or not text or word in _MARKS or text[-1:] in "([<"
            text, glue = text + ("" if attached else " ") + word, False

        macro = ""
        for number, word in enumerate(words):
            if word in _BRACKETS:
                brackets = _BRACKETS[word]
                put(brackets[0])
                glue = brackets[0] not in "])"
                closing, macro = brackets[1:] + closing, ""
            elif word in ("Ns", "Pf"):
                glue = word == "Ns"
            elif _MDOC.fullmatch(word):
                macro = word
                if number + 1 == len(words) or _MDOC.fullmatch(words[number + 1]):
                    put({"Nm": self._name, "Ar": "file ...", "Fl": "-", "Ux": "UNIX"}.get(word, ""))
                    glue = word == "Fl"
            elif macro == "Xr" and re.fullmatch(r"\d\w*", word):
                text, macro = f"{text}({word})", ""
            else:
                put(
                    f"-{word}" if macro == "Fl" and word not in "|,.()" else f"\u2013 {word}" if macro == "Nd" else word
                )
                if macro == "Nm":
                    self._name = self._name or word
                if macro == "Nd":
                    macro = ""
        return text + closing + marks

    def _add_words(self, words: str) -> None:
        if self._heading and words:
            self._document.heading(self._heading, words)
            self._heading = 0
        elif self._code:
            self._paragraph.append(f"{words}\n")
        elif words.strip():
            self._paragraph.append(words.strip() + ("\n" if self._tag else " "))
            self._tag = False

    def _end_paragraph(self) -> None:
        self._document.block("".join(self._paragraph), "code" if self._code else "text")
        self._paragraph, self._tag = [], False


def _arguments(rest: str) -> list[str]:
    """Return the arguments of a macro, which quotation marks may hold together."""
    matches = re.findall(r'"((?:[^"]|"")*)"?|(\S+(?:(?<=\\) \S*)*)', rest)
    return [_plain(other or word.replace('""', '"')) for word, other in matches]


def _plain(text: str) -> str:
    """Return a text with the characters that its escapes mean."""

    def meant(match: re.Match[str]) -> str:
        if (one := match["one"]) is not None:
            return _ONE.get(one, "")
        name = match["long"] or match["two"] or match["string"] or ""
        if code := re.fullmatch(r"u([0-9A-F]{4,5})", name):
            return chr(int(code[1], 16))
        return _CHARACTERS.get(name, "")

    return _ESCAPE.sub(meant, text)

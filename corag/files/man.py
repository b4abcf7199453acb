"""Manual pages in roff, as they are under /usr/share/man: the macros of man(7), and those of mdoc(7) that mark words.

Fonts, indentation and conditional requests are dropped; what a macro does not set as text is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from corag.files.compose import TextBuilder
from corag.files.markdown import FileText
from corag.files.read import UnreadableFileError, decode
from corag.text.units import INDENT

_SECTIONS = {"SH": 1, "Sh": 1, "SS": 2, "Ss": 2}
_CODE_BEGINS, _CODE_ENDS = {"nf", "EX", "Bd", "TS", "Vb"}, {"fi", "EE", "Ed", "TE", "Ve"}
# Macros that begin a paragraph whose first line is its tag.
_TAGGED = {"TP", "TQ", "IP", "It"}
_BREAKS = {"PP", "P", "LP", "HP", "sp", "Pp", "RE", "SY", "YS", "D1", "Dl", "Bl", "El", *_TAGGED}
# Macros of mdoc(7) that set no words, and those of man(7) that do, with spaces between them or without.
_SILENT = {"Bl", "Bk", "Ek", "El", "Dd", "Os", "Sm"}
_WORDS, _MIXED = {"B", "I", "SM", "SB", "UR", "MT", "SY"}, {"BR", "RB", "BI", "IB", "IR", "RI"}
_MDOC = re.compile(r"[A-Z][a-z]|[DF]\d")
_BRACKETS = {
    "Op": "[]", "Oo": "[", "Oc": "]", "Bq": "[]", "Aq": "<>", "Pq": "()", "Dq": '""', "Qq": '""', "Sq": "''",
    "Ql": "''",
}  # fmt: skip
_DEFAULTS = {"Ar": "file ...", "Fl": "-", "Ux": "UNIX"}
# Words of mdoc(7) that follow what they end without a space.
_MARKS = (".", ",", ":", ";", ")", "]", "?", "!")
_ESCAPE = re.compile(
    r"""\\(?:
        f(?:\[[^]]{0,99}\]|\(..|.) | s(?:\[[^]]{0,99}\]|[-+]?\d?\d?) | [hvwkbloXZ]'[^']{0,99}'
        | [mMRnVYF](?:\[[^]]{0,99}\]|\(..|.) | \*?\[([^]]{0,99})\] | \*?\((..) | \*(.) | (.) | $
    )""",
    re.VERBOSE,
)
# What escapes mean: characters by name, of groff_char(7) those that manual pages use, and by one letter.
_CHARACTERS = {
    "aq": "'", "dq": '"', "lq": '"', "rq": '"', "oq": "'", "cq": "'", "em": "\u2014", "en": "\u2013", "bu": "\u2022",
    "hy": "-", "mi": "-", "ti": "~", "ha": "^", "rs": "\\", "co": "\xa9", "ga": "`", "mu": "\xd7", "R": "\xae",
    "Tm": "\u2122", "->": "->", "ba": "|", "or": "|", "at": "@", "sh": "#", "Do": "$", "+-": "\xb1", "de": "\xb0",
    "-": "-", "e": "\\", "\\": "\\", " ": " ", "~": " ", "0": " ", "'": "'", "`": "`", ".": ".", "t": "\t",
}  # fmt: skip
_COMMENT = re.compile(r"""\\["#].*|^[.'][ \t]*\\?$""")


def read_man(data: bytes, name: str) -> FileText:
    """Return the text of a manual page under its headings, titled as in `ls(1)`."""
    page = _ManualPage(name)
    for line in _lines(decode(data)):
        page.add(line)
    page.end_paragraph()
    return page.document.file(page.title)


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
            ends = _COMMENT.sub("", line).split()[1 if request[1] == "ig" else 2 :]
            until = "." + (ends[0] if ends else ".")
        elif (text := _COMMENT.sub("", line)) or not line:
            yield text


class _ManualPage:
    """What has been read of a manual page."""

    def __init__(self, name: str) -> None:
        self.title = name
        self.document = TextBuilder()
        self._name = ""
        self._paragraph: list[str] = []
        self._code = False
        # What the next words are: a heading of this level, or the tag of a paragraph.
        self._heading, self._tag = 0, False

    def add(self, line: str) -> None:
        if not line.startswith((".", "'")):
            if not line:
                self.end_paragraph()
            self._add_words(_plain(line))
            return
        macro, _, rest = line[1:].strip().partition(" ")
        arguments = _arguments(rest)
        if macro == "so":
            raise UnreadableFileError(f"it only refers to {rest.strip()}")
        if macro in ("TH", "Dt"):
            self.title = f"{arguments[0].lower()}({arguments[1]})" if len(arguments) > 1 else self.title
            return
        is_code = macro in _CODE_BEGINS
        if is_code or macro in _CODE_ENDS or macro in _SECTIONS or macro in _BREAKS:
            self.end_paragraph()
        if macro in _SECTIONS:
            self._code, self._heading = False, _SECTIONS[macro]
            self._add_words(" ".join(arguments))
        elif is_code or macro in _CODE_ENDS:
            self._code = is_code
        else:
            self._tag = self._tag or macro in _TAGGED
            # What is set in below a line describes it, as below a tag: an option, say.
            if macro in ("br", "RS") and self._paragraph:
                self._paragraph = [f"{''.join(self._paragraph).rstrip()}\n{INDENT if macro == 'RS' else ''}"]
            self._add_words(self._text_of(macro, arguments))

    def end_paragraph(self) -> None:
        self.document.block("".join(self._paragraph), "code" if self._code else "text")
        self._paragraph, self._tag = [], False

    def _add_words(self, words: str) -> None:
        if self._heading:
            self.document.heading(self._heading, words)
            self._heading = 0 if words else self._heading
        elif self._code:
            self._paragraph.append(f"{words}\n")
        elif words.strip():
            self._paragraph.append(words.strip() + (f"\n{INDENT}" if self._tag else " "))
            self._tag = False

    def _text_of(self, macro: str, arguments: list[str]) -> str:
        """Return the words that a macro sets."""
        if _MDOC.fullmatch(macro):
            return "" if macro in _SILENT else self._mdoc([macro, *arguments])
        if macro == "OP":
            return f"[{' '.join(arguments)}]"
        if macro == "IP":
            return " ".join(arguments[:1])
        return ("" if macro in _MIXED else " ").join(arguments) if macro in _MIXED | _WORDS else ""

    def _mdoc(self, words: list[str]) -> str:
        """Return what a line of mdoc(7) sets; macros may follow each other in it."""
        text, closing, marks, macro, glue = "", "", "", "", False
        while words[-1] in _MARKS:
            marks = words.pop() + marks
        for word, following in zip(words, [*words[1:], "Xx"], strict=True):
            shown, sticks = "", False
            if word in _BRACKETS:
                shown, closing, macro = _BRACKETS[word][0], _BRACKETS[word][1:] + closing, ""
                sticks = shown not in "])"
            elif word in ("Ns", "Pf"):
                glue = word == "Ns"
            elif _MDOC.fullmatch(word):
                macro = word
                if _MDOC.fullmatch(following):
                    shown = self._name if word == "Nm" else _DEFAULTS.get(word, "")
                    sticks = word == "Fl"
            elif macro == "Xr" and re.fullmatch(r"\d\w*", word):
                text, macro = f"{text}({word})", ""
            elif macro == "Fl":
                shown = word if word in "|,.()" else f"-{word}"
            elif macro == "Nd":
                shown, macro = f"\u2013 {word}", ""
            else:
                shown = word
                self._name = self._name or (word if macro == "Nm" else "")
            if shown:
                attached = glue or not text or shown in _MARKS or text[-1:] in "([<"
                text, glue = text + ("" if attached else " ") + shown, sticks
        return text + closing + marks


def _arguments(rest: str) -> list[str]:
    """Return the arguments of a macro, which quotation marks may hold together."""
    matches = re.findall(r'"((?:[^"]|"")*)"?|(\S+(?:(?<=\\) \S*)*)', rest)
    return [_plain(other or word.replace('""', '"')) for word, other in matches]


def _plain(text: str) -> str:
    """Return a text with the characters that its escapes mean."""

    def meant(match: re.Match[str]) -> str:
        name = next(filter(None, match.groups()), "")
        code = re.fullmatch(r"u([0-9A-F]{4,5})", name)
        return chr(int(code[1], 16)) if code else _CHARACTERS.get(name, "")

    return _ESCAPE.sub(meant, text)

"""Text of others on the way to a screen or a file: what it may not hold is shown, or replaced.

A title or an answer may hold sequences that move the cursor, set the window's title or turn the reading direction of
what stands beside it, and halves of characters that no file can hold.
"""

from __future__ import annotations

import json
import re
from typing import Any

_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f"
"""C0 but tab and line feed, DEL and C1: ESC, CSI, OSC and their kind."""
_DIRECTIONS = "\u202a-\u202e\u2066-\u2069"
"""Embeddings, overrides and isolates of the reading direction; the marks that right-to-left text needs are none."""
_LINES = "\u2028\u2029"
_SURROGATES = "\ud800-\udfff"
_UNSAFE = re.compile(f"[{_CONTROLS}{_DIRECTIONS}{_LINES}{_SURROGATES}]")


def visible(text: str) -> str:
    r"""Return a text that can be shown: control characters and halves of characters as `\x1b`, `\u202e`, `\udc80`.

    Line feeds and tabs stay; carriage returns before line feeds go.
    """
    return _UNSAFE.sub(_escaped, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """Return a visible text without line feeds: its lines, stripped, with a space between them."""
    return " ".join(filter(None, map(str.strip, visible(text).split("\n"))))


def to_json(value: Any, *, shown: bool = False, **settings: Any) -> str:
    r"""Return JSON with letters of all scripts as they are, and halves of characters as `\ud83d`.

    With `shown`, all that `visible` shows is written so; the JSON means the same.
    """
    text = json.dumps(value, ensure_ascii=False, **settings)
    if shown:
        return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    return text.encode("utf-8", "backslashreplace").decode()


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"

"""Where the chunks of a context begin, and which of their lines are titles.

A chunk begins with its title on a line of its own, which names the passage but is no answer. Running text differs from
a title by its longer lines and its full stops.
"""

from __future__ import annotations

import re

_HEADING = re.compile(r"(?:\A|\n\n)([^\n]{0,59}[^\n.!?…:;,])\n(?=\S)")
_EMPTY_LINE = re.compile(r"\n\n")


def headings(context: str) -> dict[int, int]:
    """Return the offset of each title line, mapped to that of the text below it."""
    return {match.start(1): match.end() for match in _HEADING.finditer(context)}


def borders(context: str) -> list[int]:
    """Return the offsets at which titles, texts and chunks begin, ascending; no answer crosses one."""
    empty = [match.end() for match in _EMPTY_LINE.finditer(context)]
    return sorted({*empty, *headings(context).values()})

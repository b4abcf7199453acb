"""Front matter, as static site generators write it: fields of YAML or TOML at the top of a Markdown file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from datetime import date, datetime, time
from math import isfinite
from typing import Any

import yaml  # type: ignore[import-untyped]

_MAX_CHARACTERS = 2**14
_MAX_FIELDS = 32
_MAX_FIELD = 300
"""Characters of a field: each chunk of the file has them all."""
_FRONT = re.compile(r"\A\ufeff?(---|\+\+\+)[ \t]*(?:\r\n?|\n)(?=\S)")
_END = {
    "---": re.compile(r"^(?:---|\.\.\.)[ \t]*(?:\r\n?|\n|\Z)", re.MULTILINE),
    "+++": re.compile(r"^\+\+\+[ \t]*(?:\r\n?|\n|\Z)", re.MULTILINE),
}
_NAME = re.compile(r"[\w.-]+")


def front_matter(text: str) -> tuple[int, dict[str, Any]]:
    """Return where a text begins behind its front matter, and the fields of that; 0 and none where it has none.

    Text between two rules at the top of a file is front matter only if it is a mapping of names.
    """
    begin = _FRONT.match(text)
    end = _END[begin[1]].search(text, begin.end(), begin.end() + _MAX_CHARACTERS) if begin else None
    if begin is None or end is None:
        return 0, {}
    written = text[begin.end() : end.start()]
    try:
        content = yaml.safe_load(written) if begin[1] == "---" else tomllib.loads(written.replace("\r", "\n"))
    except (yaml.YAMLError, ValueError, RecursionError):
        return 0, {}
    if not isinstance(content, dict) or not all(isinstance(name, str) and _NAME.fullmatch(name) for name in content):
        return 0, {}
    return end.end(), fields_of(content)


def fields_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are short texts, numbers, truth values, dates (as texts), or lists of these."""
    fields: dict[str, Any] = {}
    for name, value in content.items():
        values = value if isinstance(value, list) else [value]
        plain = [one.isoformat() if isinstance(one, date | datetime | time) else one for one in values]
        short = sum(len(str(one)) for one in plain if _is_plain(one))
        if len(fields) < _MAX_FIELDS and plain and all(map(_is_plain, plain)) and short <= _MAX_FIELD:
            fields[name] = plain if isinstance(value, list) else plain[0]
    return fields


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | bool) or (isinstance(value, int | float) and abs(value) < 2**63 and isfinite(value))

"""Front matter, as static site generators write it: fields of YAML or TOML at the top of a Markdown file."""

from __future__ import annotations

import io
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
_ENDS = {"---": ("---", "..."), "+++": ("+++",)}
"""First line of front matter -> what its last one may be."""


def front_matter(text: str) -> tuple[int, dict[str, Any]]:
    """Return where a text begins behind its front matter, and the fields of that; 0 and none where it has none.

    Text between two rules at the top of a file is front matter only if it is a mapping of names.
    """
    lines = list(io.StringIO(text[:_MAX_CHARACTERS].removeprefix("\ufeff"), newline=""))
    ends = _ENDS.get(lines[0].rstrip(), ()) if lines else ()
    last = next((number for number, line in enumerate(lines) if number > 1 and line.rstrip() in ends), 0)
    if not last or not lines[1][0].strip():
        return 0, {}
    content = "".join(lines[1:last])
    try:
        fields = yaml.safe_load(content) if "---" in ends else tomllib.loads(content.replace("\r", "\n"))
    except (yaml.YAMLError, ValueError, RecursionError):
        return 0, {}
    if not isinstance(fields, dict) or not all(isinstance(name, str) and _is_name(name) for name in fields):
        return 0, {}
    return sum(map(len, lines[: last + 1])) + text.startswith("\ufeff"), fields_of(fields)


def _is_name(name: str) -> bool:
    return all(part.isidentifier() for part in name.replace("-", "_").split("."))


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

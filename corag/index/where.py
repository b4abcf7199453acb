"""Filters on the metadata of chunks, as SQL on a column that LanceDB parses once, when the index is made."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias
from unicodedata import normalize

from corag.errors import InputError

Where: TypeAlias = "Mapping[str, Any]"
"""Name of a metadata field -> what it must be; all must hold.

A text, number, truth value or None: the field is that, or a list that contains it (None: it is missing).
A list: the field is one of these.
A mapping of `<`, `<=`, `>`, `>=`, `!=` to values: all must hold.

Numbers compare as 64-bit floats, texts by code points, so that dates as `2026-11-22` compare as dates.
"""

FIELDS = "fields"
"""Column with the metadata of a chunk as LanceDB's JSON."""


def fields_json(metadata: Mapping[str, Any]) -> str:
    """Return metadata as strict JSON: what JSON cannot hold is null, a lone surrogate a question mark."""
    return _json(json.loads(json.dumps(dict(metadata)), parse_constant=lambda _: None))


def sql_of(where: Where | None) -> str | None:
    """Return a filter as SQL; None if nothing is filtered.

    Raises:
        InputError: It is not a mapping of names to what `Where` allows.
    """
    try:
        return " AND ".join(_field_sql(name, wanted) for name, wanted in (where or {}).items()) or None
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"where is {where!r:.200} ({error}); expected fields and their values, lists of values or comparisons: "
            "{'language': 'en', 'year': {'>=': 2024}, 'kind': ['faq', 'manual']}"
        ) from error


def _field_sql(name: str, wanted: Any) -> str:
    if not isinstance(name, str) or not name or wanted in ([], (), {}):
        raise ValueError(f"nothing to compare in field {name!r}")
    # To extract a field costs most of a filter.
    field = f"json_extract({FIELDS}, {quoted('$.' + _json(name))})"
    if isinstance(wanted, Mapping):
        return " AND ".join(_compared(field, operator, value) for operator, value in wanted.items())
    return _any_of(field, wanted if isinstance(wanted, list | tuple) else [wanted])


def _any_of(field: str, values: Sequence[Any]) -> str:
    """Return SQL that is true or false, never null."""
    written = "|".join(sorted(re.escape(text) for value in values for text in _spellings(value)))
    # In a list's text a comma precedes a quotation mark only where an item begins: within texts they are escaped.
    pattern = f"^(?:{written})$|^\\[(?:.*,)?(?:{written})(?:,.*)?\\]$"
    present = field if None not in values else f"COALESCE({field}, 'null')"
    return f"COALESCE(regexp_like({present}, {quoted(pattern)}), FALSE)"


def _compared(field: str, operator: str, value: Any) -> str:
    if operator == "!=":
        return f"NOT {_any_of(field, [value])}"
    if operator not in ("<", "<=", ">", ">=") or value is None or isinstance(value, bool):
        raise ValueError(f"{value!r} cannot be compared by {operator!r}")
    if not isinstance(value, str):
        return f"COALESCE(TRY_CAST({field} AS DOUBLE) {operator} {_json(float(value))}, FALSE)"
    # A text alone is before "#", as it begins with a quotation mark. The one at its end, which sorts behind a space, is
    # compared with nothing: "2026-01-05" is before "2026-01-05 10:00".
    return f"COALESCE({field} < '#' AND left({field}, -1) {operator} {quoted(_json(value)[:-1])}, FALSE)"


def _spellings(value: Any) -> set[str]:
    """Return how a value can be written in JSON."""
    if not (value is None or isinstance(value, str | bool | int | float)):
        raise TypeError(f"{value!r} is neither a text, a number, a truth value nor None")
    if isinstance(value, int | float) and not isinstance(value, bool) and float(value).is_integer():
        return {str(int(value)), repr(float(value))}
    return {_json(value)}


def _json(value: Any) -> str:
    # One spelling of accented letters: names of files have another one on some systems.
    return normalize("NFC", json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace").decode())


def quoted(text: str) -> str:
    """Return a text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"

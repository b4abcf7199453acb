"""Filters on the metadata of chunks, as SQL on a column that LanceDB parses once, when the index is made."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from corag.errors import InputError

Where: TypeAlias = "Mapping[str, Any]"
"""Name of a metadata field -> what it must be; all must hold.

A text, number, truth value or None: the field is that, or a list that holds it (None: it is missing).
A list: the field is one of these.
A mapping of `<`, `<=`, `>`, `>=`, `!=` to values: all must hold.

Numbers compare as 64-bit floats, texts by code points, so that dates as `2026-11-22` compare as dates.
"""

FIELDS = "fields"
"""Column with the metadata of a chunk as LanceDB's JSON."""

_COMPARISONS = ("<", "<=", ">", ">=")


def fields_json(metadata: Mapping[str, Any]) -> str:
    """Return metadata as strict JSON: what JSON cannot hold is null, a lone surrogate a question mark."""
    return _encodable(json.dumps(_strict(metadata), ensure_ascii=False, allow_nan=False))


def _strict(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _strict(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def sql_of(where: Where | None) -> str | None:
    """Return a filter as SQL; None where nothing is filtered.

    Raises:
        InputError: It is no mapping of names to what `Where` allows.
    """
    if where is None:
        return None
    if not isinstance(where, Mapping):
        raise _error(where, "a filter must map metadata fields to values")
    return " AND ".join(f"({_field_sql(name, wanted)})" for name, wanted in where.items()) or None


def _field_sql(name: Any, wanted: Any) -> str:
    if not isinstance(name, str) or not name:
        raise _error(name, "the name of a metadata field must be a text")
    if isinstance(wanted, Mapping):
        if not wanted:
            raise _error(wanted, f"the comparisons of field {name!r} must not be empty")
        return " AND ".join(_compared(name, operator, value) for operator, value in wanted.items())
    values = wanted if isinstance(wanted, Sequence) and not isinstance(wanted, str) else [wanted]
    if not values:
        raise _error(wanted, f"the values of field {name!r} must not be empty")
    return _any_of(name, values)


def _any_of(name: str, values: Sequence[Any]) -> str:
    """Return SQL that is true or false, never null; to extract a field costs most of it, so it is done once."""
    written = "|".join(sorted(re.escape(text) for value in values for text in _written(name, value)))
    # In a list's text a comma stands before a quotation mark only where an item begins: within texts they are escaped.
    pattern = f"^(?:{written})$|^\\[(?:.*,)?(?:{written})(?:,.*)?\\]$"
    found = _extracted(name) if None not in values else f"COALESCE({_extracted(name)}, 'null')"
    return f"COALESCE(regexp_like({found}, {_quoted(pattern)}), FALSE)"


def _written(name: str, value: Any) -> set[str]:
    """Return how a value can stand in JSON."""
    _check_value(name, value)
    if isinstance(value, int | float) and not isinstance(value, bool) and float(value).is_integer():
        return {str(int(value)), repr(float(value))}
    return {_json(value)}


def _compared(name: str, operator: Any, value: Any) -> str:
    if operator == "!=":
        return f"NOT {_any_of(name, [value])}"
    if operator not in _COMPARISONS:
        raise _error(operator, f"the comparison of field {name!r} must be one of {', '.join(_COMPARISONS)}, !=")
    _check_value(name, value)
    if value is None or isinstance(value, bool):
        raise _error(value, f"field {name!r} can be compared by {operator} with texts and numbers")
    found = _extracted(name)
    if not isinstance(value, str):
        return f"COALESCE(TRY_CAST({found} AS DOUBLE) {operator} {float(value)!r}, FALSE)"
    # A text begins with a quotation mark, before which no other JSON stands and after which "#" comes.
    within = f" AND {found} < '#'" if ">" in operator else ""
    return f"COALESCE({found} {operator} {_quoted(_json(value))}{within}, FALSE)"


def _check_value(name: str, value: Any) -> None:
    if not (value is None or isinstance(value, str | bool | int | float)):
        raise _error(value, f"field {name!r} can be a text, a number, a truth value, None, a list or comparisons")
    if isinstance(value, int | float) and not _is_float64(value):
        raise _error(value, f"a number that field {name!r} is compared with must be finite as a 64-bit float")


def _is_float64(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _extracted(name: str) -> str:
    return f"json_extract({FIELDS}, {_path(name)})"


def _path(name: str) -> str:
    return _quoted(f"$.{_json(name)}")


def _json(value: Any) -> str:
    return _encodable(json.dumps(value, ensure_ascii=False))


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _error(value: Any, rule: str) -> InputError:
    return InputError(
        f"{rule}, got {value!r}; for example {{'language': 'en', 'year': {{'>=': 2024}}, 'kind': ['faq', 'manual']}}"
    )

"""A part with its settings, such as a selector, and the grammar in which it is spelled.

    name(key=value, ...)

    cross-encoder(model=BAAI/bge-reranker-v2-m3, max_tokens=1024)
    self-route(part=corag(preset=paper))

A value is a JSON value (number, `true`, `false`, `null`, list, object, quoted string), bare text, or a list of these in
brackets. Text that holds a comma or a parenthesis that does not belong to a part is quoted. No spelling holds a key or
a password: they come from the environment. The standard library only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Self

from common.errors import InputError

MOST_NESTED = 20
"""How deep parts, lists and mappings may be nested in a spelling."""
FORM = "write name(key=value, ...), such as top-k(k=3)"

_WORDS = {"True": True, "False": False, "None": None}
_DIGITS = frozenset("0123456789.+-eE")
_DEPTHS = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}
# A quotation mark opens a string only where a value may begin.
_MARK = re.compile(r'(?:^|(?<=[=,(\[{:]))\s*(?:(?P<quoted>"(?:[^"\\]|\\.)*")|(?P<opened>"))|[()\[\]{},]', re.DOTALL)

_SECRET = re.compile(r"\bapi[-_]?key\s*=|://[^\s/?#]*@", re.IGNORECASE)


class Configuration(str):
    """A part with its settings, which is also the text that spells it.

    Attributes:
        name: The part's name.
        settings: Its settings.
    """

    name: str
    settings: Mapping[str, Any]

    def __new__(cls, name: str, settings: Mapping[str, Any] = MappingProxyType({})) -> Self:
        """Spell a configuration."""
        listed = ", ".join(f"{key}={write_value(value)}" for key, value in settings.items())
        made = super().__new__(cls, f"{name}({listed})" if listed else name)
        made.name, made.settings = name, MappingProxyType(dict(settings))
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, dict(self.settings))

    def with_settings(self, **settings: Any) -> Self:
        """Return it with further settings, or other values of these."""
        return type(self)(self.name, {**self.settings, **settings})

    def with_search(
        self, iterations: float | None = None, exploration: float | None = None, cost_weight: float | None = None
    ) -> Self:
        """Return it with the settings of the paper's search put in, as far as they are given."""
        settings: dict[str, Any] = {}
        if iterations is not None:
            given = {"policy": "paper", "iterations": iterations, "exploration": round(exploration or 0.0, 4)}
            settings["search"] = {**(self.settings.get("search") or {}), **given}
        if cost_weight is not None:
            settings["cost_weight"] = round(cost_weight, 4)
        return self.with_settings(**settings) if settings else self


def parse(part: object) -> Configuration:
    """Return the name and the settings of a part; a `Configuration` as it is.

    Raises:
        InputError: It is not the text `name(key=value, ...)`, a key occurs twice, or it holds a key or a password.
    """
    if isinstance(part, Configuration):
        return part
    if not isinstance(part, str):
        raise InputError(f"{part!r:.200} is not the name of a part; {FORM}")
    if _SECRET.search(part):
        raise InputError(
            f"the settings of {part.partition('(')[0].strip()!r:.100} hold a key or a password, which come from the "
            "environment: set OPENAI_API_KEY or OLLAMA_API_KEY; for an address with a user and a password set "
            "OPENAI_BASE_URL or OLLAMA_HOST"
        )
    name, opened, rest = part.strip().partition("(")
    settings: dict[str, Any] = {}
    is_valid = not opened or (bool(name.strip()) and rest.endswith(")"))
    for setting in split(rest[:-1]) if opened and is_valid else ():
        key, _, value = (side.strip() for side in setting.partition("="))
        key = key.replace("-", "_")
        is_valid &= key.isidentifier() and bool(value) and key not in settings
        settings[key] = _value(value)
    if not is_valid:
        raise InputError(f"{part!r:.300} is not a part with settings; {FORM}, each key once")
    return Configuration(name.strip(), settings)


def split_parts(parts: str | Iterable[str] | None) -> list[Configuration]:
    """Return each part of a list, or of a text that separates them by commas."""
    if isinstance(parts, Configuration):
        return [parts]
    return [parse(part) for part in (split(parts) if isinstance(parts, str) else parts or ())]


def split(text: str) -> Iterator[str]:
    """Yield what is between commas that are neither in quotes nor in brackets; nothing empty.

    A quotation mark or a bracket without its partner is an `InputError`.
    """
    begin, depth = 0, 0
    for mark in _MARK.finditer(text):
        if mark["quoted"]:
            continue
        depth += _DEPTHS.get(mark[0], 0)
        if mark["opened"] or not 0 <= depth <= MOST_NESTED:
            depth = -1
            break
        if mark[0] == "," and not depth:
            if text[begin : mark.start()].strip():
                yield text[begin : mark.start()].strip()
            begin = mark.end()
    if depth:
        raise InputError(
            f"{text!r:.200} has a quotation mark or a bracket without its partner, or more than {MOST_NESTED} within "
            f"each other; {FORM}"
        )
    if text[begin:].strip():
        yield text[begin:].strip()


def spelling(part: object) -> str:
    """Return how a part is spelled: what its own `__str__` says, else its `name`."""
    if type(part).__str__ is not object.__str__:
        return str(part)
    return str(getattr(part, "name", None) or type(part).__name__)


def write_value(value: Any) -> str:
    """Return how a setting's value is spelled: as JSON or bare text, an object as `spelling` says."""
    if isinstance(value, str):
        return value if _reads_as_written(value) else json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping | list | tuple | bool | int | float | None):

        def listed(inner: Any) -> Any:
            return dict(inner) if isinstance(inner, Mapping) else spelling(inner)

        return json.dumps(value, ensure_ascii=False, default=listed)
    return write_value(spelling(value))


def _value(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    try:
        return json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        if text.startswith("[") and text.endswith("]"):
            return [_value(inner) for inner in split(text[1:-1])]
        # JSON knows neither 1. nor .5
        with suppress(ValueError):
            return float(text) if "." in text and set(text) <= _DIGITS else text
        return text


def _reads_as_written(text: str) -> bool:
    try:
        return bool(text) and text.isprintable() and [*split(text)] == [text] and _value(text) == text
    except InputError:
        return False

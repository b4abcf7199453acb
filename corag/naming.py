"""Parts by name with settings: `name(key=value, ...)`.

    cross-encoder(model=BAAI/bge-reranker-v2-m3, max_tokens=1024)
    self-route(part=corag(preset=paper))

The grammar is that of `agent.configuration`. No spelling holds a key or a password: they come from the environment.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import PurePath
from typing import Any, Self

from agent.configuration import FORM, Configuration, SpellingError, split, write_value
from agent.configuration import spelling as spelling
from corag.errors import InputError

BUILDERS: dict[str, str] = {}
"""`module:attribute` of each class and function that builds a registered part -> the first name of that part."""


_SECRET = re.compile(r"\bapi[-_]?key\s*=|://[^\s/?#]*@", re.IGNORECASE)


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
    return Configuration.parse(part)


def split_parts(parts: str | Iterable[str] | None) -> list[Configuration]:
    """Return each part of a list, or of a text that separates them by commas."""
    if isinstance(parts, Configuration):
        return [parts]
    try:
        return [parse(part) for part in (split(parts) if isinstance(parts, str) else parts or ())]
    except SpellingError as error:
        raise InputError(f"{parts!r:.200} {error}") from None


def _can_be_spelled(value: object) -> bool:
    """Return whether a setting's value is JSON, a path, or an object with a name or a spelling of its own."""
    plain = isinstance(value, str | Mapping | list | tuple | bool | int | float | PurePath | None)
    return plain or hasattr(value, "name") or type(value).__str__ is not object.__str__


class Part:
    """Base of the parts that ship: `str(part)` is the shortest spelling from which it can be built again.

    Settings that have their default values are left out. A copy, or what another process unpickles, is built again from
    all of them. A part of your own need not derive from this class.
    """

    _arguments: tuple[tuple[Any, ...], dict[str, Any]]
    _named: Configuration | None = None

    def __new__(cls, *args: Any, **settings: Any) -> Self:
        """Remember the settings that the part is built with."""
        part = super().__new__(cls)
        object.__setattr__(part, "_arguments", (args, settings))
        return part

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy what the part was built with, not its models and caches."""
        args, settings = self._arguments
        return partial(type(self), *args, **settings), (), {"_named": self._named}

    def named(self, name: Configuration, build: Callable[..., Any]) -> None:
        """Set the name and settings that the part is spelled with, given what built it."""
        # A shared encoder, for instance, has no name that could be written.
        settings = {key: value for key, value in _non_default(build, name.settings).items() if _can_be_spelled(value)}
        object.__setattr__(self, "_named", Configuration(name.name, settings))

    def __str__(self) -> str:
        if self._named is not None:
            return str(self._named)
        args, settings = self._arguments
        bound = inspect.signature(type(self)).bind_partial(*args, **settings)
        name = BUILDERS.get(path_of(type(self))) or str(getattr(self, "name", type(self).__name__))
        return str(Configuration(name, _non_default(type(self), bound.arguments)))


def _non_default(build: Callable[..., Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that differ from the defaults of what builds a part."""
    parameters = inspect.signature(build).parameters
    changed: dict[str, Any] = {}
    for key, value in settings.items():
        parameter = parameters.get(key)
        if parameter is not None and parameter.kind is inspect.Parameter.VAR_KEYWORD:
            changed |= value
        elif parameter is None or type(value) is not type(parameter.default) or value != parameter.default:
            changed[key] = value
    return changed


def nearest(name: object, names: Iterable[str]) -> str:
    """Return ` (did you mean ...?)` for the most similar name, or nothing."""
    similar = difflib.get_close_matches(str(name)[:100], list(names), 1)
    return f" (did you mean {similar[0]!r}?)" if similar else ""


def with_default(parameter: inspect.Parameter) -> str:
    """Return the name of a setting with its default value; `...` where that is too long to help."""
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        return "others"
    default = parameter.default
    if default is inspect.Parameter.empty:
        return parameter.name
    written = write_value(default) if isinstance(default, str | bool | int | float | None) else ""
    return f"{parameter.name}={written if 0 < len(written) <= 30 else '...'}"


def path_of(build: Any) -> str:
    """Return `module:attribute` of a class or a function."""
    return f"{build.__module__}:{getattr(build, '__qualname__', '')}"

"""Parts by name with settings: `name(key=value, ...)`.

    cross-encoder(model=BAAI/bge-reranker-v2-m3, max_tokens=1024)
    self-route(part=corag(preset=paper))

The grammar is that of `agent.configuration`. No spelling shows a secret; see `corag.redaction`.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, ClassVar, Self

from agent.configuration import FORM, Configuration, SpellingError, read, split, write, write_value
from corag.errors import InputError
from corag.redaction import HIDDEN, SECRETS, hide_secrets, is_secret, remember_secrets, shown

Spelling = str
"""A part by name: `name(key=value, ...)`."""

Spellings = str | tuple[str, ...]
"""Several parts; those in a text are separated by commas."""

BUILDERS: dict[str, str] = {}
"""`module:attribute` of each class and function that builds a registered part -> the first name of that part."""


class PartName(Configuration):
    """The shortest spelling of a part, which shows no secrets, with all that it takes to build the part.

    Attributes:
        name: The part's name.
        settings: The settings written behind it, secrets included. The part that takes a part builds it.
    """

    def __new__(cls, name: str, settings: Mapping[str, Any] = MappingProxyType({})) -> Self:
        """Spell a part."""
        part = str.__new__(cls, write(hide_secrets(name), without_secrets(settings), spelling))
        part.name, part.settings = name, MappingProxyType(dict(settings))
        return part


def parse(part: object) -> PartName:
    """Return the name and the settings of a part; a `PartName` as it is.

    Raises:
        InputError: It is not the text `name(key=value, ...)`, or a key occurs twice.
    """
    if isinstance(part, PartName):
        return part
    if isinstance(part, Configuration):
        return PartName(part.name, part.settings)
    if not isinstance(part, str):
        raise InputError(f"{shown(part)} is not the name of a part; {FORM}")
    try:
        return PartName(*read(part))
    except SpellingError as error:
        raise InputError(f"{shown(part.strip())} {error}") from None


def split_parts(parts: Spelling | Iterable[Spelling] | None) -> list[PartName]:
    """Return each part of a list, or of a text that separates them by commas."""
    if isinstance(parts, PartName):
        return [parts]
    try:
        return [parse(part) for part in (split(parts) if isinstance(parts, str) else parts or ())]
    except SpellingError as error:
        raise InputError(f"{shown(parts)} {error}") from None


def without_secrets(value: Any) -> Any:
    """Return settings, or any JSON value, as they may be recorded: every secret, at any depth, is `***`."""
    if isinstance(value, str):
        return str(value) if isinstance(value, PartName) else hide_secrets(value)
    if isinstance(value, Mapping):
        return {
            without_secrets(key): HIDDEN if is_secret(key) and inner not in (None, "") else without_secrets(inner)
            for key, inner in value.items()
        }
    return [without_secrets(inner) for inner in value] if isinstance(value, list | tuple) else value


def hidden(value: Any) -> Any:
    """Return settings with a `PartName` in place of each part that holds a secret.

    Whoever records them then records spellings, which show no secrets; whoever builds from them has all.
    """
    if isinstance(value, Mapping):
        return {hidden(key): hidden(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(hidden, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type | Part):
        given = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
        return dataclasses.replace(value, **hidden(given))
    if isinstance(value, str) and hide_secrets(value) != value:
        with suppress(InputError):
            parts = split_parts(value)
            if any(part.settings for part in parts):
                return parts[0] if len(parts) == 1 else tuple(parts)
    return value


def spelling(part: object) -> str:
    """Return how a part is spelled: what its own `__str__` says, as that of a `Part`, else its `name`."""
    if type(part).__str__ is not object.__str__:
        return str(part)
    return str(getattr(part, "name", None) or type(part).__name__)


def _can_be_spelled(value: object) -> bool:
    """Return whether a setting's value is JSON, a path, or an object with a name or a spelling of its own."""
    plain = isinstance(value, str | Mapping | list | tuple | bool | int | float | PurePath | None)
    return plain or hasattr(value, "name") or type(value).__str__ is not object.__str__


class Part:
    """Base of the parts that ship: `str(part)` is the shortest spelling from which it can be built again.

    Settings that have their default values are left out. A copy, or what another process unpickles, is built again from
    all of them. A part of your own need not derive from this class.

    Attributes:
        secrets: Further settings that no spelling shows; see `corag.redaction`.
    """

    secrets: ClassVar[frozenset[str]] = frozenset()
    _arguments: tuple[tuple[Any, ...], dict[str, Any]]
    _named: PartName | None = None
    _state: ClassVar[tuple[str, ...]] = ("_named",)  # what is not built from the arguments

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Take the secrets of the part for secrets everywhere."""
        super().__init_subclass__(**kwargs)
        SECRETS.update(cls.secrets)

    def __new__(cls, *args: Any, **settings: Any) -> Self:
        """Remember the settings that the part is built with."""
        part = super().__new__(cls)
        remember_secrets(settings)
        remember_secrets(args)
        object.__setattr__(part, "_arguments", (args, settings))
        return part

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy what the part was built with, secrets included, and neither its models nor its caches."""
        args, settings = self._arguments
        return partial(type(self), *args, **settings), (), {name: getattr(self, name) for name in self._state}

    def named(self, name: PartName, build: Callable[..., Any]) -> None:
        """Set the name and settings that the part is spelled with, given what built it."""
        # A shared encoder, for instance, has no name that could be written.
        settings = {key: value for key, value in _non_default(build, name.settings).items() if _can_be_spelled(value)}
        object.__setattr__(self, "_named", PartName(name.name, settings))

    @property
    def is_named(self) -> bool:
        """Whether a registry built it by name, or could build one of its class."""
        return self._named is not None or path_of(type(self)) in BUILDERS

    def __str__(self) -> str:
        if self._named is not None:
            return str(self._named)
        args, settings = self._arguments
        bound = inspect.signature(type(self)).bind_partial(*args, **settings)
        name = BUILDERS.get(path_of(type(self))) or str(getattr(self, "name", type(self).__name__))
        return str(PartName(name, _non_default(type(self), bound.arguments)))


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

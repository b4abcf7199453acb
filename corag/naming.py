"""Parts by name with settings: `name(key=value, ...)`.

    cross-encoder(model=BAAI/bge-reranker-v2-m3, max_tokens=1024)
    ollama(model=llama3.1:8b)
    reorder(selector=corag(policy=paper))

A value is a JSON value (number, `true`, `false`, `null`, list, object, quoted string) or bare text. Text that holds a
comma or a parenthesis that does not belong to a part is quoted. In YAML and Python, a mapping says the same:
`{"ollama": {"model": "llama3.1:8b"}}`.
"""

from __future__ import annotations

import difflib
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import cache
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple, Self, cast, get_args, get_origin

from corag.errors import InputError

Spelling = str | Mapping[str, Any]
"""A part by name: `name(key=value, ...)`, or a mapping from the name to its settings."""

Spellings = Spelling | tuple[Spelling, ...]
"""Several parts; those in a text are separated by commas."""

_FORM = "write name(key=value, ...), such as top-k(k=3)"
_WORDS = {"True": True, "False": False, "None": None}
_NUMBER = re.compile(r"[+-]?(\d+\.\d*|\.\d+|\d+)([eE][+-]?\d+)?")
_OLD_FORM = re.compile(r"([^:()=,\s]+):\s*(\w+\s*=[^()]*)")


class PartName(NamedTuple):
    """A part's name and the settings written behind it; `str` gives the shortest spelling."""

    name: str
    settings: Mapping[str, Any] = types.MappingProxyType({})

    def __str__(self) -> str:
        if not self.settings:
            return self.name
        return f"{self.name}({', '.join(f'{key}={_written(value)}' for key, value in self.settings.items())})"


def parse(part: Spelling) -> PartName:
    """Return the name and the settings of a part.

    Settings that are parts themselves stay as they are written; the part that takes them builds them.

    Raises:
        InputError: The text is not `name(key=value, ...)`, a setting stands twice, or the mapping has not one name.
    """
    if isinstance(part, Mapping):
        return _from_mapping(part)
    if not isinstance(part, str):
        raise InputError(f"{part!r:.200} is no name of a part; {_FORM}")
    text = part.strip()
    if old := _OLD_FORM.fullmatch(text):
        inside = ", ".join(setting.strip() for setting in re.split(r":(?=\s*\w+\s*=)", old[2]))
        raise InputError(f"{text!r}: settings stand in parentheses; write {old[1]}({inside})")
    name, opened, rest = text.partition("(")
    if not opened:
        return PartName(text)
    if not rest.endswith(")") or not name.strip():
        raise InputError(f"{text!r} is no part with settings; {_FORM}")
    settings: dict[str, Any] = {}
    for setting in _split(rest[:-1], text):
        key, equals, value = (piece.strip() for piece in setting.partition("="))
        key = key.replace("-", "_")
        if not key.isidentifier() or not equals or not value:
            raise InputError(f"{text!r}: {setting.strip()!r} is no setting; {_FORM}")
        if key in settings:
            raise InputError(f"{text!r}: {key!r} is set twice; leave one out")
        settings[key] = _flat(_value(value))
    return PartName(name.strip(), settings)


def split_parts(parts: Spelling | Iterable[Spelling] | None) -> list[str]:
    """Return the shortest spelling of each part of a list, or of a text that separates them by commas."""
    if parts is None:
        return []
    given = _split(parts, parts) if isinstance(parts, str) else [parts] if isinstance(parts, Mapping) else parts
    return [str(parse(part)) for part in given]


def spelling(part: object) -> str:
    """Return how a part is spelled: what its own `__str__` says, as that of a `Part`, else its `name`."""
    if type(part).__str__ is not object.__str__:
        return str(part)
    return str(getattr(part, "name", None) or type(part).__name__)


class Part:
    """Base of the parts that ship: `str(part)` is the shortest spelling from which it can be built again.

    Settings that have their default values are left out. A part of your own need not derive from this class.

    Attributes:
        secrets: Settings that no spelling shows.
    """

    secrets: ClassVar[frozenset[str]] = frozenset()
    _arguments: tuple[tuple[Any, ...], dict[str, Any]]
    _named: PartName | None = None

    def __new__(cls, *args: Any, **settings: Any) -> Self:
        """Remember the settings that the part is built with."""
        part = super().__new__(cls)
        object.__setattr__(part, "_arguments", (args, settings))
        return part

    def named(self, name: PartName) -> None:
        """Set the name and settings that the part is spelled with."""
        object.__setattr__(self, "_named", name)

    @property
    def is_named(self) -> bool:
        """Whether a registry built it by name."""
        return self._named is not None

    @property
    def written(self) -> PartName:
        """The name and the settings from which it can be built again."""
        if self._named is not None:
            return self._named
        args, settings = self._arguments
        bound = inspect.signature(type(self)).bind_partial(*args, **settings)
        name = _registered_name(cast(Hashable, type(self))) or str(getattr(self, "name", type(self).__name__))
        return PartName(name, changed(type(self), bound.arguments))

    def to_dict(self) -> dict[str, Any]:
        """Return `{name: settings}`, JSON values from which it can be built again: `corag.selector(part.to_dict())`.

        Raises:
            InputError: A setting is an object that has no name to build it by.
        """
        from corag.registry import as_json

        return {self.written.name: {key: as_json(key, value) for key, value in self.written.settings.items()}}

    def __str__(self) -> str:
        return str(self.written)


def changed(build: Callable[..., Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that differ from the defaults of what builds a part."""
    parameters = inspect.signature(build).parameters
    found: dict[str, Any] = {}
    for key, value in settings.items():
        parameter = parameters.get(key)
        if parameter is not None and parameter.kind is inspect.Parameter.VAR_KEYWORD:
            found |= value
        elif parameter is None or not _same(value, parameter.default):
            found[key] = value
    return {key: value for key, value in found.items() if key not in getattr(build, "secrets", ())}


def check_settings(kind: str, name: str, build: Callable[..., Any], settings: Mapping[str, Any]) -> None:
    """Raise `InputError` for settings that a part does not take, that it lacks, or that have another type."""
    signature = inspect.signature(build)
    try:
        signature.bind(**settings)
    except TypeError as error:
        unknown = [key for key in settings if key not in signature.parameters]
        reason = f"got an unexpected keyword argument {unknown[0]!r}" if unknown else str(error)
        hint = nearest(unknown[0], signature.parameters) if unknown else ""
        listed = ", ".join(map(default, signature.parameters.values())) or "(none)"
        raise InputError(f"{kind} {name!r}: {reason}{hint}; its settings are {listed}") from error
    hints = _hints(build)
    for key, value in settings.items():
        if key in hints and not _fits(value, hints[key]):
            known = [one for one in get_args(hints[key]) if isinstance(one, str)]
            raise InputError(
                f"{kind} {name!r}: {key} is {value!r:.100}; it must be {_plain(hints[key])}{nearest(value, known)}"
            )


def nearest(name: object, names: Iterable[str]) -> str:
    """Return ` (did you mean ...?)` for the most similar name, or nothing."""
    found = difflib.get_close_matches(str(name), list(names), 1)
    return f" (did you mean {found[0]!r}?)" if found else ""


def _from_mapping(part: Mapping[str, Any]) -> PartName:
    if len(part) != 1:
        raise InputError(f"{dict(part)!r:.200} has {len(part)} names; a part as a mapping is {{name: {{key: value}}}}")
    [(name, settings)] = part.items()
    if not isinstance(settings, Mapping | None):
        raise InputError(f"the settings of {name!r} are {settings!r:.100}; give a mapping, such as {{k: 3}}")
    return PartName(str(name), {str(key).replace("-", "_"): _flat(value) for key, value in (settings or {}).items()})


def _flat(value: Any) -> Any:
    """Return the spelling of a setting that is a part given as a mapping; any other value as it is."""
    is_part = isinstance(value, Mapping) and len(value) == 1 and isinstance(next(iter(value.values())), Mapping)
    return str(_from_mapping(value)) if is_part else value


def _split(text: str, whole: str) -> Iterator[str]:
    """Yield what stands between commas that are neither in quotes nor in brackets; nothing empty."""
    begin, open_brackets, quoted, escaped, opening = 0, 0, False, False, True
    for place, character in enumerate(text):
        if quoted:
            quoted = escaped or character != '"'
            escaped = character == "\\" and not escaped
            continue
        if character == '"' and opening:
            quoted = True
        elif character in "([{":
            open_brackets += 1
        elif character in ")]}":
            open_brackets -= 1
            if open_brackets < 0:
                break
        elif character == "," and not open_brackets:
            if text[begin:place].strip():
                yield text[begin:place].strip()
            begin = place + 1
        # A quotation mark opens a string only where a value may begin.
        opening = character in "=,([{:" or (opening and character.isspace())
    if quoted or open_brackets:
        raise InputError(f"{whole!r:.200} has a quotation mark or a bracket without its partner; {_FORM}")
    if text[begin:].strip():
        yield text[begin:].strip()


def _value(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    try:
        return json.loads(text, parse_constant=str)
    except ValueError:
        pass
    # JSON knows neither 1. nor .5
    return float(text) if _NUMBER.fullmatch(text) and "." in text else text


def _written(value: Any) -> str:
    if isinstance(value, str):
        return value if _reads_as_written(value) else json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping | list | tuple | bool | int | float | None):
        return json.dumps(value, ensure_ascii=False, default=_listed)
    return _written(spelling(value))


def _listed(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else spelling(value)


def _reads_as_written(text: str) -> bool:
    try:
        return text.isprintable() and parse(f"part(key={text})") == ("part", {"key": text})
    except InputError:
        return False


def default(parameter: inspect.Parameter) -> str:
    """Return the name of a setting with its default value, where that is short enough to help."""
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        return "others"
    default = parameter.default
    if default is inspect.Parameter.empty or not isinstance(default, str | bool | int | float | None):
        return parameter.name
    written = _written(default)
    return parameter.name if len(written) > 30 else f"{parameter.name}={written}"


def _same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and bool(value == default))


@cache
def _registered_name(part: Any) -> str | None:
    from corag import registry

    path = f"{part.__module__}:{part.__qualname__}"
    for table in registry.TABLES:
        for name, given in table.parts.items():
            if given in (part, path):
                return name
    return None


@cache
def _hints(build: Callable[..., Any]) -> dict[str, Any]:
    """Return the types of the settings."""
    found: dict[str, Any] = {}
    for typed in (build, build.__init__) if inspect.isclass(build) else (build,):
        # Names that a module imports for type checking only stand for any type.
        unknown: dict[str, Any] = {}
        while True:
            try:
                found |= typing.get_type_hints(typed, None, unknown)
            except NameError as error:
                unknown[str(error.name)] = Any
                continue
            except TypeError:
                pass
            break
    return found


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value that was written as text may be one of a type; types of parts and others always fit."""
    origin = get_origin(hint)
    if origin is typing.Literal:
        return value in get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, one) for one in get_args(hint))
    if hint is type(None):
        return value is None
    if hint is bool:
        return isinstance(value, bool)
    if hint is int:
        return isinstance(value, Integral) and not isinstance(value, bool)
    if hint is float:
        return isinstance(value, Real) and not isinstance(value, bool)
    if hint is str:
        return isinstance(value, str)
    return hint in (Any, object) or not isinstance(value, bool | int | float | None)


def _plain(hint: Any) -> str:
    if get_origin(hint) is typing.Literal:
        return f"one of {', '.join(map(str, get_args(hint)))}"
    if get_origin(hint) in (typing.Union, types.UnionType):
        plain = (_plain(one) for one in get_args(hint) if get_origin(one) is not Mapping)
        return " or ".join(dict.fromkeys(plain))
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text", type(None): "null"}
    return names.get(hint, getattr(hint, "__name__", str(hint)))

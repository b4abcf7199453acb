"""Settings of a command from a mapping, read as from its YAML file."""

from __future__ import annotations

from argparse import ArgumentError
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

from corag.cli.main import restrict_settings
from corag.errors import InputError

C = TypeVar("C")


def read_settings(kind: type[C], values: Mapping[str, Any]) -> C:
    """Return the settings of a command; nested ones as mappings or by dotted names, and a list where a tuple belongs.

    An unknown name or a wrong value is an `InputError`; a class of settings may raise errors of its own.
    """
    parser: Any = _parser(kind)  # type: ignore[arg-type]
    try:
        parsed = parser.parse_object(dict(values))
    except ArgumentError as error:
        raise InputError(" ".join(str(error).split())) from error
    return kind(**vars(parser.instantiate(parsed)))


@cache
def _parser(kind: type[Any]) -> Any:
    from jsonargparse import ArgumentParser

    restrict_settings()
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(kind)
    return parser

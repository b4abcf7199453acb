"""The methods of a comparison by name, with settings of their own: `top-k:k=3`, `car:method=dbscan`, or `all`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

import corag
from corag.errors import InputError, MissingExtraError
from corag.registry import SELECTORS
from corag.types import Reader, Reranker, Selector
from experiments.data.config import comma_separated

ALL = "all"
"""Every registered selector that can run."""
FIXED = "corag-fixed"
"""The selector that needs an agent's checkpoint."""


class Method(NamedTuple):
    """A selector with settings; `label` is how it was written, its name in results."""

    label: str
    name: str
    settings: Mapping[str, Any] = MappingProxyType({})


class Methods(NamedTuple):
    """Selectors by label, and what of `all` cannot run here, with the reason."""

    selectors: Mapping[str, Selector]
    left_out: Mapping[str, str] = MappingProxyType({})


def parse_method(text: str) -> Method:
    """Return what `name:key=value:key=value` says.

    A value is read as JSON (a number, `true`, `false`, `null`), else as text. A part behind the name that
    is not `key=value`, or a key that stands twice, is an `InputError`.
    """
    name, *parts = text.split(":")
    settings: dict[str, Any] = {}
    for part in parts:
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not key or not equals or not value:
            raise InputError(f"{text!r}: {part!r} is no setting; write name:key=value, such as top-k:k=3")
        if key in settings:
            raise InputError(f"{text!r}: {key!r} is set twice; leave one out")
        try:
            settings[key] = json.loads(value)
        except ValueError:
            settings[key] = value
    return Method(text, name.strip(), settings)


def make_reader(text: str) -> Reader:
    """Return the reader that `name:key=value` says; see `parse_method`."""
    written = parse_method(text)
    return corag.reader(written.name, **written.settings)


def make_methods(methods: str, offered: Mapping[str, Any], *, shared: bool = False) -> Methods:
    """Build selectors, each with rerankers of its own so that no cache is shared.

    Args:
        methods: Methods, separated by commas; `all` stands for every selector that can run.
        offered: Settings for every selector that takes them, such as `tokens`, `reranker`, `agent`; those that are None
            are left out. Settings written behind a method's name replace them.
        shared: One reranker of a name for all selectors: its cache serves all, so that their latencies cannot be
            compared.

    Raises:
        MissingExtraError: A method that was named needs a package that is not installed; of `all` it is left out.
    """
    if not (named := comma_separated(methods)):
        raise InputError(f"methods is {methods!r}; name at least one of {', '.join(SELECTORS.names)}, or {ALL}")
    rerankers = cache(corag.reranker) if shared else None
    selectors: dict[str, Selector] = {}
    left_out: dict[str, str] = {}
    for text, name in ((one, name) for one in named for name in (SELECTORS.names if one == ALL else [one])):
        try:
            selectors[name] = _built(parse_method(name), offered, rerankers)
        except (MissingExtraError, InputError) as error:
            if text != ALL or (isinstance(error, InputError) and name != FIXED):
                raise
            left_out[name] = str(error)
    return Methods(selectors, left_out)


def _built(method: Method, offered: Mapping[str, Any], rerankers: Callable[[str], Reranker] | None) -> Selector:
    takes = set(SELECTORS.settings(method.name))
    inner = method.settings.get("selector")
    if inner in SELECTORS.names:
        # `reorder` passes settings on to the selector that it reorders.
        takes |= set(SELECTORS.settings(inner))
    if "agent" in takes:
        # An agent names the embedder that it was trained with.
        takes.discard("embedder")
    if not takes & {"reranker", "agent"}:
        # The window offered is a reranker's; other selectors call other things by that name.
        takes.discard("window")
    settings = {name: value for name, value in offered.items() if name in takes and value is not None}
    settings.update(method.settings)
    if method.name == FIXED:
        settings.setdefault("agent", None)
    if rerankers is not None and isinstance(settings.get("reranker"), str):
        settings["reranker"] = rerankers(settings["reranker"])
    return corag.selector(method.name, **settings)

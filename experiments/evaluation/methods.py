"""The methods of a comparison by name, with settings of their own: `top-k:k=3`, `car:method=dbscan`, or `all`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import corag
from corag.errors import InputError, MissingExtraError
from corag.registry import SELECTORS
from corag.types import Reader, Reranker, Selector

ALL = "all"
"""Every registered selector that can run."""
FIXED = "corag-fixed"
"""The selector that needs an agent's checkpoint."""


@dataclass(frozen=True, slots=True)
class Method:
    """A selector with settings.

    Attributes:
        label: How it was written; its name in results.
        name: The selector.
        settings: Settings that were written behind the name.
    """

    label: str
    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Methods:
    """What is compared.

    Attributes:
        selectors: By label, in the order in which they were named.
        left_out: Of `all`, what cannot run here, and why.
    """

    selectors: Mapping[str, Selector]
    left_out: Mapping[str, str] = field(default_factory=dict)


def parse_method(text: str) -> Method:
    """Return what `name:key=value:key=value` says.

    A value is read as JSON (a number, `true`, `false`, `null`), and as text where it is none.

    Raises:
        InputError: A part behind the name is not `key=value`, or a key stands twice.
    """
    name, *parts = text.split(":")
    settings: dict[str, Any] = {}
    for part in parts:
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not key or not equals or not value:
            raise InputError(f"{text!r}: {part!r} is no setting; write name:key=value, such as top-k:k=3")
        if key in settings:
            raise InputError(f"{text!r}: {key!r} is set twice; leave one out")
        settings[key] = _value(value)
    return Method(text, name.strip(), settings)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


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
        InputError: No method, an unknown one, settings that it does not take, or `corag-fixed` without an agent.
        MissingExtraError: A method that was named needs a package that is not installed; of `all` it is left out.
    """
    named = [part.strip() for part in methods.split(",") if part.strip()]
    if not named:
        raise InputError(f"methods is {methods!r}; name at least one of {', '.join(SELECTORS.names)}, or {ALL}")
    rerankers = cache(corag.reranker) if shared else None
    selectors: dict[str, Selector] = {}
    left_out: dict[str, str] = {}
    for text in named:
        if text != ALL:
            selectors[text] = _built(parse_method(text), offered, rerankers)
            continue
        for name in SELECTORS.names:
            try:
                selectors[name] = _built(Method(name, name), offered, rerankers)
            except MissingExtraError as error:
                left_out[name] = str(error)
            except InputError as error:
                if name != FIXED:
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

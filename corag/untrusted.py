"""Limits for untrusted input: which parts, with which settings, a request, a checkpoint or an index may name.

What you type or pass as an argument has none of these limits: you see what it takes, and can stop it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from common.configuration import Configuration, parse
from corag.errors import InputError, ModelError
from corag.optional import load
from corag.registry import ENCODERS, TABLES, TOKENIZERS, Registry

DEADLINE_S = 30.0
"""Seconds for a request, waiting for its turn included, unless `corag serve --deadline` says otherwise."""

LIMITS: Mapping[str, float] = {
    # A search. `upper` has the default max_orders, enough for the paper's largest problem.
    "iterations": 200,
    "parallel": 16,
    "max_scored": 50_000,
    "max_orders": 200_000,
    "max_length": 20,
    # Clusterings, of which some compare all pairs in memory.
    "max_candidates": 200,
    # Units, each valued by a reranker, and readings of a question.
    "max_units": 500,
    "samples": 10,
    # Any number of 32 bits.
    "seed": 2**32 - 1,
}
"""The largest value of each setting that is work or memory."""
DEFAULT_LIMIT = 10_000
"""The largest value of all other numbers."""


def too_large(settings: Mapping[str, Any]) -> str:
    """Return how a setting, or one of those within it, exceeds its limit, for an error; nothing if none does."""
    for name, value in settings.items():
        most = LIMITS.get(name, DEFAULT_LIMIT)
        for one in value if isinstance(value, list | tuple) else [value]:
            if isinstance(one, Mapping) and (reason := too_large(one)):
                return reason
            if isinstance(one, int | float) and not -most <= one <= most:
                return f"{name} of {one!r:.40}, above the limit for untrusted input, {most:,}"
    return ""


def check_untrusted(table: Registry[Any], part: object, source: object) -> Configuration:
    """Return a part that somebody else names, in a file (a checkpoint, an index) or a request, if they may name it.

    They may name shipped and registered parts, nested at will, and models in the hub's cache on this machine, with
    settings within `LIMITS`; no server, address, key or path, and they cannot allow code of a model.

    Args:
        table: The kind of part that is expected.
        part: What is named.
        source: The file or request, for errors.

    Raises:
        ModelError: It names something else; the message says how the user can give it.
    """
    try:
        written = parse(part)
        parameters = table.parameters(written.name)
    except InputError as error:
        raise ModelError(f"{source} names a {table.kind} that is unknown here: {error}") from error
    settings = dict(written.settings)
    if "model" in parameters and isinstance(default := parameters["model"].default, str):
        settings.setdefault("model", default)
    refused = "a part that asks a server" if parameters.keys() & {"base_url", "host"} else too_large(settings)
    for key, value in settings.items():
        hint = str(parameters[key].annotation) if key in parameters else ""
        inner = next((one for one in TABLES if one.kind == key or re.search(rf"{one.protocol}\b", hint)), None)
        # tiktoken fetches the vocabulary of an encoding.
        if key not in parameters or key in ("trust_remote_code", "encoding"):
            refused = f"its setting {key!r}"
        elif key == "model" or (key == "encoder" and str(value) not in ENCODERS):
            if not refused and (_is_there(str(value)) or not _is_cached(table, str(value))):
                refused = f"{str(value)!r:.300}, which is not a model in the cache on this machine (hf download)"
        elif value is None:
            continue
        elif inner is not None:
            for one in value if isinstance(value, list) else [value]:
                check_untrusted(inner, one, source)
        elif not _is_plain(value) or "Path" in hint or ("AgentSource" in hint and not _is_agent(value)):
            refused = f"its setting {key!r}"
    if refused:
        raise ModelError(
            f"{source} names {table.kind} {str(written)!r:.300}, but may not choose {refused}; if you trust it, give "
            f"the {table.kind} yourself, on the command line or as an argument"
        )
    return written


_CHOICE = re.compile(r"[\w.:+ -]{0,100}(\([\w., -]{0,100}\))?")


def _is_cached(table: Registry[Any], model: str) -> bool:
    """Return whether the hub's cache has all that a part needs of a model."""
    if table is TOKENIZERS:
        return bool(load("corag.text.tokens:in_cache")(model))
    return bool(load("corag.models.checkpoint:is_whole_in_cache")(model))


def _is_agent(value: object) -> bool:
    """Return whether a setting is `none`, where no folder of that name would be taken for it."""
    return value == "none" and not _is_there(value)


def _is_there(path: str, kind: Callable[[Path], bool] = Path.exists) -> bool:
    try:
        return kind(Path(path))
    except (OSError, ValueError):  # no file has such a name
        return False


def _is_plain(value: object) -> bool:
    """Return whether a setting is a number, a choice, or a list or mapping of such, and no path."""
    if isinstance(value, str):
        return bool(_CHOICE.fullmatch(value)) and not _is_there(value, Path.is_file) and value.strip(".") != ""
    if isinstance(value, Mapping):
        return all(_is_plain(key) and _is_plain(inner) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float)

"""Secrets never leave: what hides keys, passwords and the like in any text that is printed, logged or written.

The rule is one: the values of the settings in `SECRETS`, and what stands before the host of a URL, read `***`; and so
does every value that is known to be a secret, wherever it turns up, such as in what a server echoes.
"""

from __future__ import annotations

import base64
import json
import os
import re
import sys
import threading
import traceback
from collections.abc import Mapping
from functools import lru_cache
from types import TracebackType
from typing import Any
from urllib.parse import quote, unquote

HIDDEN = "***"
"""What stands for a secret. A part that is built from such a spelling has the setting's default value."""

SECRETS = {"api_key", "token", "password", "headers"}
"""Names of secret settings; those that a part lists in its `secrets` are added."""

LEAST_KNOWN = 8
"""Characters of a value that is looked for in texts; shorter ones could be words."""

_KNOWN: set[str] = set()
# Names of environment variables that hold secrets, such as OPENAI_API_KEY, WANDB_API_KEY and HF_TOKEN, end so.
_OF_ENVIRONMENT = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD")
# A password may hold marks that should have been written in another way; what follows a port is no password.
_USERINFO = re.compile(r"""://(?:[^\s/?#]*|[^\s/?#:@]*:(?!\d+/)[^\s"'@]{0,200})@""")
# So may a key without quotation marks; it ends before the next setting, and where the text goes on.
_BARE = r"""[^,()\s'"](?:[^,()'"]|,(?=[^\s,()'"=]*(?:[),]|$))|\)(?=\w))*"""
_VALUE = rf"""(?!\\*["']?\*\*\*)(?:\\+["'].*|"(?:\\.|[^"\\])*"?|'(?:\\.|[^'\\])*'?|[{{\[].*|{_BARE})"""


def hide_secrets(text: str) -> str:
    """Return a text, such as an error, with every secret in it replaced by `***`; it may hide more than that."""
    if "://" in text:
        text = _USERINFO.sub(f"://{HIDDEN}@", text)
    names = _names(frozenset(SECRETS))
    text = names.sub(rf"\1{HIDDEN}", text) if any(name in text for name in ("=", ":")) else text
    for value in sorted(_KNOWN.union(*map(_of_variable, os.environ.items())), key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    return text


def remember_secrets(value: Any, *, secret: bool = False) -> None:
    """Let `hide_secrets` know the values of secret settings, at any depth, wherever they turn up from now on.

    With `secret`, all of `value` is one.
    """
    if isinstance(value, Mapping):
        for name, inner in value.items():
            remember_secrets(inner, secret=secret or is_secret(name))
    elif isinstance(value, list | tuple):
        for inner in value:
            remember_secrets(inner, secret=secret)
    elif isinstance(value, str) and secret:
        _KNOWN.update(_forms(value), _forms(value.rpartition(" ")[2]))  # such as of "Bearer KEY"
    elif isinstance(value, str) and "://" in value:
        for found in _USERINFO.finditer(value):
            userinfo = unquote(found[0][3:-1])
            _KNOWN.update(_forms(userinfo.partition(":")[2]))
            _KNOWN.update(_forms(base64.b64encode(userinfo.encode(errors="replace")).decode()))


@lru_cache(maxsize=256)
def _of_variable(item: tuple[str, str]) -> frozenset[str]:
    """Return the secrets in an environment variable: its value by its name, or the passwords in an address."""
    name, value = item
    if name.upper().endswith(_OF_ENVIRONMENT):
        return _forms(value)
    found = _USERINFO.findall(value) if "://" in value else []
    return frozenset[str]().union(*(_forms(unquote(one[3:-1]).partition(":")[2]) for one in found))


@lru_cache(maxsize=256)
def _forms(value: str) -> frozenset[str]:
    """Return how a value is written in texts, JSON, addresses and base64; nothing for one that is too short."""
    if len(value) < LEAST_KNOWN or HIDDEN in value:
        return frozenset()
    # What stands before the value, such as the user of `Basic` authentication, shifts its base64: what is the same for
    # whatever stands before and behind.
    data = value.encode(errors="replace")
    coded = {
        base64.b64encode(bytes(shift) + data).decode().rstrip("=")[begin : -1 if (shift + len(data)) % 3 else None]
        for shift, begin in enumerate((0, 2, 3))
    }
    return frozenset({value, json.dumps(value)[1:-1], repr(value)[1:-1], quote(value, safe=""), *coded})


def hide_in_tracebacks() -> None:
    """Hide secrets in the tracebacks of errors that end this process or one of its threads."""

    def show(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
        sys.stderr.write(hide_secrets("".join(traceback.format_exception(kind, error, trace))))

    def show_in_thread(given: threading.ExceptHookArgs) -> None:
        if given.exc_type is not SystemExit:
            show(given.exc_type, given.exc_value, given.exc_traceback)

    sys.excepthook = show
    sys.unraisablehook = lambda given: show(given.exc_type, given.exc_value, given.exc_traceback)
    threading.excepthook = show_in_thread


def is_secret(name: object) -> bool:
    """Return whether a setting is one of `SECRETS`, however its name is written."""
    return _bare_name(str(name)) in {_bare_name(one) for one in SECRETS}


def shown(value: object, most: int = 200) -> str:
    """Return the beginning of what a value looks like, for an error; hidden first, as half a secret is not known."""
    return hide_secrets(repr(value))[:most]


def without_hidden(value: str) -> str:
    """Return the address in a spelling that hid its userinfo, as it is without any."""
    return value.replace(f"://{HIDDEN}@", "://")


def _bare_name(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


@lru_cache(maxsize=8)
def _names(secrets: frozenset[str]) -> re.Pattern[str]:
    names = "|".join(re.escape(name).replace("_", "[-_]?") for name in sorted(secrets))
    return re.compile(rf"""((?<![\w-])(?:{names})\\*["']?\s*[=:]\s*){_VALUE}""", re.DOTALL | re.IGNORECASE)

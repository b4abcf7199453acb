"""Secrets never leave: what hides keys, passwords and the like in any text that is printed, logged or written.

The rule is one: the values of the settings in `SECRETS`, and what stands before the host of a URL, read `***`.
"""

from __future__ import annotations

import re
from functools import lru_cache

HIDDEN = "***"
"""What stands for a secret. A part that is built from such a spelling has the setting's default value."""

SECRETS = {"api_key", "token", "password", "headers"}
"""Names of secret settings; those that a part lists in its `secrets` are added."""

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
    return names.sub(rf"\1{HIDDEN}", text) if any(name in text for name in ("=", ":")) else text


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

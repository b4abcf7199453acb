"""The JSON object in the reply of a language model that was asked for one."""

from __future__ import annotations

import json
import re
from typing import Any

_OBJECT = re.compile(r"\{.*\}", re.DOTALL)
_THOUGHT = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)


def json_object(reply: str) -> dict[str, Any] | None:
    """Return the one JSON object in a reply, whatever stands around it; None where there is none, or more."""
    found = _OBJECT.search(_THOUGHT.sub("", reply))
    try:
        content = json.loads(found[0]) if found else None
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None

"""Formulas of MathML and of Office documents in one line: `(a + b)/2`, `x^2`, `√(n)`."""

from __future__ import annotations

from typing import Any
from unicodedata import category

# By the names of both formats: what stands between the parts of a formula, with parts of more than a word in brackets.
_BETWEEN = {
    "mfrac": "/", "f": "/", "msup": "^", "sSup": "^", "mover": "^", "limUpp": "^", "acc": "", "msub": "_", "sSub": "_",
    "munder": "_", "limLow": "_", "msubsup": "_^", "sSubSup": "_^", "munderover": "_^",
}  # fmt: skip
_LISTS = {"mtr": ", ", "mr": ", ", "mtable": "; ", "m": "; "}


def linear(element: Any) -> str:
    """Return a formula, an element of Beautiful Soup, in one line."""
    if element.name is None:
        return " ".join(element.split())
    name = _name(element)
    children = [child for child in element.children if child.name is None or not _is_no_part(_name(child))]
    parts = [part for part in map(linear, children) if part]
    if name in _BETWEEN and len(parts) > 1:
        first, *others = map(_grouped, parts)
        return first + "".join(mark + part for mark, part in zip(_BETWEEN[name], others, strict=False))
    if name in ("msqrt", "mroot", "rad") and parts:
        # The degree is the second part in MathML, the first in Office Math.
        *degree, root = parts if name == "rad" else reversed(parts) if name == "mroot" else ["".join(parts)]
        return f"{''.join(degree)}√({root})"
    if name == "nary":
        sign, marks = _property(element, "chr", "∫"), {"sub": "_", "sup": "^"}
        limits = [(marks.get(_name(child), " "), linear(child)) for child in children if child.name is not None]
        return sign + "".join(f"{mark}{_grouped(part) if mark != ' ' else part}" for mark, part in limits if part)
    if name == "d":
        return f"{_property(element, 'begChr', '(')}{', '.join(parts)}{_property(element, 'endChr', ')')}"
    if name in _LISTS:
        joined = _LISTS[name].join(parts)
        return f"[{joined}]" if _LISTS[name] == "; " else joined
    text = "".join(parts)
    return f" {text} " if name == "mo" and (text == "-" or (len(text) == 1 and category(text) == "Sm")) else text


def _name(element: Any) -> str:
    return str(element.name).rpartition(":")[2]


def _is_no_part(name: str) -> bool:
    """Return whether an element has properties, or the same formula in another notation."""
    return name.endswith("Pr") or name in ("annotation", "annotation-xml")


def _grouped(part: str) -> str:
    return (
        part
        if all(character.isalnum() or character in "_.," for character in part.removeprefix("-"))
        else f"({part.strip()})"
    )


def _property(element: Any, name: str, default: str) -> str:
    found = next((one for one in element.find_all(True) if _name(one) == name), None)
    return default if found is None else str(found.get("m:val", found.get("val", "")))

"""Prompts as text files: the shipped ones by name, one's own by path.

A file is a chat: lines `[system]`, `[user]` and `[assistant]` begin messages, and text without any is one message of
the user. Fields such as `{question}` stand for what is filled in; other braces are text.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from corag.errors import InputError

Messages = list[dict[str, str]]
"""Role (`system`, `user`, `assistant`) and content of each."""

_ROLE = re.compile(r"^\[(system|user|assistant)\][ \t]*\n", re.MULTILINE)
_FIELD = re.compile(r"\{([a-z]+(?:_[a-z]+)*)\}")
_TAG = re.compile(r"</?([a-z]+)>")


@dataclass(frozen=True)
class Prompt:
    """The messages of a chat, with fields to be filled in: its name, or its path, and the content of its file."""

    name: str
    text: str

    @property
    def fields(self) -> frozenset[str]:
        """Names of its fields."""
        return frozenset(_FIELD.findall(self.text))

    def messages(self, **values: str) -> Messages:
        """Return the messages with their fields filled in.

        A text cannot close the tag around it, such as `<context>`, and continue as the user: such tags in
        values are broken up.
        """
        names = "|".join(sorted(set(_TAG.findall(self.text)))) or r"(?!)"
        tag = re.compile(rf"<(?=\s*/?\s*(?:{names})\s*>)", re.IGNORECASE)
        broken = {name: tag.sub("< ", value) for name, value in values.items()}
        before, *rest = _ROLE.split(self.text)
        parts = [("user", before), *zip(rest[::2], rest[1::2], strict=True)]
        return [
            {"role": role, "content": _FIELD.sub(lambda found: broken.get(found[1], found[0]), content.strip())}
            for role, content in parts
            if content.strip()
        ]


def prompt(name: str, folder: str, *, needs: Collection[str], one_of: Collection[str] = ()) -> Prompt:
    """Return a prompt by name, or from a file.

    Args:
        name: Name of a shipped prompt, or path of a text file.
        folder: Package and folders of the shipped ones, such as `corag/prompts`.
        needs: Fields that it must have.
        one_of: Fields of which it must have exactly one.

    Raises:
        InputError: There is no such prompt, it cannot be read, or its fields are not those that it must have.
    """
    package, *inside = folder.split("/")
    shipped = files(package).joinpath(*inside)
    names = sorted(file.name.removesuffix(".txt") for file in shipped.iterdir() if file.name.endswith(".txt"))
    source = shipped / f"{name}.txt" if name in names else Path(name)
    rule = " and ".join(f"{{{field}}}" for field in needs)
    if one_of:
        rule += " and one of " + ", ".join(f"{{{field}}}" for field in one_of)
    try:
        text = source.read_text(encoding="utf-8-sig")  # editors on Windows may begin a file with a mark
    except (OSError, ValueError) as error:
        raise InputError(
            f"prompt {name!r} cannot be read ({error}); use one of {', '.join(names)}, or the path of a UTF-8 text "
            f"file with {rule}"
        ) from error
    made = Prompt(name, text)
    fields = made.fields
    if not set(needs) <= fields <= {*needs, *one_of} or (one_of and len(fields.intersection(one_of)) != 1):
        raise InputError(f"prompt {name!r} must have the fields {rule} and no others, got {sorted(fields)}")
    return made

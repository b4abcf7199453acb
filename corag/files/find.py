"""The documents in a folder: which files there are, in an order that is always the same."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

TYPES: Mapping[str, str] = {
    ".md": "markdown", ".markdown": "markdown", ".mdx": "markdown",
    ".txt": "text", ".text": "text", ".rst": "text",
    ".html": "html", ".htm": "html", ".xhtml": "html",
    ".pdf": "pdf",
    ".docx": "docx",
}  # fmt: skip
"""Ending of a file's name, in lower case -> how it is read."""


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """The documents of a folder.

    Attributes:
        root: The folder.
        paths: Files that can be read, relative to `root` with slashes, in order.
        unreadable: Path -> why it cannot be read.
        others: Ending -> number of files of types that are not read.
    """

    root: Path
    paths: tuple[str, ...] = ()
    unreadable: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, int] = field(default_factory=dict)


def find_files(root: str | Path) -> FoundFiles:
    """Return the documents under a folder, or the one that `root` names.

    Hidden files and folders are left out. A link to a file counts as a file; a link to a folder is not followed.
    """
    folder = Path(root)
    if folder.is_file():
        return FoundFiles(folder.parent, (folder.name,))
    paths: list[str] = []
    unreadable: dict[str, str] = {}
    others: Counter[str] = Counter()

    def refused(error: OSError) -> None:
        unreadable[_shown(Path(error.filename).relative_to(folder))] = f"cannot be listed: {error.strerror}"

    for place, folders, names in os.walk(folder, onerror=refused):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            relative = (Path(place) / name).relative_to(folder)
            if name.startswith("."):
                continue
            if relative.suffix.lower() not in TYPES:
                others[relative.suffix.lower() or "no ending"] += 1
            elif reason := _refusal(folder / relative):
                unreadable[_shown(relative)] = reason
            else:
                paths.append(relative.as_posix())
    # Folder by folder, whatever the file system's own order.
    paths.sort(key=lambda path: path.split("/"))
    return FoundFiles(folder, tuple(paths), dict(sorted(unreadable.items())), dict(sorted(others.items())))


def _refusal(path: Path) -> str:
    """Return why a file cannot be read, or nothing."""
    try:
        path.as_posix().encode()
        # A pipe would be waited for without end.
        return "" if stat.S_ISREG(path.stat().st_mode) else "no regular file"
    except UnicodeEncodeError:
        return "its name is no valid UTF-8; rename it"
    except OSError as error:
        return f"cannot be opened: {error.strerror}"


def _shown(path: Path) -> str:
    return path.as_posix().encode("utf-8", "replace").decode()

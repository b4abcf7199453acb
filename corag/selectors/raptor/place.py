"""Where the tree of an index lies. Loads none, nor what builds one: every question asks whether there is a tree."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from corag.index.search import ChunkIndex
from corag.index.store import local_folder
from corag.registry import SELECTORS

FOLDER = "raptor"
"""The tree's folder in that of its index."""
TREE_FILE = "tree.json"
"""The file that a whole tree has; written last."""


def tree_folder(uri: str | Path) -> Path | None:
    """Return where the tree of an index lies, or would lie; None for an index on object storage."""
    folder = local_folder(uri)
    return None if folder is None else folder / FOLDER


def tree_file(uri: str | Path) -> Path | None:
    """Return the file of the tree beside an index, of its present content or of an earlier one; None without one."""
    folder = tree_folder(uri)
    return folder / TREE_FILE if folder is not None and (folder / TREE_FILE).is_file() else None


def has_tree(uri: str | Path) -> bool:
    """Return whether there is a tree beside an index, of its present content or of an earlier one."""
    return tree_file(uri) is not None


def tree_setting(selector: object, index: object) -> dict[str, Any]:
    """Return the settings by which a selector that is spelled out uses the tree of an index; none where it has none.

    Args:
        selector: Name with settings; an object, or a tree of its own, is left as it is.
        index: The index, or where it lies; anything else has no tree.
    """
    if not isinstance(selector, str | Mapping) or "tree" not in SELECTORS.settings(selector):
        return {}
    uri = index.uri if isinstance(index, ChunkIndex) else index
    return {"tree": str(uri)} if isinstance(uri, str | Path) and has_tree(uri) else {}

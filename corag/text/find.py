"""Data folders by name, wherever they lie."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

from corag.errors import DataError
from corag.writing import cache_folder

DATA_VARIABLE = "CORAG_DATA"
"""Environment variable that names a folder of data folders."""


def find_data(name: str | Path) -> Path:
    """Return the data folder of a name.

    An existing path stands for itself. Any other name is looked up in the folder `$CORAG_DATA`, then in the cache,
    where `corag data get` puts what it fetches.

    Args:
        name: Path, or name such as `hotpotqa` or `beir:scifact`; see `folder_name`.

    Raises:
        DataError: There is no such folder; the message lists those that are there.
    """
    if str(name) and Path(name).exists():
        return Path(name)
    for shelf in shelves():
        if str(name) and (found := shelf / folder_name(str(name))).is_dir():
            return found
    raise DataError(_missing(str(name)))


def folder_name(name: str) -> str:
    """Return the name of the folder of a data set: that of `beir:scifact` is `beir-scifact`."""
    return re.sub(r"[:/\\]+", "-", name)


def data_cache() -> Path:
    """Return the folder in the cache that holds data folders."""
    return cache_folder() / "data"


def shelves() -> Iterator[Path]:
    """Yield the folders in which names are looked up, first come first."""
    if chosen := os.environ.get(DATA_VARIABLE):
        yield Path(chosen).expanduser()
    yield data_cache()


def _missing(name: str) -> str:
    listed = {shelf: _names(shelf) for shelf in shelves()}
    similar = get_close_matches(folder_name(name), [one for names in listed.values() for one in names], 1)
    at_hand = "; ".join(f"{shelf}: {', '.join(names) or 'none'}" for shelf, names in listed.items())
    return (
        f"{name or repr(name)} is not a folder; give a folder with corpus.jsonl and queries.jsonl (or .jsonl.gz), or "
        f"the name of one at hand{f' such as {similar[0]!r}' if similar else ''} ({at_hand}), or fetch one with: "
        f"corag data get NAME; the folder that holds yours is named by {DATA_VARIABLE}"
    )


def _names(shelf: Path) -> list[str]:
    if not shelf.is_dir():
        return []
    return sorted(one.name for one in shelf.iterdir() if one.is_dir() and not one.name.startswith("."))

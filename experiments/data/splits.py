"""Dividing questions into parts so that questions that share documents are in the same part, from one seed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from corag.errors import DataError
from corag.text.data import NO_SPLIT, DataFolder, Query, passage_of

SHARES = {"train": 0.6, "dev": 0.2, "test": 0.2}
"""Splits of a data folder whose questions name none."""
HELD_OUT = 0.2
"""Share of the questions of a split that no shipped adapter has learned from."""


def default_split(folder: DataFolder) -> str:
    """Return the split that is compared on if none is named: `dev`, or `test` if there is no `dev`, or the only one."""
    names = {query.split for query in folder.queries}
    for name in ("dev", "test"):
        if name in names or names == {NO_SPLIT}:
            return name
    return min(names) if len(names) == 1 else "dev"


def questions_of(folder: DataFolder, split: str, limit: int | None = None) -> list[Query]:
    """Return the first `limit` questions of a split (all without a limit).

    Where no question of the folder names a split, `train`, `dev` and `test` are made: questions that share documents
    are in one split, and the same questions are always divided alike.
    """
    if split not in SHARES or any(query.split != NO_SPLIT for query in folder.queries):
        return folder.split(split, limit)
    groups = document_groups(folder, folder.queries)
    parts = divide([""] * len(groups), groups, list(SHARES.values()))
    wanted = list(SHARES).index(split)
    chosen = [replace(query, split=split) for query, part in zip(folder.queries, parts, strict=True) if part == wanted]
    if not chosen:
        raise DataError(
            f"{folder.path} names no splits, and its {len(groups)} questions share too many documents to be divided; "
            f"use split {NO_SPLIT!r}, or write splits into queries.jsonl"
        )
    return chosen[:limit]


def divide(
    data: Sequence[str] | NDArray[np.str_], group: Sequence[str] | NDArray[np.str_], shares: Sequence[float]
) -> NDArray[np.int64]:
    """Return the part of each question, `[n]`: 0 for the first share, 1 for the second, and so on.

    The groups of each data folder are taken in pseudo-random order, and each goes to the part that lacks most of its
    share, ties to the first. So no group is in two parts, and the order of the questions does not matter. `data` and
    `group` are `[n]`; see `document_groups`.
    """
    folders, groups = np.array(data, dtype=str), np.array(group, dtype=str)
    parts = np.zeros(len(folders), dtype=np.int64)
    for folder in np.unique(folders).tolist():
        members = np.flatnonzero(folders == folder)
        lacking = np.array(shares, dtype=np.float64) / np.sum(shares) * len(members)
        for rows in _shuffled(groups[members], f"0 {folder}"):
            part = int(lacking.argmax())
            parts[members[rows]] = part
            lacking[part] -= len(rows)
    return parts


def held_out(folder: DataFolder, queries: Sequence[Query]) -> frozenset[str]:
    """Return the ids of the questions of a data folder that no adapter learns from.

    Groups of questions that share documents are taken in pseudo-random order until `HELD_OUT` is reached; the last
    group taken may exceed it.
    """
    chosen: list[str] = []
    for rows in _shuffled(document_groups(folder, queries), "0"):
        if len(chosen) >= HELD_OUT * len(queries):
            break
        chosen += [queries[row].id for row in rows]
    return frozenset(chosen)


def _shuffled(groups: Sequence[str] | NDArray[np.str_], salt: str) -> Iterator[list[int]]:
    """Yield the rows of each group, in the order of a hash of salt and name: rows may come in any order."""
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(groups):
        rows.setdefault(str(name), []).append(row)
    for name in sorted(rows, key=lambda name: hashlib.sha256(f"{salt} {name}".encode()).digest()):
        yield rows[name]


def hash_fraction(name: str, purpose: str) -> float:
    """Return a pseudo-random number in [0, 1) from a hash of a question's id and what it is drawn for."""
    return int.from_bytes(hashlib.sha256(f"{purpose} {name}".encode()).digest()[:6], "big") / 2**48


def document_groups(folder: DataFolder, queries: Sequence[Query]) -> list[str]:
    """Return the name of each question's group: of its connected component, the first document's.

    Questions are connected when they share a gold passage, spans of one, or gold passages of the same title.
    """
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        parent.setdefault(name, name)
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    firsts = []
    for query in queries:
        passages = [name for gold in query.gold if (name := passage_of(gold, folder.documents)) is not None]
        names = [folder.documents[name].title or name for name in passages] or [query.id]
        firsts.append(names[0])
        for name in names[1:]:
            parent[max(root(names[0]), root(name))] = min(root(names[0]), root(name))
    return [root(name) for name in firsts]

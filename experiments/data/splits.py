"""Dividing questions into parts: by groups that share documents, every data folder alike, from one seed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from corag.errors import DataError
from corag.text.data import NO_SPLIT, DataFolder, Query
from experiments.adapters.holdout import document_groups

SHARES = {"train": 0.6, "dev": 0.2, "test": 0.2}
"""Splits of a data folder whose questions name none."""


def questions_of(folder: DataFolder, split: str, limit: int | None = None) -> list[Query]:
    """Return the first `limit` questions of a split (all without a limit).

    Where no question of the folder names a split, `train`, `dev` and `test` are made: questions that share documents
    are in one split, and the same questions are always divided alike.

    Raises:
        DataError: The split has no question.
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
    data: Sequence[str] | NDArray[np.str_],
    group: Sequence[str] | NDArray[np.str_],
    shares: Sequence[float],
    seed: int = 0,
) -> NDArray[np.int64]:
    """Return the part of each question, `[n]`: 0 for the first share, 1 for the second, and so on.

    The groups of a data folder are taken in the order of a hash of seed and name; each goes to the part that lacks most
    of its share, among equals to the first. So no group is in two parts, every folder is divided alike as far as its
    groups allow, and the answer does not depend on the order of the questions.

    Args:
        data: Data folder of each question, `[n]`.
        group: Group of each question, `[n]`.
        shares: Share of the questions in each part, at least 0.
        seed: Another seed, another division.
    """
    parts = np.zeros(len(data), dtype=np.int64)
    rows: dict[tuple[str, str], list[int]] = {}
    for row, key in enumerate(zip(map(str, data), map(str, group), strict=True)):
        rows.setdefault(key, []).append(row)
    for folder in sorted({key[0] for key in rows}):
        groups = {name: members for (owner, name), members in rows.items() if owner == folder}
        total = sum(map(len, groups.values()))
        lacking = np.array(shares, dtype=np.float64) / np.sum(shares) * total
        for name in sorted(groups, key=lambda name: hashlib.sha256(f"{seed} {folder} {name}".encode()).digest()):
            part = int(lacking.argmax())
            parts[groups[name]] = part
            lacking[part] -= len(groups[name])
    return parts

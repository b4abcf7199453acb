"""Dividing labelled questions into parts: by groups that share documents, every data folder alike, from one seed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


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

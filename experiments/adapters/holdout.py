"""Which questions no adapter ever learns from: a share of a data folder, cut between documents.

Questions that share a gold passage, or gold passages of the same title, are on the same side.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from corag.text.data import DataFolder, Query


def held_out(folder: DataFolder, queries: Sequence[Query], share: float, seed: int = 0) -> frozenset[str]:
    """Return the ids of the questions that are held out.

    Groups of questions are taken in the order of a hash of their name until the share is reached, so the answer
    depends on the questions and the seed alone.

    Args:
        folder: The data.
        queries: The questions to divide.
        share: Of the questions, in [0, 1]; the last group taken may exceed it.
        seed: Another seed, another part.
    """
    groups: dict[str, list[str]] = {}
    for query, group in zip(queries, document_groups(folder, queries), strict=True):
        groups.setdefault(group, []).append(query.id)
    chosen: list[str] = []
    for name in sorted(groups, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest()):
        if len(chosen) >= share * len(queries):
            break
        chosen += groups[name]
    return frozenset(chosen)


def document_groups(folder: DataFolder, queries: Sequence[Query]) -> list[str]:
    """Return the name of each question's group: of its connected component, the first document's.

    Questions are connected when they share a gold passage, or gold passages of the same title.
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
        names = [folder.documents[gold].title or gold for gold in query.gold if gold in folder.documents] or [query.id]
        firsts.append(names[0])
        for name in names[1:]:
            parent[max(root(names[0]), root(name))] = min(root(names[0]), root(name))
    return [root(name) for name in firsts]

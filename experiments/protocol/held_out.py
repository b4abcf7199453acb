"""The held-out list, and a register of every look at it.

`sealed.txt` lists questions, a kind and an id a line, that nothing learns from and nothing is chosen by; no line of it
may change. Whoever gets them by `sealed_questions` calls `look` before the first is measured: it appends date, commit
and reason to `register.jsonl`, so that everyone can count how often a result was tried.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from corag.errors import DataError, InputError
from corag.optional import warn_once
from corag.text.data import DataFolder, Query
from corag.text.visible import to_json
from experiments.data.folder import read_source
from experiments.data.splits import document_groups
from experiments.run.journal import commit

HELD_OUT_FILE = Path(__file__).with_name("sealed.txt")
REGISTER = Path(__file__).with_name("register.jsonl")
WHOLE = ("medquad", "halueval_sample")
"""Data folders of which no question is learned from."""
DEMO = {"demo": "manual"}
"""The kind whose questions the demo measures: nothing that ships learns from them, but they are no secret."""


@cache
def held_out_ids(path: Path = HELD_OUT_FILE) -> Mapping[str, frozenset[str]]:
    """Return the ids of the held-out questions by kind, which is the name of a data folder."""
    ids: dict[str, set[str]] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        kind, _, name = line.partition(" ")
        if kind.startswith("#") or not line:
            continue
        if not name:
            raise DataError(f"{path}, line {number}: {line!r} is no kind and question; write them with a space")
        ids.setdefault(kind, set()).add(name)
    return {folder: frozenset(names) for folder, names in ids.items()}


def not_to_learn(folder: DataFolder) -> frozenset[str]:
    """Return the ids of the questions of a folder that nothing may learn from.

    They are the sealed ones, those about a document that a sealed one is about, and those with its words.
    """
    names, queries = _names(folder), list(folder.queries)
    if names & set(WHOLE):
        return frozenset(query.id for query in queries)
    sealed = _sealed({DEMO.get(name, name) for name in names})
    if not sealed:
        return sealed
    keys = [
        {group, " ".join(query.question.casefold().split())}
        for group, query in zip(document_groups(folder, queries), queries, strict=True)
    ]
    taken = set[str]().union(*(of for of, query in zip(keys, queries, strict=True) if query.id in sealed))
    return frozenset(query.id for of, query in zip(keys, queries, strict=True) if of & taken)


def _names(folder: DataFolder) -> set[str]:
    """Return the names that a folder has, and had where its questions come from."""
    return {folder.path.name, folder.path.resolve().name, str(read_source(folder.path).get("name"))}


def _sealed(names: Iterable[str]) -> frozenset[str]:
    return frozenset[str]().union(*(held_out_ids().get(name, frozenset()) for name in names))


def warn_of_sealed(folder: DataFolder, queries: Sequence[Query]) -> None:
    """Say how many questions are held out: who measures CORAG may want them, who changes it must not choose by them."""
    sealed = _sealed(_names(folder))
    if held := sum(query.id in sealed for query in queries):
        warn_once(
            f"{folder.path}: {held} of these {len(queries)} questions are sealed; choose nothing for CORAG by them"
        )


def sealed_questions(folder: DataFolder, why: str) -> list[Query]:
    """Return the held-out questions of a folder, for a reason.

    Raises:
        InputError: There is no reason, `why`, in a few words.
        DataError: The folder has no held-out question.
    """
    if not why.strip():
        raise InputError("why is empty; say in a few words what this look at held-out questions is for")
    sealed = _sealed(_names(folder))
    queries = [query for query in folder.queries if query.id in sealed]
    if not queries:
        raise DataError(f"{folder.path} has no held-out questions")
    return queries


def look(folder: DataFolder, why: str) -> list[Query]:
    """Return the held-out questions of a folder, and append the look to the register; see `sealed_questions`."""
    queries, name = sealed_questions(folder, why), folder.path.resolve().name
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    entry = {"date": date, "commit": commit(), "why": why.strip(), "data": name, "questions": len(queries)}
    with REGISTER.open("a", encoding="utf-8") as file:
        file.write(to_json(entry) + "\n")
        file.flush()
        os.fsync(file.fileno())
    return queries

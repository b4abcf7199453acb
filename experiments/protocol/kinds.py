"""Kinds of questions, each divided once into training, choosing and sealed questions.

Which questions are sealed stands in `sealed.txt`, so that nothing that is added later changes it. A question that
shares a document with a sealed one takes no part; the others go to training or choosing by a hash of the name of their
documents. So a new question moves no other one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Literal

from corag.errors import DataError, InputError
from corag.text.data import DataFolder, Query, passage_of
from corag.writing import cache_folder
from experiments.data.config import CandidateSettings
from experiments.data.splits import document_groups, held_out
from experiments.labels.config import LabelSource

SealedPart = Literal["training", "choosing", "sealed"]
KINDS_FILE = Path(__file__).parents[1] / "configs" / "kinds.yaml"
SEALED_FILE = Path(__file__).with_name("sealed.txt")
ANY_SPLIT = "any"
DEMO = "demo"
"""The data set that is written from Python's own reference; see `experiments.demo`."""


@dataclass(frozen=True)
class Kind(LabelSource):
    """Questions of one kind.

    Attributes:
        name: Name of the kind.
        wholly_sealed: Whether no part of it may be trained on or chosen by.
        sealed_split: Split that alone has sealed questions, where a part that ships has learned from the others.
    """

    name: str = ""
    wholly_sealed: bool = False
    sealed_split: str | None = None

    def candidates(self) -> CandidateSettings:
        """Return where its candidates come from."""
        return CandidateSettings(**{one.name: getattr(self, one.name) for one in fields(CandidateSettings)})


@dataclass(frozen=True)
class Kinds:
    """Kinds of questions, and how they are divided.

    Attributes:
        kinds: The kinds.
        choosing: Share of the documents that are not sealed whose questions are for choosing.
        sealed: Share of the questions that may be sealed that are, by documents.
        most: The most sealed questions of a kind.
        learned: Label tables whose questions an agent that ships has learned from.
        seen: Settings of comparisons, as for `corag evaluate`, whose questions have been looked at.
    """

    kinds: tuple[Kind, ...]
    choosing: float = 0.34
    sealed: float = 0.3
    most: int = 200
    learned: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [kind.name for kind in self.kinds]
        if twice := {name for name in names if not name or names.count(name) > 1}:
            raise InputError(f"kinds are called {names}; give each a name of its own (not {sorted(twice)[0]!r})")
        for name in ("choosing", "sealed"):
            if not 0 < getattr(self, name) < 1:
                raise InputError(f"{name} is a share between 0 and 1, got {getattr(self, name)}")

    def named(self, names: str | None = None) -> tuple[Kind, ...]:
        """Return the kinds of these names, separated by commas; all by default."""
        if names is None:
            return self.kinds
        by_name = {kind.name: kind for kind in self.kinds}
        wanted = [name.strip() for name in names.split(",") if name.strip()]
        if unknown := [name for name in wanted if name not in by_name] or ([] if wanted else [names]):
            raise InputError(f"kind {unknown[0]!r} is unknown; the kinds are {', '.join(by_name)}")
        return tuple(by_name[name] for name in wanted)


def read_kinds(path: Path | str = KINDS_FILE) -> Kinds:
    """Read kinds from a YAML file; what it may hold are the settings of `Kinds`."""
    from jsonargparse import ArgumentError, ArgumentParser

    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(Kinds)
    if not Path(path).is_file():
        raise DataError(f"{path} does not exist; give a YAML file with kinds")
    try:
        return Kinds(**vars(parser.instantiate(parser.parse_path(str(path)))))
    except ArgumentError as error:
        raise InputError(f"{path}: {' '.join(str(error).split())}") from error


@cache
def sealed_ids(path: Path = SEALED_FILE) -> Mapping[str, frozenset[str]]:
    """Return the ids of the sealed questions by kind; of a kind that is wholly sealed, those that are measured."""
    found: dict[str, set[str]] = {}
    if path.is_file():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            kind, _, name = line.partition(" ")
            if kind.startswith("#") or not line:
                continue
            if not name:
                raise DataError(f"{path}, line {number}: {line!r} is no kind and question; write them with a space")
            found.setdefault(kind, set()).add(name)
    return {kind: frozenset(names) for kind, names in found.items()}


def open_folder(data: str) -> DataFolder:
    """Open a data folder by path or name; that of the demo is written into the cache folder."""
    if data != DEMO:
        return DataFolder.open(data)
    from experiments.demo import write_data_folder

    path = cache_folder() / "demo-data"
    if not path.is_dir():
        write_data_folder(path)
    return DataFolder.open(path)


def groups_of(folder: DataFolder, queries: Sequence[Query]) -> list[str]:
    """Return the name of each question's group: those that share documents, or spans of them, have the same."""
    whole = [
        replace(query, gold=tuple(passage_of(name, folder.documents) or name for name in query.gold))
        for query in queries
    ]
    return document_groups(folder, whole)


def lot(name: str, purpose: str) -> float:
    """Return a pseudo-random number in [0, 1) from a hash of a name and what it is drawn for."""
    return int.from_bytes(hashlib.sha256(f"{purpose} {name}".encode()).digest()[:6], "big") / 2**48


def in_lots(queries: Iterable[Query], purpose: str = "question") -> list[Query]:
    """Return questions in the order of a hash of their ids: the first n are a sample, whatever is added."""
    return sorted(queries, key=lambda query: lot(query.id, purpose))


def offered(folder: DataFolder, kind: Kind) -> list[Query]:
    """Return the questions that a kind is made of: of its split and part, with evidence in the corpus."""
    queries = list(folder.queries) if kind.split == ANY_SPLIT else folder.split(kind.split)
    if kind.part != "all":
        held = held_out(folder, queries, kind.held_out)
        queries = [query for query in queries if (query.id in held) == (kind.part == "held-out")]
    known = folder.documents
    return [query for query in queries if query.gold and all(passage_of(name, known) for name in query.gold)]


def divide_kind(
    folder: DataFolder, kind: Kind, sealed: frozenset[str], choosing: float
) -> dict[SealedPart, list[Query]]:
    """Return the questions of each part of a kind, each in the order of a hash of their ids.

    Args:
        folder: Its data folder.
        kind: The kind.
        sealed: Ids of its sealed questions.
        choosing: Share of the groups of questions that are for choosing.
    """
    group = {query.id: name for query, name in zip(folder.queries, groups_of(folder, folder.queries), strict=True)}
    closed = {group[name] for name in sealed if name in group}
    parts: dict[SealedPart, list[Query]] = {"training": [], "choosing": [], "sealed": []}
    for query in in_lots(offered(folder, kind)):
        if query.id in sealed:
            parts["sealed"].append(query)
        elif not kind.wholly_sealed and group[query.id] not in closed:
            part: SealedPart = "choosing" if lot(group[query.id], kind.name) < choosing else "training"
            parts[part].append(query)
    return parts


def is_sealed(query: Query, kinds: Iterable[Kind], ids: Mapping[str, frozenset[str]], folder: DataFolder) -> bool:
    """Return whether a question of a folder is sealed, as a question of one of the kinds that are made of it."""
    names = {folder.path.name, folder.path.resolve().name}
    return any(
        query.id in ids.get(kind.name, ()) or (kind.wholly_sealed and Path(kind.data).name in names) for kind in kinds
    )

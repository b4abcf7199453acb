"""Which questions are sealed, drawn once: those of new kinds are added to the list, and no line of it ever changes.

`python -m experiments.protocol.draw` draws for the kinds that have none.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from corag.cli.console import say
from corag.text.data import DataFolder, Query
from experiments.adapters.evidence import pools as evidence
from experiments.adapters.evidence.config import EvidenceSource
from experiments.data.splits import divide
from experiments.labels.table import read_questions
from experiments.protocol.alone import run_alone
from experiments.protocol.kinds import (
    KINDS_FILE,
    SEALED_FILE,
    Kind,
    Kinds,
    groups_of,
    in_lots,
    lot,
    offered,
    open_folder,
    read_kinds,
    sealed_ids,
)
from experiments.run.journal import write_atomically

AGENT_SHARES = (0.6, 0.1, 0.3)
"""How `corag train` divides a label table: what an agent learns from, what it is chosen by, and its test."""

HEADER = """\
# Sealed questions: kind and id, one a line. Only `python -m experiments.protocol.sealed` measures them; each look is a
# line of register.jsonl. No line may be changed or removed. New kinds: `python -m experiments.protocol.draw`.
"""


def draw(kinds: Kinds, path: Path = SEALED_FILE, root: Path = Path()) -> dict[str, int]:
    """Draw sealed questions of the kinds that have none yet; return how many each kind has.

    Args:
        kinds: The kinds.
        path: The list.
        root: Folder that the files which the kinds name are in.
    """
    known = {kind: list(ids) for kind, ids in sealed_ids(path).items()}
    texts = _texts(kinds)
    for kind in kinds.kinds:
        if kind.name not in known:
            folder = open_folder(kind.data)
            known[kind.name] = [
                query.id for query in drawn_of(folder, kind, kinds, texts, _looked_at(kind, kinds, root))
            ]
    lines = [f"{kind.name} {name}\n" for kind in kinds.kinds for name in known[kind.name]]
    written = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.is_file() else [HEADER]
    write_atomically(path, "".join([*written, *(line for line in lines if line not in set(written))]))
    sealed_ids.cache_clear()
    return {kind.name: len(known[kind.name]) for kind in kinds.kinds}


def drawn_of(
    folder: DataFolder, kind: Kind, kinds: Kinds, texts: Mapping[str, int], taken: tuple[frozenset[str], frozenset[str]]
) -> list[Query]:
    """Return the questions of a kind to be sealed, in the order of a hash of their ids.

    Whole groups are taken, in the order of a hash of their names, until the share of those that may be sealed is
    reached. `taken` are the questions that a part that ships has learned from, which close their group, and those that
    have been looked at, which only step aside. `texts` counts in how many kinds a question stands.
    """
    learned, seen = taken
    queries = offered(folder, kind)
    groups = groups_of(folder, folder.queries)
    group = {query.id: name for query, name in zip(folder.queries, groups, strict=True)}
    closed = {group[name] for name in learned if name in group}
    free = [
        query
        for query in queries
        if group[query.id] not in closed
        and texts.get(_plain(query.question), 0) < 2
        and kind.sealed_split in (None, query.split)
    ]
    # Where all have been looked at, these are better than none.
    free = [query for query in free if query.id not in seen] or free
    if kind.wholly_sealed:
        return in_lots(free)[: kinds.most]
    # Where a part that ships has learned from the other groups, what is left is its test, and all of it is sealed.
    share = 1.0 if closed and len(free) < kinds.most else kinds.sealed
    sizes = Counter(group[query.id] for query in free)
    wanted, chosen = share * len(free), set[str]()
    for name in sorted(sizes, key=lambda name: lot(name, "sealed")):
        if sum(sizes[one] for one in chosen) >= wanted:
            break
        chosen.add(name)
    return in_lots(query for query in free if group[query.id] in chosen)[: kinds.most]


def _looked_at(kind: Kind, kinds: Kinds, root: Path) -> tuple[frozenset[str], frozenset[str]]:
    """Return the ids of a kind's questions that an agent has learned from, and of those that have been looked at."""
    learned: set[str] = set()
    for table in kinds.learned:
        rows, _ = read_questions(root / table)
        data, group = [row["data"] for row in rows], [row["group"] for row in rows]
        parts = divide(data, group, AGENT_SHARES)
        ours = np.array([name == kind.data for name in data])
        learned |= {rows[row]["query"] for row in np.flatnonzero(ours & (parts < len(AGENT_SHARES) - 1))}
    seen: set[str] = set()
    for config in kinds.seen:
        sources = [source for source in _sources(root / config) if source.data == kind.data]
        seen |= {query.id for one in sources for query in evidence.questions_of(open_folder(kind.data), one)}
    return frozenset(learned), frozenset(seen)


def _sources(path: Path) -> Sequence[EvidenceSource]:
    from jsonargparse import ArgumentParser

    from experiments.evaluation.config import EvaluateConfig

    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(EvaluateConfig)
    return EvaluateConfig(**vars(parser.instantiate(parser.parse_path(str(path))))).sources


def _texts(kinds: Kinds) -> Counter[str]:
    """Return in how many data sets each question stands, word by word."""
    folders: Iterable[str] = dict.fromkeys(kind.data for kind in kinds.kinds)
    found: Counter[str] = Counter()
    for data in folders:
        found.update({_plain(query.question) for query in open_folder(data).queries})
    return found


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


@dataclass(frozen=True)
class DrawConfig:
    """Draw sealed questions of the kinds that have none yet.

    Attributes:
        kinds: YAML file with the kinds.
    """

    kinds: str = str(KINDS_FILE)


def _draw(config: DrawConfig) -> None:
    found = draw(read_kinds(config.kinds))
    for name, number in found.items():
        say(f"{name:20} {number:5}")
    say(f"{sum(found.values())} sealed questions in {SEALED_FILE}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; return the exit status."""
    return run_alone(DrawConfig, _draw, arguments)


if __name__ == "__main__":
    sys.exit(main())

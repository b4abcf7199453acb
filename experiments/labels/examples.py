"""Which questions are labelled, and with which candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from corag.errors import DataError, InputError
from corag.text.chunking import ChunkConfig
from corag.text.data import DataFolder, Query, passage_of
from corag.types import Embedder
from experiments.data.config import left_open
from experiments.data.pools import Pool, open_pool, pool_name
from experiments.data.splits import document_groups, hash_fraction, held_out, questions_of
from experiments.labels.config import LabelConfig, LabelSource, listed
from experiments.protocol.held_out import not_to_learn


@dataclass(frozen=True)
class SourceQuestions:
    """The questions of a source, and where their candidates come from.

    Attributes:
        settings: Of the source; its pool is never `auto`.
        groups: Of each question, by id, the name of its group, which begins with the data: questions of one group share
            gold documents, directly or by others of the group.
        config: Of the labelling.
    """

    settings: LabelSource
    folder: DataFolder
    queries: tuple[Query, ...]
    groups: Mapping[str, str]
    config: LabelConfig

    def key(self, query: Query) -> str:
        """Return the name of a question among those of all sources."""
        return f"{self.settings.data}/{query.id}"

    def about(self, query: Query) -> dict[str, str]:
        """Return what rows say of a question."""
        names = {"data": self.settings.data, "kind": self.settings.kind, "group": self.groups[query.id]}
        return {**names, "query": query.id, "split": query.split, "question": query.question}

    def shard(self, number: int, count: int) -> SourceQuestions:
        """Return the questions of a shard, from 1: neighbours, which often share passages."""
        start, end = (-(-len(self.queries) * part // count) for part in (number - 1, number))
        return replace(self, queries=self.queries[start:end])

    def open_pool(self, queries: Sequence[Query], embedder: Embedder, *, quiet: bool = True) -> Pool:
        """Return the pool of some questions."""
        return open_pool(
            self.folder,
            queries,
            embedder,
            self.settings,
            index=self.config.index,
            documents_limit=self.settings.num_candidates,
            chunking=ChunkConfig(self.config.max_tokens),
            quiet=quiet,
        )


def read_sources(config: LabelConfig) -> list[SourceQuestions]:
    """Read the data folders and choose the questions; one that comes from two sources is an `InputError`."""
    given, paths = config.sources, [Path(config.data) / source.data for source in config.sources]
    if not given:
        name = Path(config.data).resolve().name
        given = tuple(LabelSource(name, split) for split in listed("splits", config.splits, str))
        paths = [Path(config.data)] * len(given)
    settings = [replace(source, **left_open(source, config)) for source in given]
    folders = {path: DataFolder.open(path) for path in dict.fromkeys(paths)}
    chosen = [_chosen(folders[path], source) for path, source in zip(paths, settings, strict=True)]
    sources: dict[int, SourceQuestions] = {}
    for path, folder in folders.items():
        rows = [row for row, its_path in enumerate(paths) if its_path == path]
        queries = [query for row in rows for query in chosen[row]]
        if len({query.id for query in queries}) < len(queries):
            raise InputError(f"two sources have the same questions of {path}; leave them out of one")
        groups = iter(document_groups(folder, queries))
        for row in rows:
            source, asked = settings[row], tuple(chosen[row])
            if source.run is None:  # so that all shards have the same
                pool: Any = pool_name(source, asked, config.index)
                source = replace(source, pool=pool)
            own = {query.id: f"{source.data}/{next(groups)}" for query in asked}
            sources[row] = SourceQuestions(source, folder, asked, own, config)
    return [sources[row] for row in range(len(settings))]


def _chosen(folder: DataFolder, source: LabelSource) -> Sequence[Query]:
    sealed, queries = not_to_learn(folder), questions_of(folder, source.split)
    if source.part == "held-out":  # of all questions of the split, as for a comparison and for the training of a value
        kept = held_out(folder, queries)
        queries = [query for query in queries if query.id in kept]
    queries = [query for query in queries if (query.answers or query.evidence) and query.id not in sealed]
    if source.with_gold:
        known = folder.documents
        queries = [query for query in queries if query.evidence and all(passage_of(name, known) for name in query.gold)]
    queries = queries[: source.limit]
    sampled = set(
        sorted((query.id for query in queries), key=lambda name: hash_fraction(name, "label"))[: source.sample]
    )
    queries = [query.after(source.history) for query in queries if query.id in sampled]
    if not queries:
        raise DataError(
            f"{folder.path} has no question of split {source.split!r} with answers or gold that may be learned from; "
            "choose another split, or add answers or gold to queries.jsonl"
        )
    return queries

"""Which questions are labelled, and with which candidates."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from corag.errors import DataError, InputError
from corag.text.chunking import ChunkConfig
from corag.text.data import DataFolder, Query, passage_of
from corag.types import Embedder
from experiments.data.config import PoolName, candidate_settings
from experiments.data.pools import Pool, check_pool, content_hash, open_pool, resolve
from experiments.data.splits import HELD_OUT, document_groups, held_out, questions_of
from experiments.labels.config import LabelConfig, LabelSource, listed
from experiments.protocol.held_out import is_held_out
from experiments.run.journal import fingerprint


@dataclass(frozen=True, slots=True)
class Example:
    """A question to label.

    Attributes:
        data: Name of its data folder.
        kind: That of its source.
        group: Questions of one group share gold documents, directly or by others of the group; it begins with the data.
        source: Position of the source that the question comes from.
    """

    data: str
    kind: str
    query: Query
    group: str
    source: int

    @property
    def key(self) -> str:
        """Name of the question among those of all sources."""
        return f"{self.data}/{self.query.id}"


@dataclass(frozen=True)
class Examples:
    """All questions of a labelling, in the order of the table, with the data folder of each source."""

    examples: tuple[Example, ...]
    config: LabelConfig
    sources: tuple[LabelSource, ...]
    folders: tuple[DataFolder, ...]

    @property
    def content(self) -> str:
        """Hash of what labels are made from: the questions, their corpora, and the index if one is given."""
        return fingerprint(
            [
                content_hash(folder, self.queries(row), self.config.index, self.sources[row].run)
                for row, folder in enumerate(self.folders)
            ]
        )

    def of_source(self, source: int) -> list[Example]:
        """Return the examples of a source."""
        return [example for example in self.examples if example.source == source]

    def queries(self, source: int) -> list[Query]:
        """Return the questions of a source."""
        return [example.query for example in self.of_source(source)]

    def of_shard(self, number: int, count: int) -> list[Example]:
        """Return the examples of a shard: of each source a run of neighbours, which often share passages."""
        sources = [self.of_source(source) for source in range(len(self.sources))]
        return [
            example
            for examples in sources
            for position, example in enumerate(examples)
            if position * count // len(examples) == number - 1
        ]

    def pool_name(self, source: int) -> PoolName:
        """Return what a source's pool is, whichever of its questions are asked for."""
        settings = self.sources[source]
        return "corpus" if settings.run is not None else resolve(settings.pool, self.queries(source), self.config.index)

    def check_pools(self) -> None:
        """Check that every question has a pool; see `check_pool`, and `Pool.of_run` for that of a run."""
        for source, folder in enumerate(self.folders):
            settings, queries = self.sources[source], self.queries(source)
            check_pool(self.pool_name(source), folder, queries)
            if settings.run is not None:
                Pool.of_run(settings.run, folder, queries, settings.num_candidates)

    def open_pool(self, source: int, queries: Sequence[Query], embedder: Embedder, *, quiet: bool = True) -> Pool:
        """Return the pool of questions of a source; of a few questions all lists may be empty."""
        settings = replace(self.sources[source], pool=self.pool_name(source))
        return open_pool(
            self.folders[source],
            queries,
            embedder,
            settings,
            index=self.config.index,
            documents_limit=settings.num_candidates,
            chunking=ChunkConfig(settings.max_tokens or self.config.max_tokens),
            check=False,
            quiet=quiet,
        )


def read_examples(config: LabelConfig) -> Examples:
    """Read the data folders and choose the questions."""
    sources, paths = config.sources, [Path(config.data) / source.data for source in config.sources]
    if not sources:
        settings = candidate_settings(config)
        splits = listed("splits", config.splits, str)
        sources = tuple(LabelSource(Path(config.data).resolve().name, split, **settings) for split in splits)
        paths = [Path(config.data)] * len(sources)
    opened = {path: DataFolder.open(path) for path in dict.fromkeys(paths)}
    folders = tuple(opened[path] for path in paths)
    chosen = [_chosen(folder, source) for folder, source in zip(folders, sources, strict=True)]
    examples: dict[str, Example] = {}
    for path, folder in opened.items():
        rows = [(row, query) for row, its_path in enumerate(paths) if its_path == path for query in chosen[row]]
        groups = document_groups(folder, [query for _, query in rows])
        for (row, query), group in zip(rows, groups, strict=True):
            data = sources[row].data
            example = Example(data, sources[row].kind, query, f"{data}/{group}", row)
            if example.key in examples:
                raise InputError(f"question {query.id!r} of {data} comes from two sources; leave it out of one")
            examples[example.key] = example
    ordered = sorted(examples.values(), key=lambda example: example.source)
    return Examples(tuple(ordered), config, sources, folders)


def _chosen(folder: DataFolder, source: LabelSource) -> Sequence[Query]:
    queries = [
        query
        for query in questions_of(folder, source.split)
        if (query.answers or query.gold) and not is_held_out(folder, query)
    ]
    if source.part == "held-out":
        kept = held_out(folder, queries, HELD_OUT)
        queries = [query for query in queries if query.id in kept]
    if source.with_gold:
        known = folder.documents
        queries = [query for query in queries if query.gold and all(passage_of(name, known) for name in query.gold)]
    queries = queries[: source.limit]
    lots = {query.id: hashlib.sha256(f"label {query.id}".encode()).digest() for query in queries}
    drawn = set(sorted(lots, key=lots.__getitem__)[: source.sample])
    queries = [query for query in queries if query.id in drawn]
    if not queries:
        raise DataError(
            f"{folder.path} has no question of split {source.split!r} with answers or gold that may be learned from; "
            "choose another split, or add answers or gold to queries.jsonl"
        )
    return queries

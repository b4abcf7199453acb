"""A tree over the corpus of an index, kept in the index's folder and bound to its content.

`tree.json` and `vectors.npy` are the tree, `summaries.sqlite` holds every summary from the moment that it is written:
a build that is killed goes on, and a tree over a changed corpus asks only for summaries of what changed around it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from corag.errors import DataError, IndexMismatchError, InputError
from corag.index.search import ChunkIndex
from corag.index.store import index_lock
from corag.models.cached import CachedEmbedder
from corag.selectors.raptor.build import RaptorBuilder, RaptorConfig
from corag.selectors.raptor.place import tree_file, tree_folder
from corag.selectors.raptor.tree import RaptorTree
from corag.summarizers.runs import summary_store
from corag.types import Embedder, Summarizer

_SUMMARIES = "summaries.sqlite"
_REMEDY = "run `corag index` with --tree again, which keeps the summaries that still hold"


def update_tree(
    index: ChunkIndex,
    embedder: Embedder,
    summarizer: Summarizer,
    config: RaptorConfig | None = None,
    *,
    report: Callable[[int, int], None] | None = None,
) -> tuple[RaptorTree, bool]:
    """Build the tree over an index, bring it up to date, or go on where an earlier call stopped.

    Args:
        index: The index; its vectors are those of the leaves.
        embedder: The index's embedder, for the summaries.
        summarizer: Writes the summaries.
        config: How the tree is grown.
        report: Called with (summaries written, summaries known to be needed).

    Returns:
        The tree, and whether it was built now; one of the same content and settings without failed summaries stands.

    Raises:
        InputError: The index lies on object storage.
        IndexMismatchError: The embedder is not the index's, or the index was changed meanwhile.
        SummarizerError: All of many summaries failed; those written before are kept.
        DataError: The folder cannot be written.
    """
    folder = tree_folder(index.uri)
    if folder is None:
        raise InputError(f"the index at {index.uri} is on object storage; a tree needs an index in a local folder")
    index.manifest.require_embedder(embedder.name, embedder.dimension, index.uri)
    settings = config or RaptorConfig()
    record = {**_made_of(index), "summarizer": summarizer.identity, "config": asdict(settings)}
    with index_lock(index.uri):
        _check_current(index)
        if (found := _whole(folder)) is not None and found.record == record and not found.num_failed:
            return found, False
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"{folder} cannot be made: {error}; check permissions and free space") from error
        store = summary_store(folder / _SUMMARIES)
        builder = RaptorBuilder(CachedEmbedder(embedder), summarizer, settings, store, report=report, strict=True)
        tree = replace(builder.build(list(index.chunks()), index.vectors()), record=record)
        tree.save(folder)
    return tree, True


def load_tree(place: str | Path) -> RaptorTree:
    """Return the tree of an index, given by the index's folder, or a tree of its own folder.

    Raises:
        DataError: There is no whole tree.
        IndexMismatchError: The index has changed since its tree was built.
    """
    if (file := tree_file(place)) is None:
        return RaptorTree.load(place)
    tree = RaptorTree.load(file.parent)
    if not is_of(tree, ChunkIndex.open(place)):
        raise IndexMismatchError(f"the index at {place} has changed since its tree was built; {_REMEDY}")
    return tree


def is_of(tree: RaptorTree, index: ChunkIndex) -> bool:
    """Return whether a tree was built over the present content of an index."""
    return all(tree.record.get(name) == value for name, value in _made_of(index).items())


def is_current(index: ChunkIndex) -> bool:
    """Return whether the tree beside an index is one of its present content; so is none at all."""
    file = tree_file(index.uri)
    tree = None if file is None else _whole(file.parent)
    return file is None or (tree is not None and is_of(tree, index))


def _made_of(index: ChunkIndex) -> Mapping[str, Any]:
    """Return what a tree must share with an index."""
    manifest = index.manifest
    return {"index": manifest.fingerprint, "chunks": manifest.num_chunks, "embedder": manifest.embedder_name}


def _check_current(index: ChunkIndex) -> None:
    if ChunkIndex.open(index.uri).manifest != index.manifest:
        raise IndexMismatchError(f"the index at {index.uri} was changed meanwhile; {_REMEDY}")


def _whole(folder: Path) -> RaptorTree | None:
    try:
        return RaptorTree.load(folder)
    except (DataError, IndexMismatchError):
        return None

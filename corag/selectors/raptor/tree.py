"""The tree: nodes with vectors, kept in one file of NumPy; where the tree of an index is."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from common.storage import write_atomically
from corag.errors import DataError, IndexMismatchError
from corag.index.search import ChunkIndex
from corag.index.store import local_folder, require_inside
from corag.registry import SELECTORS
from corag.text.visible import to_json
from corag.types import Chunk, FloatArray

FOLDER = "raptor"
"""The tree's folder in that of its index."""
TREE_FILE = "tree.npz"
"""The tree's file: `vectors`, and `tree`, the rest as JSON."""


def tree_file(uri: str | Path) -> Path | None:
    """Return the file of the tree beside an index, of its present content or of an earlier one; None without one.

    A tree that is a link out of the index's folder is a `DataError`.
    """
    folder = local_folder(uri)
    if folder is None or not (file := folder / FOLDER / TREE_FILE).is_file():
        return None
    require_inside(folder, [FOLDER])
    return file


def tree_setting(selector: object, index: object) -> dict[str, Any]:
    """Return the settings by which a selector given by name uses the tree of an index; empty if it has none.

    Args:
        selector: Name with settings; an object, or a tree of its own, is left as it is.
        index: The index, or its address; anything else has no tree.
    """
    if not isinstance(selector, str) or "tree" not in SELECTORS.parameters(selector):
        return {}
    uri = index.uri if isinstance(index, ChunkIndex) else index
    return {"tree": str(uri)} if isinstance(uri, str | Path) and tree_file(uri) is not None else {}


VERSION = 2

SUMMARY = "summary/"
"""What ids of summaries begin with, and ids of chunks do not."""


@dataclass(frozen=True, slots=True)
class Node:
    """A chunk or a summary.

    Attributes:
        id: The chunk's id; of a summary `summary/layer/number`.
        text: The chunk's text, or the summary.
        layer: 0 for chunks, and one more than its children's for a summary.
        children: Ids of the nodes that it sums up; empty for chunks.
        sources: Ids of the chunks below it; a chunk's own.
        metadata: Of the chunk; empty for a summary.
    """

    id: str
    text: str
    layer: int
    children: tuple[str, ...]
    sources: tuple[str, ...]
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def as_chunk(self) -> Chunk:
        """Return the node as a chunk; a summary names what it summarizes."""
        metadata = {"layer": self.layer, "children": list(self.children)} if self.layer else self.metadata
        return Chunk(self.id, self.text, metadata)


@dataclass(frozen=True, eq=False)
class RaptorTree:
    """Nodes, layer by layer from the chunks up, and a unit vector for each.

    Attributes:
        nodes: All nodes.
        vectors: `[len(nodes), D]`.
        embedder: Name of the embedder that made the vectors.
        num_failed: Summaries that failed since the tree was begun; a node then has the beginning of its children's
            texts instead.
        record: What the tree was made of, JSON values; see `corag.selectors.raptor.build`.
    """

    nodes: tuple[Node, ...]
    vectors: FloatArray
    embedder: str
    num_failed: int = 0
    record: Mapping[str, Any] = field(default_factory=dict)

    @property
    def num_layers(self) -> int:
        """Number of layers, with that of the chunks."""
        return max((node.layer for node in self.nodes), default=-1) + 1

    def layer(self, number: int) -> list[Node]:
        """Return the nodes of a layer."""
        return [node for node in self.nodes if node.layer == number]

    def save(self, folder: str | Path) -> None:
        """Write the tree into a folder; `DataError` if it cannot be written."""
        content = {
            "version": VERSION,
            "embedder": self.embedder,
            "num_failed": self.num_failed,
            "record": dict(self.record),
            "nodes": [asdict(node) for node in self.nodes],
        }
        file = io.BytesIO()
        np.savez(file, vectors=self.vectors, tree=np.frombuffer(to_json(content).encode(), dtype=np.uint8))
        write_atomically(Path(folder) / TREE_FILE, file.getvalue())

    @classmethod
    def load(cls, folder: str | Path) -> RaptorTree:
        """Read a tree from its folder.

        Raises:
            DataError: The folder holds no whole tree, or links out of it.
            IndexMismatchError: The tree is of another version.
        """
        source = Path(folder)
        require_inside(source, ["."])
        try:
            with np.load(source / TREE_FILE, allow_pickle=False) as file:
                vectors, content = file["vectors"], json.loads(file["tree"].tobytes())
            if content["version"] != VERSION:
                raise IndexMismatchError(f"the tree in {source} is of version {content['version']!r}; build it anew")
            nodes = tuple(
                Node(**{**row, "children": tuple(row["children"]), "sources": tuple(row["sources"])})
                for row in content["nodes"]
            )
            if vectors.ndim != 2 or len(vectors) != len(nodes):
                raise ValueError(f"{len(nodes)} nodes have vectors of the shape {vectors.shape}")
            return cls(nodes, vectors, content["embedder"], content["num_failed"], content["record"])
        except (OSError, EOFError, BadZipFile, ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(f"{source} holds no whole tree: {error}; build it anew") from error

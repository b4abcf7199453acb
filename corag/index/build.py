"""From a data folder's corpus to an index."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from corag.errors import IndexMismatchError
from corag.index.search import ChunkIndex
from corag.index.write import StoredChunks
from corag.text.chunking import ChunkConfig, chunk_documents
from corag.text.data import read_corpus
from corag.text.tokens import token_counter
from corag.types import Embedder, TokenCounter


def build_index(
    folder: str | Path,
    uri: str | Path,
    embedder: Embedder,
    chunking: ChunkConfig,
    *,
    tokens: TokenCounter | None = None,
    overwrite: bool = False,
    batch_size: int = 256,
    report: Callable[[int, int], None] | None = None,
) -> ChunkIndex:
    """Cut the corpus of a data folder into chunks and index them; goes on where an earlier build stopped.

    Args:
        folder: Data folder.
        uri: Where to put the index; see `ChunkIndex.build`, as for the settings below.
        embedder: Embeds the chunks.
        chunking: Sizes.
        tokens: Counts tokens as the answering model does.
        overwrite: Replace an index of something else that is there; the same index is kept and completed.
        batch_size: Chunks embedded and stored at a time.
        report: Called with (chunks stored, chunks in all).

    Raises:
        IndexMismatchError: Another index is there and `overwrite` is False.
    """
    counter = tokens or token_counter()
    documents = read_corpus(folder)
    chunks = StoredChunks(chunk_documents(documents.values(), counter, chunking))
    settings = {
        "max_tokens": chunking.max_tokens,
        "overlap_tokens": chunking.overlap_tokens,
        "tokenizer": counter.name,
        "documents": len(documents),
    }
    build = partial(ChunkIndex.build, uri, chunks, embedder, settings=settings, batch_size=batch_size, progress=report)
    try:
        return build()
    except IndexMismatchError:
        if not overwrite:
            raise
        return build(overwrite=True)

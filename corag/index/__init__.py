"""The vector index: chunks with their embeddings on disk, in LanceDB."""

from corag.index.lance import ChunkIndex as ChunkIndex

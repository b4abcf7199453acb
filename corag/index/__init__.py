"""The index of a corpus: chunks, their embeddings and a full-text index, in LanceDB."""

from corag.index.build import IndexUpdate as IndexUpdate
from corag.index.build import update_index as update_index
from corag.index.search import ChunkIndex as ChunkIndex
from corag.index.search import Retrieval as Retrieval
from corag.index.where import Where as Where

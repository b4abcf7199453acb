"""The index of a corpus: chunks, their embeddings and a full-text index, in LanceDB."""

import typing

from corag import optional
from corag.index.search import ChunkIndex as ChunkIndex
from corag.index.search import Retrieval as Retrieval
from corag.index.where import Where as Where

if typing.TYPE_CHECKING:
    from corag.index.build import IndexUpdate as IndexUpdate
    from corag.index.build import update_index as update_index

# Readers of documents take longer to import than an index takes to open.
__getattr__, __dir__ = optional.lazy_exports(
    __name__, {"IndexUpdate": "corag.index.build", "update_index": "corag.index.build"}
)

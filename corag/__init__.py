"""CORAG: which chunks go into the prompt, how many, and in which order, under a token budget.

    import corag

    candidates = [corag.Candidate(corag.Chunk("a", "Berlin is the capital of Germany."), 0.8), ...]
    selection = corag.selector("corag").select("What is Germany's capital?", candidates, budget_tokens=256)
    print(selection.text)

Importing this package loads neither torch nor any model; what is heavy loads when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from corag.errors import CoragError
from corag.registry import (
    EMBEDDERS,
    READERS,
    RERANKERS,
    SELECTORS,
    SUMMARIZERS,
    embedder,
    reader,
    reranker,
    selector,
    summarizer,
)
from corag.types import Answer, Candidate, Chunk, Selection

if TYPE_CHECKING:
    from corag.index import ChunkIndex as ChunkIndex
    from corag.text.chunking import ChunkConfig as ChunkConfig
    from corag.text.chunking import chunk_document as chunk_document
    from corag.text.documents import Document as Document
    from corag.text.tokens import token_counter as token_counter

__version__ = "0.1.0"

__all__ = [
    "EMBEDDERS",
    "READERS",
    "RERANKERS",
    "SELECTORS",
    "SUMMARIZERS",
    "Answer",
    "Candidate",
    "Chunk",
    "ChunkConfig",
    "ChunkIndex",
    "CoragError",
    "Document",
    "Selection",
    "chunk_document",
    "embedder",
    "reader",
    "reranker",
    "selector",
    "summarizer",
    "token_counter",
]

_LAZY = {
    "ChunkConfig": "corag.text.chunking",
    "ChunkIndex": "corag.index",
    "Document": "corag.text.documents",
    "chunk_document": "corag.text.chunking",
    "token_counter": "corag.text.tokens",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

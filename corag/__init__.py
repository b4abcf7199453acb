"""CORAG: which chunks go into the prompt, how many, and in which order, under a token budget.

    import corag

    selection = corag.select("What is Germany's capital?", ["Berlin is the capital of Germany.", ...], 256)
    print(selection.text)

    reply = corag.ask("What is Germany's capital?", "runs/index", budget_tokens=256)
    print(reply.answer.text)

`selector`, `reranker`, `reader`, `embedder` and `summarizer` build parts by name. The classes behind the names, whose
keyword arguments are the settings, stand in `corag.selectors`, `corag.rerankers`, `corag.readers` and
`corag.summarizers`. A part of your own has the methods of its protocol, such as `Reranker`.

Importing this package loads neither torch nor any model; what is heavy loads when it is first used.
"""

from typing import TYPE_CHECKING

from corag.errors import CoragError
from corag.optional import lazily
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
from corag.types import (
    Answer,
    BatchReader,
    Candidate,
    Chunk,
    Embedder,
    IdentifiedReranker,
    LimitedReranker,
    PolicyReranker,
    Reader,
    Reranker,
    ScoreOrders,
    Scorer,
    Selection,
    Selector,
    Summarizer,
    SummaryRequest,
    TokenCounter,
    Trace,
)

if TYPE_CHECKING:
    from corag import errors as errors
    from corag import readers as readers
    from corag import rerankers as rerankers
    from corag import selectors as selectors
    from corag import summarizers as summarizers
    from corag import testing as testing
    from corag.candidates import select as select
    from corag.index import ChunkIndex as ChunkIndex
    from corag.reply import Reply as Reply
    from corag.reply import ask as ask
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
    "BatchReader",
    "Candidate",
    "Chunk",
    "ChunkConfig",
    "ChunkIndex",
    "CoragError",
    "Document",
    "Embedder",
    "IdentifiedReranker",
    "LimitedReranker",
    "PolicyReranker",
    "Reader",
    "Reply",
    "Reranker",
    "ScoreOrders",
    "Scorer",
    "Selection",
    "Selector",
    "Summarizer",
    "SummaryRequest",
    "TokenCounter",
    "Trace",
    "ask",
    "chunk_document",
    "embedder",
    "errors",
    "reader",
    "readers",
    "reranker",
    "rerankers",
    "select",
    "selector",
    "selectors",
    "summarizer",
    "summarizers",
    "testing",
    "token_counter",
]

__getattr__, __dir__ = lazily(
    __name__,
    dict.fromkeys(__all__, __name__)
    | {
        "ChunkConfig": "corag.text.chunking",
        "ChunkIndex": "corag.index",
        "Document": "corag.text.documents",
        "Reply": "corag.reply",
        "ask": "corag.reply",
        "chunk_document": "corag.text.chunking",
        "select": "corag.candidates",
        "token_counter": "corag.text.tokens",
    },
)

"""CORAG: which chunks go into the prompt, how many, and in which order, under a token budget.

    import corag

    selection = corag.select("What is Germany's capital?", ["Berlin is the capital of Germany.", ...], 256)
    print(selection.text)

    reply = corag.ask("What is Germany's capital?", "runs/index", budget_tokens=256)
    print(reply.answer.text)

`selector`, `reranker`, `reader`, `embedder`, `summarizer` and `tokens` build parts by name. The classes behind the
names, whose keyword arguments are the settings, are in `corag.selectors` and `corag.rerankers`. A part of your own has
the methods of its protocol, such as `Reranker`. Models run on a GPU if there is one, unless
`with corag.runtime(device="cpu"):` sets another device.

Importing this package loads neither torch nor any model.
"""

import typing

from corag import errors as errors
from corag import optional
from corag.errors import CoragError as CoragError
from corag.models.runtime import runtime as runtime
from corag.registry import EMBEDDERS as EMBEDDERS
from corag.registry import READERS as READERS
from corag.registry import RERANKERS as RERANKERS
from corag.registry import SELECTORS as SELECTORS
from corag.registry import SUMMARIZERS as SUMMARIZERS
from corag.registry import TOKENIZERS as TOKENIZERS
from corag.registry import embedder as embedder
from corag.registry import reader as reader
from corag.registry import reranker as reranker
from corag.registry import selector as selector
from corag.registry import summarizer as summarizer
from corag.registry import tokens as tokens
from corag.selecting import select as select
from corag.text.chunking import ChunkConfig as ChunkConfig
from corag.text.chunking import chunk_document as chunk_document
from corag.text.documents import Document as Document
from corag.types import Answer as Answer
from corag.types import BatchReader as BatchReader
from corag.types import Candidate as Candidate
from corag.types import Chunk as Chunk
from corag.types import Embedder as Embedder
from corag.types import PromptedReader as PromptedReader
from corag.types import Reader as Reader
from corag.types import Reranker as Reranker
from corag.types import Scorer as Scorer
from corag.types import Selection as Selection
from corag.types import Selector as Selector
from corag.types import Summarizer as Summarizer
from corag.types import SummaryRequest as SummaryRequest
from corag.types import TokenCounter as TokenCounter
from corag.types import Trace as Trace

if typing.TYPE_CHECKING:
    from corag import rerankers as rerankers
    from corag import selectors as selectors
    from corag.index import ChunkIndex as ChunkIndex
    from corag.reply import Reply as Reply
    from corag.reply import aask as aask
    from corag.reply import ask as ask

__version__ = "0.1.0"

__getattr__, __dir__ = optional.lazy_exports(
    __name__,
    dict.fromkeys(("errors", "rerankers", "selectors"), __name__)
    | {"ChunkIndex": "corag.index"}
    | dict.fromkeys(("Reply", "aask", "ask"), "corag.reply"),
)

"""Rerankers: what a text, or an ordered combination of chunks, is worth for a query, in [0, 1].

Each class is what `corag.reranker` builds by name; its keyword arguments are the settings.
"""

import typing

from corag import optional, registry

if typing.TYPE_CHECKING:
    from corag.rerankers.bm25 import Bm25 as Bm25
    from corag.rerankers.cosine import Cosine as Cosine
    from corag.rerankers.cosine import E5Cosine as E5Cosine
    from corag.rerankers.cosine import MiniLMCosine as MiniLMCosine
    from corag.rerankers.cross_encoder import CrossEncoder as CrossEncoder
    from corag.rerankers.evidence.reranker import EvidenceReranker as EvidenceReranker
    from corag.rerankers.late import E5Late as E5Late
    from corag.rerankers.late import Late as Late
    from corag.rerankers.late import MiniLMLate as MiniLMLate
    from corag.rerankers.late import MiniLMSoftSim as MiniLMSoftSim
    from corag.rerankers.llm import LanguageModel as LanguageModel
    from corag.rerankers.scorers import JoinedTextScorer as JoinedTextScorer
    from corag.rerankers.window import WindowedReranker as WindowedReranker
    from corag.rerankers.window import WindowPolicy as WindowPolicy

__getattr__, __dir__ = optional.lazy_exports(
    __name__,
    {"JoinedTextScorer": "corag.rerankers.scorers"}
    | dict.fromkeys(("WindowPolicy", "WindowedReranker"), "corag.rerankers.window")
    | registry.RERANKERS.import_paths,
)

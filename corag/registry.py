"""Parts by name: short, visible tables whose modules are imported only when a part is asked for.

To add a part, write one file with a class that behaves like the protocol in `corag.types` and add one line
here, or call `register` from your own code, or pass the object itself wherever a name is accepted.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from corag.errors import InputError
from corag.models.known import KNOWN_RERANKERS
from corag.optional import load
from corag.types import Embedder, Reader, Reranker, Selector, Summarizer

Part = TypeVar("Part")


class Registry(Generic[Part]):
    """Names and what builds them: `module:attribute`, or any callable that takes keyword settings."""

    def __init__(self, kind: str, parts: dict[str, str | Callable[..., Part]]) -> None:
        self.kind = kind
        self._parts = parts

    @property
    def names(self) -> tuple[str, ...]:
        """All names, in order of registration."""
        return tuple(self._parts)

    @property
    def places(self) -> dict[str, str]:
        """Classes and functions that build the parts of this project -> the module that has them."""
        paths = (part.split(":") for part in self._parts.values() if isinstance(part, str))
        return {attribute: module for module, attribute in paths}

    def register(self, name: str, part: Callable[..., Part]) -> None:
        """Add a part of your own under a new name; `InputError` where the name is taken."""
        if name in self._parts:
            raise InputError(f"{self.kind} {name!r} exists already; choose another name than {self._listed()}")
        self._parts[name] = part

    def make(self, name: str, **settings: Any) -> Part:
        """Build the part called `name`.

        Raises:
            InputError: No such name (all names are listed), or settings that the part does not take.
        """
        part = self._part(name)
        signature = inspect.signature(part)
        try:
            signature.bind(**settings)
        except TypeError as error:
            listed = ", ".join(map(str, signature.parameters.values())) or "(none)"
            raise InputError(f"{self.kind} {name!r}: {error}; its settings are {listed}") from error
        return part(**settings)

    def settings(self, name: str) -> tuple[str, ...]:
        """Return the names of the settings that a part takes; `InputError` for an unknown name, listing all names."""
        parameters = inspect.signature(self._part(name)).parameters.values()
        return tuple(one.name for one in parameters if one.kind is not inspect.Parameter.VAR_KEYWORD)

    def _part(self, name: str) -> Callable[..., Part]:
        if name not in self._parts:
            raise InputError(f"{self.kind} {name!r} is unknown; the names are {self._listed()}")
        part = self._parts[name]
        return cast(Callable[..., Part], load(part)) if isinstance(part, str) else part

    def _listed(self) -> str:
        return ", ".join(self._parts) or "(none)"


EMBEDDERS: Registry[Embedder] = Registry(
    "embedder",
    {
        "minilm": "corag.models.embedders:MiniLMEmbedder",
        "bge-m3": "corag.models.embedders:BgeM3Embedder",
        "BAAI/bge-m3": "corag.models.embedders:BgeM3Embedder",
        "sentence-transformers": "corag.models.embedders:SentenceTransformerEmbedder",
    },
)

RERANKERS: Registry[Reranker] = Registry(
    "reranker",
    {
        "minilm-cosine": "corag.rerankers.cosine:MiniLMCosine",
        "minilm-maxsim": "corag.rerankers.maxsim:MiniLMMaxSim",
        "minilm-softsim": "corag.rerankers.maxsim:minilm_softsim",
        "minilm-pooled": "corag.rerankers.pooled:MiniLMPooled",
        "bm25": "corag.rerankers.bm25:Bm25",
        "minilm-multihop": "corag.rerankers.evidence.reranker:minilm_multihop",
        "minilm-factoid": "corag.rerankers.evidence.reranker:minilm_factoid",
        "minilm-longform": "corag.rerankers.evidence.reranker:minilm_longform",
        "cross-encoder": "corag.rerankers.cross_encoder:CrossEncoder",
    },
)

SELECTORS: Registry[Selector] = Registry(
    "selector",
    {
        "top-k": "corag.selectors.simple:TopK",
        "naive": "corag.selectors.reranking:Naive",
        "corag": "corag.selectors.corag.selector:Corag",
        "corag-fixed": "corag.selectors.corag.selector:corag_fixed",
        "upper": "corag.selectors.reranking:Upper",
        "none": "corag.selectors.simple:NoContext",
        "full": "corag.selectors.simple:Full",
        "top-tokens": "corag.selectors.simple:TopTokens",
        "similarity-cutoff": "corag.selectors.simple:SimilarityCutoff",
        "mmr": "corag.selectors.mmr:Mmr",
        "reorder": "corag.selectors.wrapping:Reorder",
        "adaptive-k": "corag.selectors.adaptive_k:AdaptiveK",
        "car": "corag.selectors.car:Car",
        "edc2": "corag.selectors.edc2:Edc2",
        "crag": "corag.selectors.crag:Crag",
        "raptor": "corag.selectors.raptor.selector:Raptor",
        "self-route": "corag.selectors.wrapping:SelfRoute",
    },
)

READERS: Registry[Reader] = Registry(
    "reader",
    {
        "extractive": "corag.readers.extractive:ExtractiveReader",
        "minilm-reader": "corag.readers.minilm_reader:MiniLMReader",
        "ollama": "corag.readers.ollama:OllamaReader",
        "transformers": "corag.readers.causal_lm:TransformersReader",
    },
)

SUMMARIZERS: Registry[Summarizer] = Registry(
    "summarizer",
    {
        "extractive": "corag.summarizers.extractive:ExtractiveSummarizer",
        "ollama": "corag.summarizers.ollama:OllamaSummarizer",
    },
)


def embedder(name: str = "minilm", **settings: Any) -> Embedder:
    """Return an embedder by name; any other name is a sentence-transformers model or its folder."""
    if name and name not in EMBEDDERS.names:
        return EMBEDDERS.make("sentence-transformers", model=name, **settings)
    return EMBEDDERS.make(name, **settings)


def reranker(name: str, **settings: Any) -> Reranker:
    """Return a reranker by name; any name with a slash, or a folder, is a cross-encoder.

    Raises:
        InputError: An unknown name (the error lists all names), or settings that the reranker does not take.
    """
    if name in RERANKERS.names:
        return RERANKERS.make(name, **settings)
    if is_reranker(name):
        return RERANKERS.make("cross-encoder", model=name, **settings)
    raise InputError(
        f"reranker {name!r} is unknown; the names are {', '.join(RERANKERS.names)}; or give the hub name or the folder "
        f"of a cross-encoder: known ones are {', '.join(KNOWN_RERANKERS)}"
    )


def is_reranker(name: object) -> bool:
    """Return whether `reranker` takes a name; whether a model of that name exists is not asked."""
    return name in RERANKERS.names or (isinstance(name, str) and name != "" and ("/" in name or Path(name).is_dir()))


def selector(name: str, **settings: Any) -> Selector:
    """Return a selector by name; an unknown name is an error that lists all names."""
    return SELECTORS.make(name, **settings)


def reader(name: str, **settings: Any) -> Reader:
    """Return a reader by name; an unknown name is an error that lists all names."""
    return READERS.make(name, **settings)


def summarizer(name: str, **settings: Any) -> Summarizer:
    """Return a summarizer by name; an unknown name is an error that lists all names."""
    return SUMMARIZERS.make(name, **settings)

"""Parts by name: tables whose modules are imported only when a part is built.

To add a part, write a class with the methods of its protocol in `corag.types` and add one line here, call `register`
from your own code, or pass the object itself instead of a name.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Any, Generic, Self, TypeVar, cast

from common.configuration import Configuration, parse, spelling, write_value
from corag.errors import CoragError, InputError
from corag.optional import load
from corag.types import Embedder, Reader, Reranker, Selector, Summarizer, TokenCounter
from search.types import SearchConfig

P = TypeVar("P")

BUILDERS: dict[str, str] = {}
"""`module:attribute` of each class and function that builds a registered part -> the first name of that part."""


def _can_be_spelled(value: object) -> bool:
    """Return whether a setting's value is JSON, a path, or an object with a name or a spelling of its own."""
    plain = isinstance(value, str | Mapping | list | tuple | bool | int | float | PurePath | None)
    return plain or hasattr(value, "name") or type(value).__str__ is not object.__str__


class Part:
    """Base of the parts that ship: `str(part)` is the shortest spelling from which it can be built again.

    Settings that have their default values are left out. A copy, or what another process unpickles, is built again from
    all of them. A part of your own need not derive from this class.
    """

    _arguments: tuple[tuple[Any, ...], dict[str, Any]]
    _named: Configuration | None = None

    def __new__(cls, *args: Any, **settings: Any) -> Self:
        """Remember the settings that the part is built with."""
        part = super().__new__(cls)
        object.__setattr__(part, "_arguments", (args, settings))
        return part

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy what the part was built with, not its models and caches."""
        args, settings = self._arguments
        return partial(type(self), *args, **settings), (), {"_named": self._named}

    def named(self, name: Configuration, build: Callable[..., Any]) -> None:
        """Set the name and settings that the part is spelled with, given what built it."""
        # A shared encoder, for instance, has no name that could be written.
        settings = {key: value for key, value in _non_default(build, name.settings).items() if _can_be_spelled(value)}
        object.__setattr__(self, "_named", Configuration(name.name, settings))

    def __str__(self) -> str:
        if self._named is not None:
            return str(self._named)
        args, settings = self._arguments
        bound = inspect.signature(type(self)).bind_partial(*args, **settings)
        name = BUILDERS.get(path_of(type(self))) or str(getattr(self, "name", type(self).__name__))
        return str(Configuration(name, _non_default(type(self), bound.arguments)))


def _non_default(build: Callable[..., Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that differ from the defaults of what builds a part."""
    parameters = inspect.signature(build).parameters
    changed: dict[str, Any] = {}
    for key, value in settings.items():
        parameter = parameters.get(key)
        if parameter is not None and parameter.kind is inspect.Parameter.VAR_KEYWORD:
            changed |= value
        elif parameter is None or type(value) is not type(parameter.default) or value != parameter.default:
            changed[key] = value
    return changed


def nearest(name: object, names: Iterable[str]) -> str:
    """Return ` (did you mean ...?)` for the most similar name, or nothing."""
    similar = difflib.get_close_matches(str(name)[:100], list(names), 1)
    return f" (did you mean {similar[0]!r}?)" if similar else ""


def with_default(parameter: inspect.Parameter) -> str:
    """Return the name of a setting with its default value; `...` where that is too long to help."""
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        return "others"
    default = parameter.default
    if default is inspect.Parameter.empty:
        return parameter.name
    written = write_value(default) if isinstance(default, str | bool | int | float | None) else ""
    return f"{parameter.name}={written if 0 < len(written) <= 30 else '...'}"


def path_of(build: Any) -> str:
    """Return `module:attribute` of a class or a function."""
    return f"{build.__module__}:{getattr(build, '__qualname__', '')}"


class Registry(Generic[P]):
    """Names and what builds them: `module:attribute`, or any callable that takes keyword settings.

    Args:
        kind: What the parts are, for errors.
        parts: What builds the part of each name.
        method: A method that every part of the kind has.
        fallback: The part that takes any other name as its `model`, if there is one.
        is_model: Whether a name that is not registered may be such a model.
        remedy: Other accepted names, for errors.
    """

    def __init__(
        self,
        kind: str,
        parts: dict[str, str | Callable[..., P]],
        *,
        method: str,
        fallback: str = "",
        is_model: Callable[[str], bool] = bool,
        remedy: str = "",
    ) -> None:
        self.kind = kind
        self.parts: dict[str, str | Callable[..., P]] = {}
        for name, part in parts.items():
            self.register(name, part)
        self._method = method
        self._fallback, self._is_model, self._remedy = fallback, is_model, remedy

    @property
    def protocol(self) -> str:
        """Name of the protocol in `corag.types` that the parts have."""
        return "TokenCounter" if self.kind == "tokenizer" else self.kind.capitalize()

    @property
    def names(self) -> tuple[str, ...]:
        """All names, in order of registration."""
        return tuple(self.parts)

    @property
    def local(self) -> tuple[str, ...]:
        """Names of the parts that name no model, and so need no download."""
        return tuple(name for name in self.parts if "model" not in self.parameters(name))

    @property
    def import_paths(self) -> dict[str, str]:
        """Classes and functions that build the shipped parts -> their modules."""
        paths = (part.split(":") for part in self.parts.values() if isinstance(part, str))
        return {attribute: module for module, attribute in paths}

    def register(self, name: str, part: str | Callable[..., P]) -> None:
        """Add a part of your own under a new name; `InputError` if the name is taken."""
        if name in self.parts:
            raise InputError(f"{self.kind} {name!r} exists already; choose another name than {self._listed()}")
        BUILDERS.setdefault(part if isinstance(part, str) else path_of(part), name)
        self.parts[name] = part

    def make(self, part: str | P, /, *, defaults: Mapping[str, Any] = MappingProxyType({}), **settings: Any) -> P:
        """Return a part, built with its settings.

        Args:
            part: `name(key=value, ...)`, or the part itself, which is returned.
            defaults: Settings for a part given by name, as far as it takes them and they are not set.
            settings: More settings.

        Raises:
            InputError: The name is unknown, the part does not take a setting, or settings are given for an object.
        """
        if not isinstance(part, str):
            if isinstance(part, type) or not hasattr(part, "name") or not callable(getattr(part, self._method, None)):
                expected = f"{self.kind} with a name and a method {self._method}"
                raise InputError(f"expected a {expected}, got {part!r:.100}; use one, or its name: {self._listed()}")
            if settings:
                raise InputError(
                    f"{self.kind} {spelling(part)!r} is built already; build it with {', '.join(settings)}"
                )
            return part
        written = self.check(part, defaults=defaults, **settings)
        build = self.builder(written.name)
        try:
            made = build(**written.settings)
        except ValueError as error:
            # Any other error is a fault of the part: it takes these settings.
            if isinstance(error, CoragError) or not written.settings:
                raise
            raise InputError(f"{self.kind} {str(written)!r} cannot be built so: {error}") from error
        if isinstance(made, Part):
            made.named(written, build)
        return made

    def parameters(self, part: str) -> dict[str, inspect.Parameter]:
        """Return the settings that a part takes, by name; `InputError` for an unknown one."""
        return dict(inspect.signature(self.builder(parse(part).name)).parameters)

    def builder(self, name: str) -> Callable[..., P]:
        """Return the class or function that builds the part of a name; `InputError` for an unknown one."""
        if name in self.parts:
            part = self.parts[name]
            return cast(Callable[..., P], load(part)) if isinstance(part, str) else part
        if not self.knows(name):
            hint = nearest(name, self.parts)
            raise InputError(
                f"{self.kind} {name!r:.200} is unknown{hint}; the names are {self._listed()}{self._remedy}"
            )
        return partial(self.builder(self._fallback), model=name)

    def knows(self, part: str) -> bool:
        """Return whether the name is registered or may be that of a model, which need not exist."""
        name = parse(part).name
        return name in self.parts or (bool(self._fallback and name) and self._is_model(name))

    def check(
        self, part: str, /, *, defaults: Mapping[str, Any] = MappingProxyType({}), **settings: Any
    ) -> Configuration:
        """Return a part with all its settings, which it takes, as `make` builds it; nothing is built.

        Raises:
            InputError: The name is unknown, or the part does not take a setting.
        """
        written = parse(part)
        if twice := settings.keys() & written.settings.keys():
            raise InputError(f"{self.kind} {str(written)!r}: {sorted(twice)[0]!r} is set twice; leave one out")
        given = {**written.settings, **settings}
        signature = inspect.signature(self.builder(written.name))
        given |= {name: value for name, value in defaults.items() if name in signature.parameters and name not in given}
        try:
            signature.bind(**given)
        except TypeError as error:
            unknown = [key for key in given if key not in signature.parameters]
            reason = f"it has no setting {unknown[0]!r}" if unknown else str(error)
            hint = nearest(unknown[0], signature.parameters) if unknown else ""
            if unknown == ["api_key"]:
                hint = " (keys come from the environment: OPENAI_API_KEY, OLLAMA_API_KEY)"
            if "search" in signature.parameters and unknown and unknown[0] in SearchConfig.__dataclass_fields__:
                hint = f' (write search={{"{unknown[0]}": {given[unknown[0]]}}})'
            listed = ", ".join(map(with_default, signature.parameters.values())) or "(none)"
            raise InputError(f"{self.kind} {written.name!r}: {reason}{hint}; its settings are {listed}") from error
        return Configuration(written.name, given)

    def _listed(self) -> str:
        return ", ".join(self.parts) or "(none)"


EMBEDDERS: Registry[Embedder] = Registry(
    "embedder",
    {
        "minilm": "corag.models.embedders:MiniLMEmbedder",
        "e5": "corag.models.embedders:E5Embedder",
        "bge-m3": "corag.models.embedders:bge_m3",
        "BAAI/bge-m3": "corag.models.embedders:bge_m3",
        "sentence-transformers": "corag.models.embedders:SentenceTransformerEmbedder",
    },
    method="embed",
    fallback="sentence-transformers",
)

RERANKERS: Registry[Reranker] = Registry(
    "reranker",
    {
        "fused": "corag.rerankers.fused:Fused",
        "minilm-evidence": "corag.rerankers.evidence.reranker:EvidenceReranker",
        "cosine": "corag.rerankers.cosine:Cosine",
        "minilm-cosine": "corag.rerankers.cosine:MiniLMCosine",
        "e5-cosine": "corag.rerankers.cosine:E5Cosine",
        "late": "corag.rerankers.late:Late",
        "minilm-late": "corag.rerankers.late:MiniLMLate",
        "e5-late": "corag.rerankers.late:E5Late",
        "minilm-softsim": "corag.rerankers.late:MiniLMSoftSim",
        "bm25": "corag.rerankers.bm25:Bm25",
        "cross-encoder": "corag.rerankers.cross_encoder:CrossEncoder",
        "llm": "corag.rerankers.llm:LanguageModel",
    },
    method="scorer",
    fallback="cross-encoder",
    is_model=lambda name: "/" in name or Path(name).is_dir(),
    remedy="; or give the hub name or the folder of a cross-encoder, such as BAAI/bge-reranker-v2-m3",
)

SELECTORS: Registry[Selector] = Registry(
    "selector",
    {
        "top-k": "corag.selectors.simple:TopK",
        "naive": "corag.selectors.reranking:Naive",
        "corag": "corag.selectors.corag.search:Corag",
        "corag-fixed": "corag.selectors.corag.agents:corag_fixed",
        "upper": "corag.selectors.reranking:Upper",
        "none": "corag.selectors.simple:NoContext",
        "full": "corag.selectors.simple:Full",
        "top-tokens": "corag.selectors.simple:TopTokens",
        "similarity-cutoff": "corag.selectors.simple:SimilarityCutoff",
        "mmr": "corag.selectors.mmr:Mmr",
        "sentence-threshold": "corag.selectors.reranking:SentenceThreshold",
        "adaptive-k": "corag.selectors.adaptive_k:AdaptiveK",
        "car": "corag.selectors.car:Car",
        "edc2": "corag.selectors.edc2:Edc2",
        "crag": "corag.selectors.summarizing:Crag",
        "raptor": "corag.selectors.raptor.selector:Raptor",
        "self-route": "corag.selectors.self_route:SelfRoute",
    },
    method="select",
)

READERS: Registry[Reader] = Registry(
    "reader",
    {
        "extractive": "corag.readers.extractive:ExtractiveReader",
        "openai": "corag.readers.chat:OpenAIReader",
        "ollama": "corag.readers.chat:OllamaReader",
        "self-consistency": "corag.readers.wrappers:SelfConsistentReader",
    },
    method="answer",
    remedy="; a language model is named with its server: openai(model=gpt-4o), ollama(model=llama3.1:8b)",
)

SUMMARIZERS: Registry[Summarizer] = Registry(
    "summarizer",
    {
        "extractive": "corag.summarizers.extractive:ExtractiveSummarizer",
        "openai": "corag.summarizers.chat:OpenAISummarizer",
        "ollama": "corag.summarizers.chat:OllamaSummarizer",
    },
    method="summarize",
    remedy="; a language model is named with its server: openai(model=gpt-4o), ollama(model=llama3.1:8b)",
)


TOKENIZERS: Registry[TokenCounter] = Registry(
    "tokenizer",
    {
        "auto": "corag.text.tokens:automatic",
        "minilm": "corag.text.tokens:minilm",
        "estimate": "corag.text.tokens:estimate",
        "tiktoken": "corag.text.tokens:by_tiktoken",
        "model": "corag.text.tokens:of_model",
    },
    method="count",
    fallback="model",
    is_model=lambda name: bool(load("corag.text.tokens:is_model")(name)),
    remedy="; or give a model such as Qwen/Qwen3-8B or gpt-4o, a folder or a tokenizer.json",
)

ENCODERS = {"minilm": "corag.models.encoders:minilm_at", "e5": "corag.models.e5:e5_at"}
"""Encoders that packages carry: functions of this name and a `Placement`."""

TABLES: tuple[Registry[Any], ...] = (EMBEDDERS, RERANKERS, SELECTORS, READERS, SUMMARIZERS, TOKENIZERS)


def embedder(part: str | Embedder = "minilm", /, **settings: Any) -> Embedder:
    """Return an embedder; any name that is not registered is a sentence-transformers model or its folder."""
    return EMBEDDERS.make(part, **settings)


def reranker(part: str | Reranker, /, **settings: Any) -> Reranker:
    """Return a reranker; any name with a slash, or a folder, is a cross-encoder."""
    return RERANKERS.make(part, **settings)


def selector(part: str | Selector, /, **settings: Any) -> Selector:
    """Return a selector."""
    return SELECTORS.make(part, **settings)


def reader(part: str | Reader, /, **settings: Any) -> Reader:
    """Return a reader."""
    return READERS.make(part, **settings)


def summarizer(part: str | Summarizer, /, **settings: Any) -> Summarizer:
    """Return a summarizer."""
    return SUMMARIZERS.make(part, **settings)


def tokens(part: str | Path | Callable[[str], object] | TokenCounter = "minilm", /, **settings: Any) -> TokenCounter:
    """Return a token counter.

    A name that is not registered is that of a model (on the hub, of OpenAI or of Ollama), a `tokenizer.json`, or its
    folder. A function from a text to its tokens, or to their number, is accepted, too.
    """
    if isinstance(part, TokenCounter):
        return part
    if callable(part):
        name = getattr(part, "__name__", type(part).__name__)
        counted: TokenCounter = load("corag.text.tokens:CallableCounter")(part, name=name)
        return counted
    if isinstance(part, Path):
        return TOKENIZERS.make("model", model=str(part), **settings)
    return TOKENIZERS.make(part, **settings)

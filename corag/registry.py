"""Parts by name: tables whose modules are imported only when a part is built.

To add a part, write a class with the methods of its protocol in `corag.types` and add one line here, call `register`
from your own code, or pass the object itself instead of a name.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar, cast

from agent.configuration import Configuration
from corag.errors import CoragError, InputError, ModelError
from corag.limits import too_large
from corag.naming import (
    BUILDERS,
    Part,
    nearest,
    parse,
    path_of,
    spelling,
    with_default,
)
from corag.optional import load
from corag.types import Embedder, Reader, Reranker, Selector, Summarizer, TokenCounter
from search.config import SearchConfig

P = TypeVar("P")


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
            if not hasattr(part, "name") or not callable(getattr(part, self._method, None)):
                expected = f"{self.kind} with a name and a method {self._method}"
                raise InputError(f"expected a {expected}, got {part!r:.100}; use one, or its name: {self._listed()}")
            if settings:
                raise InputError(
                    f"{self.kind} {spelling(part)!r} is built already; build it with {', '.join(settings)}"
                )
            return part
        written = parse(part)
        names = self.parameters(written.name).keys() & defaults.keys() - written.settings.keys() - settings.keys()
        written = self.check(written, **{name: defaults[name] for name in defaults if name in names}, **settings)
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

    def parameters(self, name: str) -> dict[str, inspect.Parameter]:
        """Return the settings that the part of a name takes; `InputError` for an unknown one."""
        return dict(inspect.signature(self.builder(name)).parameters)

    def settings(self, part: str) -> tuple[str, ...]:
        """Return the names of the settings that a part takes; see `parameters`."""
        return tuple(self.parameters(parse(part).name))

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

    def check(self, part: str, /, **settings: Any) -> Configuration:
        """Return a part with all its settings, which it takes; nothing is built.

        Raises:
            InputError: The name is unknown, or the part does not take a setting.
        """
        written = parse(part)
        if twice := settings.keys() & written.settings.keys():
            raise InputError(f"{self.kind} {str(written)!r}: {sorted(twice)[0]!r} is set twice; leave one out")
        given = {**written.settings, **settings}
        signature = inspect.signature(self.builder(written.name))
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
        "minilm": "corag.models.cached:MiniLMEmbedder",
        "e5": "corag.models.cached:E5Embedder",
        "bge-m3": "corag.models.embedders:bge_m3",
        "BAAI/bge-m3": "corag.models.embedders:bge_m3",
        "sentence-transformers": "corag.models.embedders:SentenceTransformerEmbedder",
        "openai": "corag.models.embedders:OpenAIEmbedder",
        "ollama": "corag.models.embedders:OllamaEmbedder",
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

ENCODERS = {"minilm": "corag.models.minilm:encoder_at", "e5": "corag.models.e5:e5_at"}
"""Encoders that packages carry: functions of a `Placement`."""

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


def with_prompt(part: str, prompt: str | None) -> str:
    """Return a reader with a prompt, if one is given; `InputError` if the reader has no such setting, or has it set."""
    if prompt is None:
        return part
    if "prompt" not in READERS.settings(part):
        raise InputError(f"reader {str(part)!r} has no prompt; name a language model, or leave the prompt out")
    READERS.check(part, prompt=prompt)
    return parse(part).with_settings(prompt=prompt)


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


def check_untrusted(table: Registry[P], part: object, source: object) -> Configuration:
    """Return a part that somebody else names, in a file (a checkpoint, an index) or a request, if they may name it.

    They may name shipped and registered parts, nested at will, and models in the hub's cache on this machine, with
    settings within `corag.limits`; no server, address, key or path, and they cannot allow code of a model.

    Args:
        table: The kind of part that is expected.
        part: What is named.
        source: The file or request, for errors.

    Raises:
        ModelError: It names something else; the message says how the user can give it.
    """
    try:
        written = parse(part)
        parameters = table.parameters(written.name)
    except InputError as error:
        raise ModelError(f"{source} names a {table.kind} that is unknown here: {error}") from error
    settings = dict(written.settings)
    if "model" in parameters and isinstance(default := parameters["model"].default, str):
        settings.setdefault("model", default)
    refused = "a part that asks a server" if parameters.keys() & {"base_url", "host"} else too_large(settings)
    for key, value in settings.items():
        hint = str(parameters[key].annotation) if key in parameters else ""
        inner = next((one for one in TABLES if one.kind == key or re.search(rf"{one.protocol}\b", hint)), None)
        # tiktoken fetches the vocabulary of an encoding.
        if key not in parameters or key in ("trust_remote_code", "encoding"):
            refused = f"its setting {key!r}"
        elif value is None:
            continue
        elif key == "model" or (key == "encoder" and value not in ENCODERS):
            if not refused and (_is_there(str(value)) or not _is_cached(table, str(value))):
                refused = f"{str(value)!r:.300}, which is not a model in the cache on this machine (hf download)"
        elif inner is not None and isinstance(value, str):
            check_untrusted(inner, value, source)
        elif not _is_plain(value) or "Path" in hint or ("AgentSource" in hint and not _is_agent(value)):
            refused = f"its setting {key!r}"
    if refused:
        raise ModelError(
            f"{source} names {table.kind} {str(written)!r:.300}, but may not choose {refused}; if you trust it, give "
            f"the {table.kind} yourself, on the command line or as an argument"
        )
    return written


_CHOICE = re.compile(r"[\w.:+ -]{0,100}(\([\w., -]{0,100}\))?")


def _is_cached(table: Registry[Any], model: str) -> bool:
    """Return whether the hub's cache has all that a part needs of a model."""
    if table is TOKENIZERS:
        return bool(load("corag.text.tokens:in_cache")(model))
    return bool(load("corag.models.checkpoint:is_whole_in_cache")(model))


def _is_agent(value: object) -> bool:
    """Return whether a setting is `none`, where no folder of that name would be taken for it."""
    return value == "none" and not _is_there(value)


def _is_there(path: str, kind: Callable[[Path], bool] = Path.exists) -> bool:
    try:
        return kind(Path(path))
    except (OSError, ValueError):  # no file has such a name
        return False


def _is_plain(value: object) -> bool:
    """Return whether a setting is a number, a choice, or a list or mapping of such, and no path."""
    if isinstance(value, str):
        return bool(_CHOICE.fullmatch(value)) and not _is_there(value, Path.is_file) and value.strip(".") != ""
    if isinstance(value, Mapping):
        return all(_is_plain(key) and _is_plain(inner) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float)

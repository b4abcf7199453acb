"""What the methods of a comparison are made of: reader, tokenizer, embedder, rerankers, shared where they may be."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import corag
from corag.budget import reader_and_tokens, tokens_setting
from corag.models.cached import CachedEmbedder, CachedEncoder
from corag.models.minilm import minilm_encoder
from corag.models.runtime import resolve_device
from corag.naming import Spellings
from corag.readers.chat import ChatReader
from corag.readers.wrappers import CachedReader, SelfConsistentReader
from corag.registry import EMBEDDERS, RERANKERS, SUMMARIZERS
from corag.rerankers.evidence.reranker import EvidenceReranker
from corag.selectors.corag.agents import checkpoint_folder
from corag.selectors.raptor.tree import tree_file
from corag.selectors.reranking import SHARED
from corag.text.data import Query
from corag.types import Reader, Reranker
from experiments.evaluation.config import NO_READER, EvaluateConfig
from experiments.evaluation.judge import Judge, chat_of, judgements
from experiments.evaluation.methods import Methods, make_methods
from experiments.evaluation.verify import ChatVerifier, WordVerifier, verifier_of


class Parts:
    """The parts that a config names.

    Args:
        config: Settings of one set of questions.
        queries: The questions.
        beside: Returns the path of a file beside the results, by its suffix; None where nothing is written.

    Attributes:
        tokens: Counts tokens.
        reader: The reader, which reads each context once; None where nothing is to be read.
        verifier: Decides in place of it what is to be verified, or None.
        prompted: Who gets the prompts that a budget is for, or None.
        unread: Why a reader that was asked for reads nothing, or None.
    """

    def __init__(
        self,
        config: EvaluateConfig,
        queries: Sequence[Query],
        beside: Callable[[str], Path | None] = lambda _: None,
    ) -> None:
        self._config, self._beside = config, beside
        self.reader: CachedReader | None = None
        self.verifier: ChatVerifier | WordVerifier | None = None
        self.prompted: Reader | None = None
        self.unread: str | None = None
        self._own_reader: Reader | None = None
        if config.reader == NO_READER:
            self.tokens = corag.tokens(config.tokenizer)
            return
        self._own_reader, self.tokens = reader_and_tokens(config.reader, config.tokenizer)
        self.prompted = self._own_reader
        if config.task == "verify":
            self.verifier = verifier_of(self._own_reader, queries)
            if isinstance(self.verifier, ChatVerifier):
                self.prompted = self.verifier
        elif config.judge is not None or any(query.answers for query in queries):
            self.reader = CachedReader(self._own_reader)
        else:
            self.unread = f"no question of {config.data}, {config.split}, has reference answers, so nothing is read"

    @cached_property
    def judge(self) -> Judge | None:
        """The judge; `InputError` if it asks no language model, `ChatError` if its server or model is missing."""
        config = self._config
        return None if config.judge is None else Judge(chat_of("judge", config.judge), judgements(config.judge_figures))

    @property
    def prompt_text(self) -> str | None:
        """The text of the prompts: a file of the same name may change."""
        if isinstance(self.prompted, ChatVerifier | SelfConsistentReader):
            return self.prompted.identity
        return self.prompted.template.text if isinstance(self.prompted, ChatReader) else None

    @cached_property
    def encoder(self) -> CachedEncoder:
        """Encodes every passage once for pools, rerankers and embedder, and for later runs."""
        path = self._beside("states.sqlite")
        encoder = minilm_encoder()
        # On a CPU one text at a time: a resumed run ends with the same bits.
        return CachedEncoder(encoder, batch=1 if encoder.placement.kind == "cpu" else None, path=path)

    @cached_property
    def embedder(self) -> CachedEmbedder:
        """Embeds each text once; where no states are stored, from those that rerankers need, too."""
        on_cpu, given = resolve_device("embedder").kind == "cpu", self._config.embedder
        if self._beside("states.sqlite") is None and "encoder" in EMBEDDERS.settings(given):
            return CachedEmbedder(EMBEDDERS.offer(given, {"encoder": self.encoder}))
        return CachedEmbedder(given, batch=1 if on_cpu else None)

    def methods(self, methods: Spellings, *, shared: bool) -> Methods:
        """Return methods; what may be shared is rerankers, summarizer and reader, beside the embedder."""
        config = self._config
        offered: dict[str, Any] = {
            **tokens_setting(self.tokens),
            "reranker": config.reranker,
            "window": config.window,
            "unit": config.unit,
            "agent": config.agent,
            "reader": (self.reader or self._own_reader) if shared else self._own_reader,
            "summarizer": config.summarizer,
            "embedder": self.embedder,
            "tree": config.index if config.index is not None and tree_file(config.index) is not None else None,
        }
        if shared:
            takes = SUMMARIZERS.settings(config.summarizer)
            settings = {name: offered[name] for name in ("tokens", "embedder") if name in takes and name in offered}
            offered["summarizer"] = corag.summarizer(config.summarizer, **settings)
            # A file beside the results only for who needs it.
            default = {"encoder": self.encoder} if config.reranker is None else {}
            with SHARED.set(default):
                return make_methods(methods, offered, shared=True, make_reranker=self._shared_reranker)
        return make_methods(methods, offered)

    def _shared_reranker(self, text: str) -> Reranker:
        """Return a reranker that does nothing twice over methods and budgets."""
        made = corag.reranker(text)
        if isinstance(made, EvidenceReranker):
            return EvidenceReranker(adapter=made.parts, encoder=self.encoder)
        if "encoder" in RERANKERS.settings(text):
            return corag.reranker(text, encoder=self.encoder)
        return made


def checkpoint_hash(agent: str) -> list[str]:
    """Return hashes of a checkpoint's files: a new training may have written to the same folder."""
    files = sorted(file for file in checkpoint_folder(agent).glob("*") if file.is_file())
    return [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]

"""What the methods of a comparison are made of: reader, tokenizer, embedder, rerankers, shared where they may be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any

import corag
from corag.budget import Budget, reader_and_tokens, tokens_setting
from corag.models.embedders import CachedEmbedder
from corag.models.encoders import CachedEncoder
from corag.readers.chat import ChatReader
from corag.readers.wrappers import CachedReader, SelfConsistentReader
from corag.registry import EMBEDDERS, RERANKERS, SUMMARIZERS
from corag.selectors.corag.agents import checkpoint_folder
from corag.selectors.raptor.tree import tree_file
from corag.text.data import Query
from corag.types import Reader, Reranker
from experiments.data.pools import reproducible, shared_encoder
from experiments.evaluation.config import NO_READER, EvaluateConfig
from experiments.evaluation.judge import Judge, chats_of, judgements
from experiments.evaluation.methods import Methods, make_methods
from experiments.run.journal import digest


class Parts:
    """The parts that the config of a set of questions names.

    Attributes:
        reader: Reads each context once; None where nothing is to be read.
        prompted: Who gets the prompts that a budget is for, or None.
        skip_reason: Why a reader that was asked for reads nothing, or None.
    """

    def __init__(self, config: EvaluateConfig, queries: Sequence[Query]) -> None:
        self.config = config
        self.reader: CachedReader | None = None
        self.prompted: Reader | None = None
        self.skip_reason: str | None = None
        if config.reader == NO_READER:
            self.tokens = corag.tokens(config.tokenizer)
            return
        self.prompted, self.tokens = reader_and_tokens(config.reader, config.tokenizer)
        if config.judge is not None or any(query.answers for query in queries):
            self.reader = CachedReader(self.prompted)
        else:
            where = f"{config.data}, {config.split},"
            self.skip_reason = f"no question of {where} has reference answers, so nothing is read"

    def budget(self, tokens: int) -> Budget:
        """Return a budget for prompts, or for contexts alone, as the config says."""
        return Budget(tokens, self.prompted, self.config.budget_for)

    @cached_property
    def judge(self) -> Judge | None:
        """The judge; `InputError` if it asks no language model, `ChatError` if its server or model is missing."""
        name = self.config.judge
        return None if name is None else Judge(chats_of("judge", name), judgements(self.config.judge_figures))

    @property
    def prompt_text(self) -> str | None:
        """The text of the prompts: a file of the same name may change."""
        if isinstance(self.prompted, SelfConsistentReader):
            return self.prompted.identity
        return self.prompted.template.text if isinstance(self.prompted, ChatReader) else None

    @cached_property
    def encoder(self) -> CachedEncoder:
        """Encodes every passage once for pools, rerankers and embedder."""
        return shared_encoder()

    @cached_property
    def embedder(self) -> CachedEmbedder:
        """Embeds each text once, from the states that rerankers need, too, if it is of the same encoder."""
        given = self.config.embedder
        with reproducible():
            if "encoder" in EMBEDDERS.settings(given):
                return CachedEmbedder(EMBEDDERS.make(given, defaults={"encoder": self.encoder}))
            return CachedEmbedder(given)

    def methods(self, methods: str | tuple[str, ...], *, shared: bool = True) -> Methods:
        """Return methods that share rerankers, summarizer and reader; if not `shared`, the embedder alone."""
        config = self.config
        offered: dict[str, Any] = {
            **tokens_setting(self.tokens),
            "reranker": config.reranker,
            "unit": config.unit,
            "agent": config.agent,
            "reader": (self.reader or self.prompted) if shared else self.prompted,
            "summarizer": config.summarizer,
            "embedder": self.embedder,
            "tree": config.index if config.index is not None and tree_file(config.index) is not None else None,
        }
        if not shared:
            return make_methods(methods, offered)
        known = {"tokenizer": offered.get("tokenizer"), "encoder": self.encoder}
        offered["summarizer"] = SUMMARIZERS.make(config.summarizer, defaults=known)
        with reproducible():
            return make_methods(methods, offered, self._reranker)

    @cached_property
    def _reranker(self) -> Callable[[str], Reranker]:
        """Returns the one reranker of a name."""
        return cache(lambda name: RERANKERS.make(name, defaults={"encoder": self.encoder}))


def checkpoint_hash(agent: str) -> list[str]:
    """Return hashes of a checkpoint's files: a new training may have written to the same folder."""
    return [digest(file) for file in sorted(checkpoint_folder(agent).glob("*")) if file.is_file()]

"""Models that are known by name; the facts are those of their cards and configurations on the hub."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import lru_cache

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ModelCard:
    """Facts on a model.

    Attributes:
        name: Its name on the hub, or its folder.
        window_tokens: Maximum tokens of an input, special tokens included.
        licence: SPDX identifier of the licence of its weights.
        needs_own_code: Whether it runs only with code from its repository.
    """

    name: str
    window_tokens: int
    licence: str = "not known here"
    needs_own_code: bool = False

    @property
    def source(self) -> str:
        """Address of its page on the hub."""
        return f"https://huggingface.co/{self.name}"


_CARDS = (
    ModelCard("jinaai/jina-reranker-v1-turbo-en", 8192, "Apache-2.0", needs_own_code=True),
    ModelCard("jinaai/jina-reranker-v2-base-multilingual", 1024, "CC-BY-NC-4.0", needs_own_code=True),
    # FlagEmbedding reads 512 tokens of it unless told otherwise: max_tokens=512 does so here.
    ModelCard("BAAI/bge-reranker-v2-m3", 8192, "Apache-2.0"),
    ModelCard("BAAI/bge-reranker-large", 512, "MIT"),
    ModelCard("BAAI/bge-reranker-base", 512, "MIT"),
    # A folder converted to the architecture `gte` of transformers needs no code.
    ModelCard("Alibaba-NLP/gte-multilingual-reranker-base", 8192, "Apache-2.0", needs_own_code=True),
)

KNOWN_RERANKERS = {card.name: card for card in _CARDS}
"""Cross-encoders by their names on the hub: those of the CORAG paper."""

BGE_M3 = ModelCard("BAAI/bge-m3", 8192, "MIT")
"""The query embedding of the CORAG paper."""


@lru_cache(maxsize=64)
def announce(card: ModelCard) -> None:
    """Log a model's window and licence, once per process; warn of a licence that forbids commercial use."""
    logger.info("%s: window %d tokens, licence %s", card.name, card.window_tokens, card.licence)
    if "-NC-" in card.licence.upper():
        logger.warning("%s is under %s, which forbids commercial use; see %s", card.name, card.licence, card.source)

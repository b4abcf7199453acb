"""Models that are known by name: what a user should know of each before building on it.

The facts are those of the model cards and configurations on the hub, whose addresses the cards give.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import lru_cache

logger = logging.getLogger(__name__)

LOGISTIC = "one logit without bounds; the logistic function makes it a probability"
_UNKNOWN = "not known here"


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What a model is.

    Attributes:
        name: Its name on the hub, or its folder.
        window_tokens: The most tokens that it sees at once, special tokens included.
        licence: SPDX identifier of the licence of its weights.
        architecture: What kind of network it is.
        value_scale: What its output means, and what becomes of it.
        needs_own_code: Whether it runs only with code from its repository; transformers does not have it.
        note: What else matters.
        weights_revision: Revision on the hub that holds its weights as safetensors; None for the main one.
    """

    name: str
    window_tokens: int
    licence: str = _UNKNOWN
    architecture: str = _UNKNOWN
    value_scale: str = LOGISTIC
    needs_own_code: bool = False
    note: str = ""
    weights_revision: str | None = None

    @property
    def source(self) -> str:
        """Address of its page on the hub, where the facts on a known model come from."""
        return f"https://huggingface.co/{self.name}"

    @property
    def is_non_commercial(self) -> bool:
        """Whether its licence forbids commercial use."""
        return "-NC-" in self.licence.upper()


_CARDS = (
    ModelCard(
        "jinaai/jina-reranker-v1-turbo-en",
        window_tokens=8192,
        licence="Apache-2.0",
        architecture="JinaBERT (BERT with ALiBi)",
        needs_own_code=True,
        note="English; distilled from jina-reranker-v1-base-en.",
    ),
    ModelCard(
        "jinaai/jina-reranker-v2-base-multilingual",
        window_tokens=1024,
        licence="CC-BY-NC-4.0",
        architecture="XLM-RoBERTa with flash attention",
        needs_own_code=True,
        note="Multilingual; for research and evaluation, other use has to be bought.",
    ),
    ModelCard(
        "BAAI/bge-reranker-v2-m3",
        window_tokens=8192,
        licence="Apache-2.0",
        architecture="XLM-RoBERTa",
        note="Multilingual; FlagEmbedding reads 512 tokens of it unless told otherwise: max_tokens=512 does so here.",
    ),
    ModelCard(
        "BAAI/bge-reranker-large",
        window_tokens=512,
        licence="MIT",
        architecture="XLM-RoBERTa",
        note="English and Chinese.",
    ),
    ModelCard(
        "BAAI/bge-reranker-base",
        window_tokens=512,
        licence="MIT",
        architecture="XLM-RoBERTa",
        note="English and Chinese.",
    ),
    ModelCard(
        "Alibaba-NLP/gte-multilingual-reranker-base",
        window_tokens=8192,
        licence="Apache-2.0",
        architecture="GTE (BERT with rotary positions and gated layers)",
        needs_own_code=True,
        note=(
            "Over 70 languages; its code stands in Alibaba-NLP/new-impl. A folder converted to the architecture `gte` "
            "of transformers needs no code."
        ),
    ),
)

KNOWN_RERANKERS = {card.name: card for card in _CARDS}
"""Cross-encoders by their names on the hub: those of the CORAG paper."""

BGE_M3 = ModelCard(
    "BAAI/bge-m3",
    window_tokens=8192,
    licence="MIT",
    architecture="XLM-RoBERTa",
    value_scale="the encoder's first state as a unit vector of 1024 numbers",
    note="Multilingual. The main revision holds its weights as a pickle, which is never read here.",
    weights_revision="refs/pr/38",
)
"""The query embedding of the CORAG paper."""


@lru_cache(maxsize=64)
def announce(card: ModelCard) -> None:
    """Log a model's window and licence, once per process; warn of a licence that forbids commercial use."""
    logger.info("%s: window %d tokens, licence %s", card.name, card.window_tokens, card.licence)
    if card.is_non_commercial:
        logger.warning("%s is under %s, which forbids commercial use; see %s", card.name, card.licence, card.source)

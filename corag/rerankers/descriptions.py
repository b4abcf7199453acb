"""What rerankers are good for, in words: an agent compares questions with these descriptions.

A description is plain text of a few sentences: kinds of questions, training data, architecture, languages. To describe
a reranker of your own, set `descriptions` of `corag train`, or put a model card (`README.md`) into its folder.
"""

from __future__ import annotations

import re
from pathlib import Path

from corag.models.known import KNOWN_RERANKERS
from corag.naming import Spelling, parse

DESCRIPTIONS = {
    "minilm-cosine": (
        "For questions whose passage says the same in other words. Compares the meaning of the question and of "
        "the whole text by one vector each (MiniLM, cosine); no training, English, 510 tokens."
    ),
    "minilm-softsim": (
        "For manuals, technical documentation and questions that one passage matches closely. Late interaction of"
        " token vectors, pooled over the passages (MiniLM); no training, English, 510 tokens a passage."
    ),
    "bm25": (
        "For questions with names, numbers, codes, identifiers and other rare words that the passage repeats "
        "literally. Okapi BM25 of words and stems; no model, no training, any length."
    ),
    "minilm-evidence": (
        "For questions whose answer needs one or several passages or sentences: single facts, comparisons, chains of "
        "facts, explanations. Values combinations by the probability that they hold all evidence. Trained on "
        "encyclopaedias, news, medical abstracts, policies, financial reports and long documents; MiniLM, English."
    ),
    "jinaai/jina-reranker-v1-turbo-en": (
        "Fast English reranker for long documents, web pages, articles and code documentation. Distilled JinaBERT"
        " with ALiBi, six layers."
    ),
    "jinaai/jina-reranker-v2-base-multilingual": (
        "Multilingual reranker for cross-lingual search, source code, function calls, SQL and tables. XLM-RoBERTa"
        " with flash attention."
    ),
    "BAAI/bge-reranker-v2-m3": (
        "Multilingual reranker for general questions in many languages, web search and knowledge bases. XLM-"
        "RoBERTa from BGE-M3, light and fast."
    ),
    "BAAI/bge-reranker-large": (
        "Large and accurate reranker for English and Chinese: web questions, MS MARCO, Natural Questions, "
        "encyclopaedic passages. XLM-RoBERTa large."
    ),
    "BAAI/bge-reranker-base": (
        "Medium-sized reranker for English and Chinese: short web questions and short passages. XLM-RoBERTa base."
    ),
    "Alibaba-NLP/gte-multilingual-reranker-base": (
        "Multilingual reranker for over 70 languages and long documents. GTE encoder with rotary positions and "
        "gated layers."
    ),
}
"""Descriptions by the names of parts and of models on the hub."""

CARD = "README.md"
LONGEST = 600
"""Characters that are kept of a model card: what follows its first paragraphs is usage and tables."""


def description_of(reranker: Spelling) -> str | None:
    """Return what a reranker is good for, or None where nothing is known.

    It comes from `DESCRIPTIONS`, with window and licence of a known model, or else from the first paragraphs of the
    model card of a cross-encoder that is on this machine. Settings in the spelling are named, too.
    """
    written = parse(reranker)
    settings = dict(written.settings)
    name = str(settings.pop("model", "")) if written.name == "cross-encoder" else written.name
    text = DESCRIPTIONS.get(name) or _of_card(name)
    if not text:
        return None
    if card := KNOWN_RERANKERS.get(name):
        text = f"{text} Window: {card.window_tokens} tokens. Licence: {card.licence}."
    said = ", ".join(f"{key} {value}" for key, value in settings.items())
    return f"{text} Settings: {said}." if said else text


def _of_card(name: str) -> str:
    """Return the first paragraphs of a model card, without front matter, headings, code and HTML."""
    if not (path := _card_path(name)):
        return ""
    text = path.read_text(encoding="utf-8", errors="replace")
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    text = re.sub(r"```.*?(```|\Z)|<[^>]*>", "", text, flags=re.DOTALL)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    prose = [line for line in text.splitlines() if line.strip() and not re.match(r"\s*([#|>]|[-*=_]{3,}\s*$)", line)]
    words = " ".join(" ".join(prose).split())
    return words if len(words) <= LONGEST else words[:LONGEST].rsplit(" ", 1)[0]


def _card_path(name: str) -> Path | None:
    if not name:
        return None
    if (local := Path(name) / CARD).is_file():
        return local
    if "/" not in name or Path(name).exists():
        return None
    from huggingface_hub import errors, try_to_load_from_cache

    try:
        found = try_to_load_from_cache(name, CARD)
    except errors.HFValidationError:
        return None
    return Path(found) if isinstance(found, str) else None

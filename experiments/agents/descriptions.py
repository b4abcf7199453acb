"""Descriptions of the rerankers that an agent chooses among, embedded as its questions are (paper 5.1)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from agent.config import setting_of
from corag.errors import InputError
from corag.models.cached import vectors_by
from corag.naming import parse
from corag.registry import EMBEDDERS, trusted
from corag.registry import embedder as make_embedder
from corag.rerankers.descriptions import description_of
from corag.selectors.corag.features import Float32

logger = logging.getLogger(__name__)

REMEDY = "give one with descriptions: {NAME: text}, or put a model card (README.md) into the reranker's folder"


def describe(configurations: Sequence[str], own: Mapping[str, str], features: Sequence[str]) -> dict[str, str]:
    """Return the description of each configuration's reranker; a warning names those without.

    Args:
        configurations: Those of the labels; each names a reranker.
        own: Descriptions by reranker, in place of those that ship.
        features: Parts of the agent's feature vector.

    Raises:
        InputError: A name or a text is wrong, or the features are not the question's embedding alone.
    """
    if tuple(features) != ("query",):
        raise InputError(
            f"features is {','.join(features)}, but a description has no candidates to be compared with; set "
            "features=query, or describe=false"
        )
    rerankers = {name: setting_of(name, "reranker") for name in configurations}
    if lacking := [name for name, reranker in rerankers.items() if reranker is None]:
        raise InputError(f"configuration {lacking[0]} names no reranker to be described; set describe=false")
    given = {str(parse(name)): text for name, text in own.items()}
    for described, own_text in given.items():
        if described not in rerankers.values() or not own_text.strip():
            raise InputError(f"descriptions of {described!r}: expected a text, and a reranker of the labels")
    found = {name: given.get(str(reranker)) or description_of(str(reranker)) for name, reranker in rerankers.items()}
    texts = {name: " ".join(text.split()) for name, text in found.items() if text is not None}
    if missing := [str(rerankers[name]) for name in configurations if name not in texts]:
        logger.warning("no description of %s, so no question is aligned with it; %s", ", ".join(missing), REMEDY)
    return texts


def description_vectors(texts: Mapping[str, str], embedder: str) -> dict[str, Float32]:
    """Return the vector of each description, `[d]`, by the embedder of the questions; a `CoragError` if it cannot."""
    if not texts:
        return {}
    named = trusted(EMBEDDERS, embedder, "the label table")
    return dict(zip(texts, vectors_by(make_embedder(named), list(texts.values())), strict=True))

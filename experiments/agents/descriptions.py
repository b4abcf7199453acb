"""Descriptions of the rerankers that an agent chooses among, embedded as its questions are (paper 5.1)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from agent.config import setting_of
from corag.errors import InputError
from corag.models.cached import vectors_by
from corag.naming import parse
from corag.registry import EMBEDDERS, RERANKERS, trusted
from corag.registry import embedder as make_embedder
from corag.rerankers.descriptions import description_of
from corag.selectors.corag.features import Float32

logger = logging.getLogger(__name__)

REMEDY = "give one with descriptions: {NAME: text}, or put a model card (README.md) into the reranker's folder"


def describe(
    labelled: Sequence[str], extra: Sequence[str], own: Mapping[str, str], features: Sequence[str], embedder: str
) -> tuple[dict[str, str], Float32 | None]:
    """Return the descriptions of configurations by their rerankers, and their vectors in that order, `[K, d]`.

    A warning names the labelled ones that have none; if no description is known, there are no vectors.

    Args:
        labelled: The configurations of the labels; each names a reranker.
        extra: Configurations that were never labelled, to be chosen by their description alone.
        own: Descriptions by reranker, in place of those that ship.
        features: Parts of the agent's feature vector.
        embedder: Name of what embedded the questions of the labels.

    Raises:
        InputError: A name or a text is wrong, an extra reranker has no description, or the features are not the
            question's embedding alone.
        CoragError: The embedder cannot be used here.
    """
    if tuple(features) != ("query",):
        raise InputError(
            f"features is {','.join(features)}, but a description has no candidates to be compared with; set "
            "features=query, or describe=false"
        )
    rerankers = {name: setting_of(name, "reranker") for name in (*labelled, *extra)}
    if lacking := [name for name, reranker in rerankers.items() if reranker is None]:
        raise InputError(f"configuration {lacking[0]} names no reranker to be described; set describe=false")
    given = {str(parse(name)): text for name, text in own.items()}
    for name in extra:
        if name in labelled or not RERANKERS.knows(rerankers[name] or ""):
            raise InputError(
                f"extra_rerankers names {rerankers[name]!r}, which the labels have or which is unknown; the names are "
                f"{', '.join(RERANKERS.names)}, or that of a cross-encoder on the hub or in a folder"
            )
    for described, own_text in given.items():
        if described not in rerankers.values() or not own_text.strip():
            raise InputError(
                f"descriptions of {described!r}: expected a text, and a reranker of the labels or of extra_rerankers"
            )
    texts: dict[str, str] = {}
    for name, reranker in rerankers.items():
        text = given[str(reranker)] if reranker in given else description_of(str(reranker))
        if text is not None:
            texts[name] = " ".join(text.split())
        elif name in extra:
            raise InputError(f"reranker {reranker!r} has no description, so no agent could choose it; {REMEDY}")
    if missing := [str(rerankers[name]) for name in labelled if name not in texts]:
        logger.warning("no description of %s, so no question is aligned with it; %s", ", ".join(missing), REMEDY)
    if len(missing) == len(labelled):
        if extra:
            raise InputError(f"none of the labelled rerankers has a description to compare others with; {REMEDY}")
        return {}, None
    named = trusted(EMBEDDERS, embedder, "the label table")
    return texts, vectors_by(make_embedder(named), list(texts.values()))

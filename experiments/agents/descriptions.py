"""Descriptions of the rerankers that an agent chooses among, embedded as its questions are (paper 5.1)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agent.config import setting_of
from corag.errors import InputError
from corag.models.vectors import vectors_by
from corag.naming import parse
from corag.registry import EMBEDDERS, RERANKERS, trusted
from corag.registry import embedder as make_embedder
from corag.rerankers.descriptions import description_of
from corag.selectors.corag.features import Float32

logger = logging.getLogger(__name__)

REMEDY = "give one with descriptions: {NAME: text}, or put a model card (README.md) into the reranker's folder"


@dataclass(frozen=True, eq=False)
class Descriptions:
    """Texts by configuration, and their vectors in the same order, `[K, d]`; None where there are none."""

    texts: Mapping[str, str] = field(default_factory=dict)
    vectors: Float32 | None = None


def describe(
    labelled: Sequence[str], extra: Sequence[str], own: Mapping[str, str], features: Sequence[str], embedder: str
) -> Descriptions:
    """Return the descriptions of configurations by their rerankers; a warning names those labelled that have none.

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
    rerankers = {name: setting_of(name, "reranker") or "" for name in (*labelled, *extra)}
    given = {str(parse(name)): text for name, text in own.items()}
    _check_names([rerankers[name] for name in labelled], [rerankers[name] for name in extra], given)
    texts: dict[str, str] = {}
    for name, reranker in rerankers.items():
        text = given[reranker] if reranker in given else description_of(reranker)
        if text is not None:
            texts[name] = " ".join(text.split())
        elif name in extra:
            raise InputError(f"reranker {reranker!r} has no description, so no agent could choose it; {REMEDY}")
    if missing := [rerankers[name] for name in labelled if name not in texts]:
        logger.warning("no description of %s, so no question is aligned with it; %s", ", ".join(missing), REMEDY)
    if len(missing) == len(labelled):
        if extra:
            raise InputError(f"none of the labelled rerankers has a description to compare others with; {REMEDY}")
        return Descriptions()
    named = trusted(EMBEDDERS, embedder, "the label table")
    return Descriptions(texts, vectors_by(make_embedder(named), list(texts.values())))


def _check_names(labelled: Sequence[str], extra: Sequence[str], given: Mapping[str, str]) -> None:
    if twice := sorted(set(labelled) & set(extra)):
        raise InputError(f"extra_rerankers names {twice[0]!r}, which the labels have; leave it out")
    if strangers := sorted(set(given) - set(labelled) - set(extra)):
        raise InputError(
            f"descriptions name {strangers[0]!r}, which is neither in the labels ({', '.join(labelled)}) nor in "
            "extra_rerankers; correct the name, or add it there"
        )
    if unknown := [name for name in extra if not RERANKERS.knows(name)]:
        raise InputError(
            f"extra_rerankers names {unknown[0]!r}, which is unknown; the names are {', '.join(RERANKERS.names)}, or "
            "that of a cross-encoder on the hub or in a folder"
        )
    for name, text in given.items():
        if not text.strip():
            raise InputError(f"the description of {name!r} is empty; say what it is good for, or leave it out")

"""The reranker of selectors that are given none."""

from __future__ import annotations

from corag.models.shipped import shipped_checkpoint
from corag.registry import reranker as make_reranker
from corag.types import Reranker

TRAINED = "minilm-multihop"
"""Best of six on the mean of eight data sets, and better answers than with `UNTRAINED` on two of three; see
experiments/LOG.md."""
UNTRAINED = "minilm-softsim"
"""Needs no checkpoint, and finds more evidence than `minilm-maxsim`, of which it is a variant."""


def default_reranker() -> str:
    """Return the name of the reranker that is used where none is given.

    `minilm-multihop`; where the project's checkpoints are not at hand, as where packages were installed without the
    source tree, `minilm-softsim`. A selection's trace tells which it was.
    """
    return UNTRAINED if shipped_checkpoint(TRAINED) is None else TRAINED


def reranker_or_default(reranker: str | Reranker | None) -> Reranker:
    """Return a reranker given by name or as an object, or the default."""
    if reranker is None or isinstance(reranker, str):
        return make_reranker(reranker or default_reranker())
    return reranker

"""Checkpoints of `corag tune`: a configuration chosen for a user's questions, or one for each kind of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from corag.errors import ModelError
from corag.naming import parse
from corag.optional import require
from corag.registry import embedder as make_embedder
from corag.selectors.base import BudgetedSelector, Choice
from corag.selectors.corag.agents import check_at_hand
from corag.selectors.problem import SelectionProblem
from corag.selectors.wrapping import built
from corag.types import Embedder, FloatArray, Selection, TokenCounter

if TYPE_CHECKING:
    from corag.index.search import Retrieval

FORM = "corag-tuned"
FORMAT_VERSION = 1
CONFIG_FILE, WEIGHTS_FILE = "config.json", "model.safetensors"
CENTRES = "centres"


@dataclass(frozen=True)
class Tuned:
    """What a checkpoint of `corag tune` says.

    Attributes:
        path: Its folder.
        selector: Selector that was chosen, as `name(key=value, ...)`.
        retrieval: How candidates are best found in an index, or None.
        embedder: Embedder of the router.
        selectors: Selectors of the kinds of questions that a router tells apart; empty without one.
        centres: Unit vector of each kind, `[k, d]`.
        record: All that the checkpoint records.
    """

    path: Path
    selector: str
    retrieval: Retrieval | None = None
    embedder: str = "minilm"
    selectors: tuple[str, ...] = ()
    centres: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    record: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, path: str | Path) -> Tuned:
        """Read a checkpoint; one that is damaged or of another version is a `ModelError`."""
        folder = Path(path)
        try:
            record = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
            version = record["format_version"]
            if version != FORMAT_VERSION:
                raise ModelError(
                    f"{folder} has format_version {version!r}, this version reads {FORMAT_VERSION}; tune again"
                )
            selectors = tuple(map(str, record["router"] or ()))
            centres = np.zeros((0, 0))
            if selectors:
                load_file = require("safetensors.numpy", "models").load_file
                centres = load_file(folder / WEIGHTS_FILE)[CENTRES].astype(np.float64)
                if centres.ndim != 2 or len(centres) != len(selectors):
                    raise ValueError(f"{len(selectors)} selectors for centres of shape {centres.shape}")
            chosen = record["chosen"]
            return cls(
                folder,
                str(chosen["selector"]),
                chosen["retrieval"],
                str(record["embedder"]),
                selectors,
                centres,
                record,
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelError(f"{folder} is no readable checkpoint of corag tune ({error}); tune again") from error


class TunedChoice:
    """The selectors of a checkpoint, each built once.

    Args:
        tuned: What the checkpoint says.
        tokens: Counts tokens as the answering model does.
        embedder: Embeds questions for the router; by default the one that the checkpoint names.

    Raises:
        ModelError: A selector names a model of the hub that is not on this machine, or an embedder is given that the
            router was not made with.
    """

    def __init__(self, tuned: Tuned, tokens: TokenCounter, embedder: Embedder | None = None) -> None:
        self.tuned = tuned
        # A checkpoint may come from anybody: what it names is not fetched.
        for name in dict.fromkeys((tuned.selector, *tuned.selectors)):
            if isinstance(reranker := parse(name).settings.get("reranker"), str):
                check_at_hand(reranker, "reranker")
        if tuned.selectors and embedder is None:
            check_at_hand(tuned.embedder, "embedder")
            embedder = make_embedder(tuned.embedder)
        if tuned.selectors and embedder is not None and embedder.name != tuned.embedder:
            raise ModelError(
                f"{tuned.path} tells kinds of questions apart by {tuned.embedder!r}, but the embedder given is "
                f"{embedder.name!r}; leave it out"
            )
        self._embedder = embedder
        self._selector = cache(lambda name: built(name, tokens))
        self._kind = lru_cache(maxsize=1024)(self._nearest)

    def name(self, question: str) -> str:
        """Return how the selector for a question is spelled."""
        return self.tuned.selectors[self._kind(question)] if self.tuned.selectors else self.tuned.selector

    def selector(self, question: str) -> BudgetedSelector:
        """Return the selector for a question."""
        return self._selector(self.name(question))

    def choices(self, problems: Sequence[SelectionProblem]) -> list[Choice]:
        """Return what the selector for each question chooses."""
        names = [self.name(problem.query) for problem in problems]
        found: dict[int, Choice] = {}
        for name in dict.fromkeys(names):
            rows = [row for row, one in enumerate(names) if one == name]
            found |= dict(zip(rows, self._selector(name)._choose_many([problems[row] for row in rows]), strict=True))
        return [found[row] for row in range(len(problems))]

    def selection(self, problem: SelectionProblem, choice: Choice | None) -> Selection:
        """Return the selection of the selector for a question; its trace tells which that was."""
        made = self.selector(problem.query).select_from(problem, choice)
        details = {**made.trace.details, "tuned": self.name(problem.query)}
        return replace(made, trace=replace(made.trace, details=details))

    def _nearest(self, question: str) -> int:
        assert self._embedder is not None
        vector = self._embedder.embed([question])[0].astype(np.float64)
        return int((self.tuned.centres @ vector).argmax())


def is_tuned(agent: object) -> bool:
    """Return whether an agent is given as the folder of such a checkpoint."""
    if not isinstance(agent, str | Path):
        return False
    try:
        record = json.loads((Path(agent) / CONFIG_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(record, dict) and record.get("form") == FORM

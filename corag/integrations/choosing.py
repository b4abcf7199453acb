"""What the adapters share: a framework's documents become candidates, and the selection becomes documents again."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import PurePath
from typing import Any

from pydantic import BaseModel, Field, field_serializer

from common.checks import check_budget
from common.configuration import spelling
from corag.budget import choose_within
from corag.candidates import as_candidates
from corag.registry import SELECTORS, TOKENIZERS, Part
from corag.registry import tokens as make_tokens
from corag.text.documents import with_title
from corag.text.units import chosen_parts
from corag.types import Candidate, Selection, Selector, SimilarityKind, TokenCounter

logger = logging.getLogger(__name__)

KEY = "corag"
"""The key in the metadata of a chosen document that says how it was chosen."""


class Chooser(BaseModel):
    """Chooses documents under a token budget, which covers their text as the framework puts it into the prompt.

    The reranker reads the `title` in a document's metadata before its text. If the selector chooses sentences, as
    `corag` does, a document comes back with these alone; `unit="passage"` keeps documents whole. Documents given are
    never changed.

    Args:
        budget_tokens: The most tokens of the context.
        tokenizer: Counts tokens as the answering model does: name or object, such as `gpt-4o`. By default as the
            selector counts: MiniLM's.
        method: The selector: name or object; see `corag.selector`.
        score_kind: What the documents' scores are: `cosine`, `score` on another scale, or `rank`, which looks at
            their order alone. So does a question where a document has no score.
        settings: Settings of the selector, which may also be given beside these, by keyword.
    """

    budget_tokens: int = Field(1024, ge=1)
    tokenizer: Any = Field(None, frozen=True)
    method: Any = Field("corag", frozen=True)
    score_kind: SimilarityKind = "score"
    settings: dict[str, Any] = Field(default_factory=dict, frozen=True)

    def __init__(self, budget_tokens: int = 1024, **given: Any) -> None:
        known = {name: given.pop(name) for name in list(given) if name in type(self).model_fields}
        settings = {**(known.pop("settings", None) or {}), **given}
        if isinstance(method := known.get("method", "corag"), str):
            SELECTORS.check(method, **settings)
        super().__init__(budget_tokens=budget_tokens, settings=settings, **known)

    @field_serializer("method", "tokenizer", "settings")
    def by_name(self, value: Any) -> Any:
        """Return a setting with parts of this project and paths by their names, and others as they are."""
        if isinstance(value, Mapping):
            return {key: self.by_name(inner) for key, inner in value.items()}
        counts = isinstance(value, TokenCounter) and TOKENIZERS.knows(value.name)  # no function of one's own
        return spelling(value) if counts or isinstance(value, Part | PurePath) else value

    @cached_property
    def selector(self) -> Selector:
        """The selector, with its models; it is built when it is first used."""
        defaults = {} if self.tokenizer is None else {"tokenizer": make_tokens(self.tokenizer)}
        return SELECTORS.make(self.method, defaults=defaults, **self.settings)

    @abstractmethod
    def _write(self, document: Any, text: str, note: Mapping[str, Any]) -> Any:
        """Return a copy of a document, or a new one for None, with a text and a note."""

    @abstractmethod
    def _render(self, documents: Sequence[Any]) -> str:
        """Return the text that the prompt has for documents."""

    def choose(
        self, query: str, documents: Sequence[Any], budget_tokens: int | None = None
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return documents for a prompt, in its order, and `method`, `budget_tokens`, `cost_tokens`, `value`, `trace`.

        Documents are given best first. For errors see `BudgetedSelector.select`.
        """
        budget = self.budget_tokens if budget_tokens is None else budget_tokens
        check_budget(budget)
        by_id, candidates = self._candidates(documents)
        tokens = getattr(self.selector, "tokenizer", None) or make_tokens(self.tokenizer or "minilm")

        def written(left: int) -> tuple[list[Any], dict[str, Any]]:
            selection = self.selector.select(query, candidates, left)
            described = {**selection.summary(), "budget_tokens": budget}
            chosen = [*self._documents(selection, by_id, described)]
            described["cost_tokens"] = int(tokens.count([self._render(chosen)])[0]) if chosen else 0
            return chosen, described

        found = choose_within(budget, written, lambda one: one[1]["cost_tokens"])
        reason = "what the prompt puts around a text costs more than the budget"
        chosen, described = found or ([], {"budget_tokens": budget, "cost_tokens": 0, "trace": {"reason": reason}})
        if not chosen:
            logger.warning("nothing was chosen for the prompt: %s", described["trace"].get("reason"))
        return chosen, described

    def _candidates(self, documents: Sequence[Any]) -> tuple[dict[str, Any], list[Candidate]]:
        """Return the documents by the ids of their candidates, and these."""
        read = as_candidates(documents)
        scored = self.score_kind != "rank" and all(one.similarity is not None for one in read)
        by_id: dict[str, Any] = {}
        candidates = []
        for rank, (document, one) in enumerate(zip(documents, read, strict=True)):
            title, text, name = str(one.chunk.metadata.get("title") or "").strip(), one.chunk.text, one.chunk.id
            title = "" if text.startswith(with_title(title, "")) else title
            name = f"{name}~{rank}" if name in by_id else name
            chunk = replace(one.chunk, id=name, text=with_title(title, text), metadata={"title": title})
            similarity, kind = (one.similarity, self.score_kind) if scored else (None, "rank")
            candidates.append(replace(one, chunk=chunk, similarity=similarity, kind=kind, rank=rank))
            by_id[name] = document
        return by_id, candidates

    def _documents(self, selection: Selection, by_id: Mapping[str, Any], described: Mapping[str, Any]) -> Iterator[Any]:
        """Yield the documents of a selection, with notes; of a text that the selector wrote, one new document."""
        parts = chosen_parts(selection.chunks) if selection.spans else []
        if selection.text and not selection.spans:
            note = {"place": 0, "sources": list(selection.ids), "selection": described}
            yield self._write(None, selection.text, note)
        for place, part in enumerate(parts):
            note = {"place": place, **({"spans": part.spans} if part.spans else {}), "selection": described}
            # A tree that a selector was given has texts of its own.
            yield self._write(by_id.get(part.chunk.id), part.text, note)

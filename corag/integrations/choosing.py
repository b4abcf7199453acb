"""What the adapters share: a framework's documents become candidates, and the selection becomes documents again."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, Field, PrivateAttr, field_serializer

from corag.budget import choose_within
from corag.checks import check_budget, check_query
from corag.naming import Part, spelling
from corag.registry import SELECTORS
from corag.registry import tokens as make_tokens
from corag.text.documents import with_title
from corag.text.units import chosen_parts
from corag.types import Candidate, Chunk, Selection, Selector, SimilarityKind, TokenCounter

logger = logging.getLogger(__name__)

T = TypeVar("T")

KEY = "corag"
"""The key in the metadata of a chosen document that says how it was chosen."""


class Given(NamedTuple):
    """What a selector may know of a framework's document.

    Attributes:
        id: Its name; empty for none.
        text: Its text.
        title: What the reranker reads before the text; empty for nothing.
        score: The retriever's score; None for none.
    """

    id: str
    text: str
    title: str = ""
    score: float | None = None


class Chooser(BaseModel):
    """Chooses documents under a token budget, which covers their text as the framework puts it into the prompt.

    If the selector chooses sentences, as `corag` does, a document comes back with these alone; `unit="passage"` keeps
    documents whole. Documents given are never changed; those without text are left out.

    Args:
        budget_tokens: The most tokens of the context.
        tokenizer: Counts tokens as the answering model does: name or object, such as `gpt-4o`. By default as the
            selector counts: MiniLM's.
        method: The selector: name or object; see `corag.selector`.
        score_kind: What the documents' scores are: `cosine`, `score` on another scale, or `rank`, which looks at
            their order alone. So does a question where a document has no finite score.
        settings: Settings of the selector, which may also be given beside these, by keyword.
    """

    budget_tokens: int = Field(1024, ge=1)
    tokenizer: Any = Field(None, frozen=True)
    method: Any = Field("corag", frozen=True)
    score_kind: SimilarityKind = "score"
    settings: dict[str, Any] = Field(default_factory=dict, frozen=True)
    _built: tuple[Selector, TokenCounter] | None = PrivateAttr(None)

    def __init__(self, budget_tokens: int = 1024, **given: Any) -> None:
        known = {name: given.pop(name) for name in list(given) if name in type(self).model_fields}
        settings = {**(known.pop("settings", None) or {}), **given}
        if isinstance(method := known.get("method", "corag"), str):
            SELECTORS.check(method, **settings)
        super().__init__(budget_tokens=budget_tokens, settings=settings, **known)

    @field_serializer("method", "tokenizer", "settings")
    def _by_name(self, value: Any) -> Any:
        return by_name(value)

    def _parts(self) -> tuple[Selector, TokenCounter]:
        if self._built is None:
            defaults = {} if self.tokenizer is None else {"tokenizer": make_tokens(self.tokenizer)}
            selector = SELECTORS.make(self.method, defaults=defaults, **self.settings)
            self._built = selector, getattr(selector, "tokenizer", None) or make_tokens(self.tokenizer or "minilm")
        return self._built

    def choose(
        self, query: str, documents: Sequence[T], framework: Any, budget_tokens: int | None = None
    ) -> tuple[list[T], dict[str, Any]]:
        """Return documents for a prompt, in its order, and `method`, `budget_tokens`, `cost_tokens`, `value`, `trace`.

        Documents are given best first. A framework has `read_document(document) -> Given`, `write_document(document or
        None, text, note)`, which returns a copy or a new document, and `render_documents(documents)`, which returns the
        text that the prompt has for them. For errors see `BudgetedSelector.select`.
        """
        budget = self.budget_tokens if budget_tokens is None else budget_tokens
        check_budget(budget)
        by_id, candidates = _candidates(documents, framework, self.score_kind)
        nothing: dict[str, Any] = {"budget_tokens": budget, "cost_tokens": 0}
        if not candidates:
            return [], {**nothing, "trace": {"reason": "there are no documents with text"}}
        check_query(query)
        selector, tokens = self._parts()

        def written(left: int) -> tuple[list[T], dict[str, Any]]:
            selection = selector.select(query, candidates, left)
            described = {**selection.summary(), "budget_tokens": budget}
            chosen = _documents(selection, by_id, framework, described)
            described["cost_tokens"] = int(tokens.count([framework.render_documents(chosen)])[0]) if chosen else 0
            return chosen, described

        found = choose_within(budget, written, lambda one: one[1]["cost_tokens"])
        if found is None:
            reason = "what the prompt puts around a text costs more than the budget"
            found = [], {**nothing, "trace": {"reason": reason}}
        if not found[0]:
            logger.warning("nothing was chosen for the prompt: %s", found[1]["trace"].get("reason"))
        return found


def _candidates(documents: Sequence[T], framework: Any, kind: SimilarityKind) -> tuple[dict[str, T], list[Candidate]]:
    """Return the documents that have a text by the ids of their candidates, and these."""
    by_id: dict[str, T] = {}
    read: list[tuple[str, Given]] = []
    for position, document in enumerate(documents):
        given = framework.read_document(document)
        if given.text.strip():
            name = given.id or f"document-{position}"
            name = f"{name}~{position}" if name in by_id else name
            by_id[name] = document
            read.append((name, given))
    scored = kind != "rank" and all(given.score is not None and math.isfinite(given.score) for _, given in read)
    candidates = []
    for rank, (name, given) in enumerate(read):
        title = "" if given.text.startswith(with_title(given.title, "")) else given.title
        chunk = Chunk(name, with_title(title, given.text), {"title": title} if title else {})
        similarity = float(given.score) if scored and given.score is not None else None
        candidates.append(Candidate(chunk, similarity, kind if scored else "rank", rank=rank))
    return by_id, candidates


def _documents(selection: Selection, by_id: Mapping[str, T], framework: Any, described: Mapping[str, Any]) -> list[T]:
    """Return the documents of a selection, with notes; of a text that the selector wrote, one new document."""
    if not selection.spans:
        note = {"place": 0, "sources": list(selection.ids), "selection": described}
        return [framework.write_document(None, selection.text, note)] if selection.text else []
    return [
        framework.write_document(
            # A tree that a selector was given has texts of its own.
            by_id.get(part.chunk.id),
            part.text,
            {"place": place, **({"spans": part.spans} if part.spans else {}), "selection": described},
        )
        for place, part in enumerate(chosen_parts(selection.chunks))
    ]


def by_name(value: Any) -> Any:
    """Return a setting with parts of this project by their names, and others as they are."""
    if isinstance(value, Mapping):
        return {key: by_name(inner) for key, inner in value.items()}
    return spelling(value) if isinstance(value, Part | TokenCounter) else value

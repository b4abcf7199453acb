"""What the adapters share: a framework's documents become candidates, and the selection becomes documents again.

The budget covers the text that the framework puts into its prompt: a layout renders documents as the framework does,
and the rendered text is counted.
"""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, Self, TypeVar

from pydantic import BaseModel, Field, PrivateAttr, field_serializer

from corag.checks import check_budget, check_choice, check_query
from corag.errors import InputError
from corag.naming import Part, spelling
from corag.registry import SELECTORS, TOKENIZERS
from corag.registry import tokens as make_tokens
from corag.selectors.base import BudgetedSelector
from corag.text.documents import SEPARATOR, with_title
from corag.text.layout import Piece, pieces
from corag.types import Candidate, Chunk, Selection, Selector, SimilarityKind, TokenCounter

logger = logging.getLogger(__name__)

T = TypeVar("T")

DocumentOrder = Literal["selected", "given"]
"""The order that the selector chose, or that in which the documents came."""

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


class DocumentLayout(ABC, Generic[T]):
    """How a framework keeps its documents and shows them to a language model; a `Layout` for one question.

    Attributes:
        separator: The text between two documents in the prompt.
        order: The order of the documents in the prompt.
    """

    order: DocumentOrder = "selected"

    def __init__(self, separator: str = SEPARATOR) -> None:
        self.separator = separator

    @abstractmethod
    def read(self, document: T) -> Given:
        """Return the content of a document."""

    @abstractmethod
    def write(self, document: T | None, text: str, note: Mapping[str, Any] | None) -> T:
        """Return a copy of a document, or a new one, with a text and perhaps a note under `KEY` in its metadata."""

    @abstractmethod
    def render(self, documents: Sequence[T]) -> str:
        """Return the text that the prompt has for documents."""

    def candidates(self, documents: Sequence[T], kind: SimilarityKind) -> list[Candidate]:
        """Return the documents that have a text as candidates."""
        self._documents: dict[str, tuple[T, str]] = {}  # with the title that the text begins with
        read: dict[str, Given] = {}
        for position, document in enumerate(documents):
            given = self.read(document)
            if not given.text.strip():
                continue
            title = with_title(given.title, "")
            name = given.id or f"document-{position}"
            if name in read and read[name].text != given.text:
                name = f"{name}~{position}"
            if name not in read:
                read[name] = given
                self._documents[name] = document, title if given.text.startswith(title) else ""
        scored = kind != "rank" and all(
            given.score is not None and math.isfinite(given.score) for given in read.values()
        )
        candidates = []
        for rank, (name, given) in enumerate(read.items()):
            text = given.text if self._documents[name][1] else with_title(given.title, given.text)
            chunk = Chunk(name, text, {"title": given.title} if given.title else {})
            similarity = float(given.score) if scored and given.score is not None else None
            candidates.append(Candidate(chunk, similarity, kind if scored else "rank", rank=rank))
        return candidates

    def arranged(self, pieces: Sequence[Piece]) -> list[Piece]:
        """Return the pieces in the order of the prompt."""
        ranking = [*self._documents] if self.order == "given" else []
        return sorted(pieces, key=lambda piece: ranking.index(piece.chunk.id) if piece.chunk.id in ranking else 0)

    def text(self, pieces: Sequence[Piece]) -> str:
        """Return what the prompt has for the pieces."""
        return self.render([self.document(piece) for piece in pieces])

    def document(self, piece: Piece, note: Mapping[str, Any] | None = None) -> T:
        """Return the document of a piece, with what was chosen of it."""
        # A tree that a selector was given has texts of its own.
        document, title = self._documents.get(piece.chunk.id, (None, ""))
        return self.write(document, title + piece.text, note)


class _Built:
    """A selector and its counter, once they are built; copies and pickles build their own."""

    parts: tuple[Selector, TokenCounter] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _Built, ()


class Chooser(BaseModel):
    """Chooses documents under a token budget.

    If the selector chooses sentences, as `corag` does for questions about facts, a document comes back with these
    alone; `unit="passage"` keeps documents whole. Documents given are never changed; those without text are left out.

    Args:
        budget_tokens: The most tokens of the context, as the framework puts it into the prompt.
        tokenizer: Counts tokens as the answering model does: name or object, such as `gpt-4o`. By default as the
            selector counts: MiniLM's.
        method: The selector: name or object; see `corag.selector`.
        order: The order that the selector chose (`selected`), or that in which the documents came (`given`).
        score_kind: What the documents' scores are: `cosine`, `score` on another scale, or `rank`, which looks at
            their order alone. So does a question where a document has no finite score.
        trace: Whether the metadata of each document says, under `corag`, how it was chosen.
        settings: Settings of the selector, which may also be given beside these, by keyword.
    """

    budget_tokens: int = 1024
    tokenizer: Any = Field(None, frozen=True)
    method: Any = Field("corag", frozen=True)
    order: DocumentOrder = "selected"
    score_kind: SimilarityKind = "score"
    trace: bool = True
    settings: dict[str, Any] = Field(default_factory=dict, frozen=True)
    _cache: _Built = PrivateAttr(default_factory=_Built)

    def __init__(self, budget_tokens: int = 1024, **given: Any) -> None:
        known = {name: given.pop(name) for name in list(given) if name in type(self).model_fields}
        settings = {**(known.pop("settings", None) or {}), **given}
        # One line for a wrong setting, before pydantic writes several.
        check_budget(budget_tokens)
        check_choice("order", known.get("order", "selected"), DocumentOrder)
        check_choice("score_kind", known.get("score_kind", "score"), SimilarityKind)
        method, tokenizer = known.get("method", "corag"), known.get("tokenizer")
        if isinstance(method, str):
            SELECTORS.check(method, **settings)
        else:
            SELECTORS.make(method, **settings)
        if isinstance(tokenizer, str):
            TOKENIZERS.check(tokenizer)
        super().__init__(budget_tokens=budget_tokens, settings=settings, **known)

    @field_serializer("method", "tokenizer", "settings")
    def _by_name(self, value: Any, info: Any) -> Any:
        return as_json(info.field_name, value)

    def warm_up(self) -> Self:
        """Load the models now; else the first question does."""
        self._parts()
        return self

    def _parts(self) -> tuple[Selector, TokenCounter]:
        if self._cache.parts is None:
            offered = {} if self.tokenizer is None else {"tokenizer": make_tokens(self.tokenizer)}
            selector = SELECTORS.make(self.method, defaults=offered, **self.settings)
            tokens = offered.get("tokenizer") or getattr(selector, "tokenizer", None) or make_tokens()
            self._cache.parts = selector, tokens
        return self._cache.parts

    def choose(
        self, query: str, documents: Sequence[T], layout: DocumentLayout[T], budget_tokens: int | None = None
    ) -> tuple[list[T], dict[str, Any]]:
        """Return documents for a prompt, in its order, and what their notes say of the selection.

        Args:
            query: The question.
            documents: Best first. Those without text are left out.
            layout: Reads, writes and renders them; a new one for each question.
            budget_tokens: The most tokens of the rendered documents, if not those of the settings.

        Returns:
            The documents, and `method`, `budget_tokens`, `cost_tokens`, `value`, `trace`.

        Raises:
            InputError: As for `BudgetedSelector.select`.
        """
        budget = self.budget_tokens if budget_tokens is None else budget_tokens
        check_budget(budget)
        layout.order = self.order
        candidates = layout.candidates(documents, self.score_kind)
        if not candidates:
            return _nothing("there are no documents with text", budget)
        check_query(query)
        selector, tokens = self._parts()
        left = budget
        while left > 0:
            if isinstance(selector, BudgetedSelector):
                selection = selector.select(query, candidates, left, layout=layout)
            else:
                selection = selector.select(query, candidates, left)
            chosen, described = self._written(selection, layout, tokens, budget)
            excess = described["cost_tokens"] - budget
            if excess <= 0:
                if not chosen:
                    logger.warning("nothing was chosen for the prompt: %s", selection.trace.reason)
                return chosen, described
            # A text of the selector's own is counted without what the framework puts around it.
            left = left - excess if excess < left else left // 2
        return _nothing("what the prompt puts around a text costs more than the budget", budget)

    def _written(
        self, selection: Selection, layout: DocumentLayout[T], tokens: TokenCounter, budget_tokens: int
    ) -> tuple[list[T], dict[str, Any]]:
        """Return the documents of a selection, with notes, and what these say of the selection."""

        def count(text: str) -> int:
            return int(tokens.count([text])[0])

        described: dict[str, Any] = {**selection.summary(), "budget_tokens": budget_tokens, "cost_tokens": 0}

        def note(place: int, text: str, **more: Any) -> dict[str, Any] | None:
            return {"place": place, "tokens": count(text), **more, "selection": described} if self.trace else None

        if not selection.spans and selection.text != SEPARATOR.join(chunk.text for chunk in selection.chunks):
            rendered = layout.render([layout.write(None, selection.text, None)])
            described["cost_tokens"] = count(rendered)
            sources = note(0, rendered, sources=list(selection.ids))
            return [layout.write(None, selection.text, sources)], described
        documents = []
        for place, piece in enumerate(chosen := layout.arranged(pieces(selection.chunks))):
            spans = {"spans": [list(span) for span in piece.cut]} if piece.cut else {}
            documents.append(layout.document(piece, note(place, layout.text([piece]), **spans)))
        if chosen:
            described["cost_tokens"] = count(layout.text(chosen))
        return documents, described


def as_json(name: str, value: Any) -> Any:
    """Return a setting as JSON values, parts by name; `InputError` for nameless objects."""
    if isinstance(value, Mapping):
        value = {key: as_json(str(key), inner) for key, inner in value.items()}
    elif isinstance(value, list | tuple):
        value = [as_json(name, inner) for inner in value]
    elif isinstance(value, Path):
        value = str(value)
    elif not isinstance(value, str | bool | int | float | None):
        text, is_named = spelling(value), isinstance(value, Part) and value.is_named
        if not is_named and not (isinstance(value, TokenCounter) and TOKENIZERS.knows(text)):
            raise InputError(f"{name} is {value!r:.100}, an object that no name builds; give or register a name for it")
        return text
    return value


def _nothing(reason: str, budget_tokens: int) -> tuple[list[Any], dict[str, Any]]:
    logger.warning("nothing was chosen for the prompt: %s", reason)
    return [], {"budget_tokens": budget_tokens, "cost_tokens": 0, "trace": {"reason": reason}}

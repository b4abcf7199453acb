"""What the adapters share: a framework's documents become candidates, and the selection becomes documents again.

The budget is that of the text that the framework puts into its prompt: a layout renders documents as the framework
does, and the rendered text is what is counted.
"""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from corag.checks import check_budget, check_choice, check_query
from corag.errors import InputError
from corag.naming import Part, Spelling, spelling, without_secrets
from corag.registry import SELECTORS, TOKENIZERS
from corag.registry import tokens as make_tokens
from corag.selectors.base import BudgetedSelector
from corag.text.documents import SEPARATOR, with_title
from corag.text.layout import Piece, pieces
from corag.types import Candidate, Chunk, Selection, Selector, SimilarityKind, TokenCounter

logger = logging.getLogger(__name__)

T = TypeVar("T")

KEY = "corag"
"""The key in the metadata of a chosen document that says how it was chosen."""

DocumentOrder = Literal["selected", "given"]
"""The order that the selector chose, or that in which the documents came."""

Tokenizer = Spelling | Path | Callable[[str], object] | TokenCounter | None


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


class _Offered(NamedTuple, Generic[T]):
    """A document with its position among those given, and the title with which its text begins."""

    position: int
    document: T
    given: Given
    before: str


class DocumentLayout(ABC, Generic[T]):
    """How a framework keeps its documents and shows them to a language model; a `Layout` of those of one question.

    Attributes:
        separator: The text between two documents in the prompt.
        order: The order of the documents in the prompt.
    """

    separator = "\n\n"
    order: DocumentOrder = "selected"

    @abstractmethod
    def read(self, document: T) -> Given:
        """Return the content of a document."""

    @abstractmethod
    def write(self, document: T | None, text: str | None, note: Mapping[str, Any] | None) -> T:
        """Return a copy of a document with another text, or the same for None, and a note under `KEY` in its metadata.

        Without a document, a new one.
        """

    @abstractmethod
    def render(self, documents: Sequence[T]) -> str:
        """Return the text that the prompt has for documents."""

    def candidates(self, documents: Sequence[T], kind: SimilarityKind) -> list[Candidate]:
        """Return the documents that have a text as candidates."""
        self._offered: dict[str, _Offered[T]] = {}
        for position, document in enumerate(documents):
            given = self.read(document)
            if given.text.strip():
                before = with_title(given.title, "")
                before = before if before and given.text.startswith(before) else ""
                name = given.id or f"document-{position}"
                other = self._offered.get(name)
                if other is not None and other.given.text != given.text:
                    name = f"{name}~{position}"
                self._offered.setdefault(name, _Offered(position, document, given, before))
        scores = [offered.given.score for offered in self._offered.values()]
        scored = kind != "rank" and all(score is not None and math.isfinite(score) for score in scores)
        candidates = []
        for rank, (name, (_, _, given, before)) in enumerate(self._offered.items()):
            text = given.text if before else with_title(given.title, given.text)
            chunk = Chunk(name, text, {"title": given.title} if given.title else {})
            similarity = float(given.score) if scored and given.score is not None else None
            candidates.append(Candidate(chunk, similarity, kind if scored else "rank", rank=rank))
        return candidates

    def arranged(self, pieces: Sequence[Piece]) -> list[Piece]:
        """Return the pieces in the order of the prompt."""
        if self.order == "selected":
            return list(pieces)
        positions = {name: offered.position for name, offered in self._offered.items()}
        return sorted(pieces, key=lambda piece: positions.get(piece.chunk.id, 0))

    def text(self, pieces: Sequence[Piece]) -> str:
        """Return what the prompt has for the pieces."""
        return self.render([self.document(piece) for piece in pieces])

    def document(self, piece: Piece, note: Mapping[str, Any] | None = None) -> T:
        """Return the document of a piece, with what was chosen of it."""
        if piece.chunk.id not in self._offered:
            # A tree that a selector was given has texts of its own.
            return self.write(None, piece.text, note)
        _, document, given, before = self._offered[piece.chunk.id]
        text = before + piece.text
        return self.write(document, None if text == given.text else text, note)


class Chooser:
    """A selector and what counts its tokens, by name or as objects; built when they are first needed.

    Args:
        selector: Name or object.
        tokenizer: Name or object: counts as the answering model does. By default as the selector counts: MiniLM's.
        settings: Settings of a selector given by name.

    Raises:
        InputError: There is no such selector or tokenizer, or it does not take a setting.
    """

    def __init__(
        self, selector: Spelling | Selector = "corag", tokenizer: Tokenizer = None, settings: Mapping[str, Any] = {}
    ) -> None:
        if "tokens" in settings:
            raise InputError(f"tokens: got {settings['tokens']!r:.80}; use tokenizer= for the token counter")
        self._selector, self._tokenizer, self._settings = selector, tokenizer, dict(settings)
        self._built: tuple[Selector, TokenCounter] | None = None
        if isinstance(selector, str | Mapping):
            SELECTORS.check(selector, **settings)
        else:
            SELECTORS.make(selector, **settings)
        if isinstance(tokenizer, str | Mapping):
            TOKENIZERS.check(tokenizer)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copies and pickles, which build their own parts."""
        return {**self.__dict__, "_built": None}

    @property
    def built(self) -> tuple[Selector, TokenCounter]:
        """The selector and the counter; the first call loads their models."""
        if self._built is None:
            offered = {} if self._tokenizer is None else {"tokens": make_tokens(self._tokenizer)}
            selector = SELECTORS.offer(self._selector, offered, **self._settings)
            self._built = selector, offered.get("tokens") or getattr(selector, "tokens", None) or make_tokens()
        return self._built

    def to_dict(self) -> dict[str, Any]:
        """Return `selector`, `tokenizer` and the settings as JSON values; `InputError` for nameless objects."""
        own = {"selector": self._selector, "tokenizer": self._tokenizer, "settings": self._settings}
        return {name: _as_json(name, value) for name, value in own.items()}

    def choose(
        self,
        query: str,
        documents: Sequence[T],
        layout: DocumentLayout[T],
        budget_tokens: int,
        score_kind: SimilarityKind = "score",
    ) -> tuple[list[T], dict[str, Any]]:
        """Return documents for a prompt, in its order, and what their notes say of the selection.

        Args:
            query: The question.
            documents: Best first. Those without text are left out.
            layout: Reads, writes and renders them; a new one for each question.
            budget_tokens: The most tokens of the rendered documents.
            score_kind: What the documents' scores are; see `Candidate`. If one has none, or one that is no finite
                number, their order alone counts.

        Returns:
            The documents, and `selector`, `budget_tokens`, `cost_tokens`, `value`, `trace`.

        Raises:
            InputError: As for `BudgetedSelector.select`.
        """
        check_options(budget_tokens, layout.order, score_kind)
        candidates = layout.candidates(documents, score_kind)
        if not candidates:
            return _nothing("there are no documents with text", budget_tokens)
        check_query(query)
        selector, tokens = self.built
        left = budget_tokens
        while left > 0:
            if isinstance(selector, BudgetedSelector):
                selection = selector.select(query, candidates, left, layout=layout)
            else:
                selection = selector.select(query, candidates, left)
            chosen, described = _written(selection, layout, tokens, budget_tokens)
            excess = _tokens(tokens, layout.render(chosen)) - budget_tokens if chosen else 0
            if excess <= 0:
                if not chosen:
                    logger.warning("nothing was chosen for the prompt: %s", selection.trace.reason)
                return chosen, described
            # A text of the selector's own is counted without what the framework puts around it.
            left = left - excess if excess < left else left // 2
        return _nothing("what the prompt puts around a text costs more than the budget", budget_tokens)


def check_options(budget_tokens: object, order: object, score_kind: object) -> None:
    """Raise `InputError` for what is no budget, no order or no kind of scores."""
    check_budget(budget_tokens)
    check_choice("order", order, DocumentOrder)
    check_choice("score_kind", score_kind, SimilarityKind)


def _as_json(name: str, value: Any) -> Any:
    """Return a setting as JSON values, parts by their spelling; `InputError` for an object that no name builds."""
    if value is None or isinstance(value, str | bool | int | float | Path | Mapping | list | tuple):
        if isinstance(value, Mapping):
            value = {key: _as_json(str(key), inner) for key, inner in value.items()}
        elif isinstance(value, list | tuple):
            value = [_as_json(name, inner) for inner in value]
        return without_secrets({name: str(value) if isinstance(value, Path) else value})[name]
    text = spelling(value)
    is_named = isinstance(value, Part) and value.is_named
    if not is_named and not (isinstance(value, TokenCounter) and TOKENIZERS.knows(text)):
        raise InputError(f"{name} is {value!r:.100}, an object that no name builds; give or register a name for it")
    return text


def _written(
    selection: Selection, layout: DocumentLayout[T], tokens: TokenCounter, budget_tokens: int
) -> tuple[list[T], dict[str, Any]]:
    """Return the documents of a selection, with notes."""
    chosen = layout.arranged(pieces(selection.chunks))
    own = not selection.spans and selection.text != SEPARATOR.join(chunk.text for chunk in selection.chunks)
    described: dict[str, Any] = {
        "selector": selection.method,
        "budget_tokens": budget_tokens,
        "cost_tokens": 0,
        "value": selection.value,
        "trace": selection.trace.to_dict(),
    }
    if own:
        described["cost_tokens"] = _tokens(tokens, layout.render([layout.write(None, selection.text, None)]))
        note = {"place": 0, "tokens": described["cost_tokens"], "sources": list(selection.ids), "selection": described}
        return [layout.write(None, selection.text, note)], described
    if chosen:
        described["cost_tokens"] = _tokens(tokens, layout.text(chosen))
    documents = []
    for position, piece in enumerate(chosen):
        note = {"place": position, "tokens": _tokens(tokens, layout.text([piece])), "selection": described}
        if piece.cut:
            note["spans"] = [list(span) for span in piece.cut]
        documents.append(layout.document(piece, note))
    return documents, described


def _tokens(tokens: TokenCounter, text: str) -> int:
    return int(tokens.count([text])[0])


def _nothing(reason: str, budget_tokens: int) -> tuple[list[Any], dict[str, Any]]:
    logger.warning("nothing was chosen for the prompt: %s", reason)
    return [], {"budget_tokens": budget_tokens, "cost_tokens": 0, "trace": {"reason": reason}}

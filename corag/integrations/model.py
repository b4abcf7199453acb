"""The settings that adapters have as pydantic models, for frameworks whose components are such."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, Field, PrivateAttr, field_serializer

from corag.integrations.choosing import Chooser, DocumentLayout, DocumentOrder, T, check_options
from corag.types import SimilarityKind

_BUILDS = ("selector", "tokenizer", "settings")


class ChoosingModel(BaseModel):
    """Chooses documents under a token budget.

    Args:
        budget_tokens: The most tokens of the context, as the framework puts it into the prompt.
        tokenizer: Counts tokens as the answering model does: name or object, such as `gpt-4o`.
        selector: Chooses: name or object; see `corag.selector`.
        order: The order that the selector chose (`selected`), or that in which the documents came (`given`).
        score_kind: What the documents' scores are: `cosine`, `score` on another scale, or `rank`, which looks at
            their order alone.
        separator: The text between two documents in the prompt.
        trace: Whether the metadata of each document says, under `corag`, how it was chosen.
        settings: Settings of the selector, which may also be given beside these, by keyword.
    """

    budget_tokens: int = 1024
    tokenizer: Any = None
    selector: Any = "corag"
    order: DocumentOrder = "selected"
    score_kind: SimilarityKind = "score"
    separator: str = "\n\n"
    trace: bool = True
    settings: dict[str, Any] = Field(default_factory=dict)
    _chooser: Chooser = PrivateAttr()

    def __init__(self, budget_tokens: int = 1024, **given: Any) -> None:
        fields = type(self).model_fields
        known = {name: value for name, value in given.items() if name in fields}
        others = {name: value for name, value in given.items() if name not in fields}
        known["settings"] = {**(known.get("settings") or {}), **others}
        # One line for a wrong setting, before pydantic writes several.
        check_options(budget_tokens, known.get("order", "selected"), known.get("score_kind", "score"))
        chooser = Chooser(known.get("selector", "corag"), known.get("tokenizer"), known["settings"])
        super().__init__(budget_tokens=budget_tokens, **known)
        self._chooser = chooser

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a field; a changed selector is built again."""
        built = {field: getattr(self, field) for field in _BUILDS} | {name: value}
        chooser = Chooser(**built) if name in _BUILDS else None
        super().__setattr__(name, value)
        if chooser is not None:
            self._chooser = chooser

    @field_serializer(*_BUILDS)
    def _by_name(self, value: Any, info: Any) -> Any:
        return self._chooser.to_dict()[info.field_name]

    def warm_up(self) -> Self:
        """Load the models now; else the first question does."""
        _ = self._chooser.built
        return self

    def _choose(self, query: str, documents: list[T], layout: DocumentLayout[T]) -> list[T]:
        layout.separator, layout.order = self.separator, self.order
        return self._chooser.choose(query, documents, layout, self.budget_tokens, self.score_kind)[0]

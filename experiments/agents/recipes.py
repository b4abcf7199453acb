"""Recipes: settings of an agent's training by name. What is set beside a recipe wins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    C = TypeVar("C", bound=DataclassInstance)

Recipe = Literal["default", "paper"]
Group = Literal["agent", "target", "training"]

RECIPES: Mapping[Recipe, Mapping[Group, Mapping[str, Any]]] = {
    "default": {
        "agent": {"features": "texts,curve", "settings_head": False, "promise": True},
        "target": {"metric": "kept", "price": 0.01, "weighting": "equal"},
        "training": {"keep": "best"},
    },
    "paper": {
        "agent": {"features": "query", "settings_head": True, "promise": False},
        "target": {"metric": "rougeL", "price": 0.0, "weighting": "rule"},
        "training": {"keep": "last"},
    },
}
"""Settings that differ between recipes, which are None unless the user sets them.

All others are by default as in sections 5 and 6.1 of the CORAG paper, which names no optimizer and no choice of an
epoch.
"""


def with_recipe_defaults(config: C, recipe: Recipe, group: Group) -> C:
    """Return settings with those that are None as the recipe has them."""
    values = {name: value for name, value in RECIPES[recipe][group].items() if getattr(config, name) is None}
    return replace(config, **values)


def flattened(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by dotted name; those of Lightning's `trainer` are one setting."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        nested = isinstance(value, Mapping) and name != "trainer"
        flat |= flattened(value, f"{prefix}{name}.") if nested else {f"{prefix}{name}": value}
    return flat

"""Recipes: settings of an agent's training by name. What is set beside a recipe wins."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from types import MappingProxyType
from typing import Any, Literal

Recipe = Literal["default", "paper"]

RECIPES: Mapping[Recipe, Mapping[str, Any]] = MappingProxyType(
    {
        "default": {
            "target.metric": "f1",
            "target.noise": 0.02,
            "target.weighting": "margin",
            "describe": False,
            "training.keep": "best",
        },
        # Sections 5 and 6.1 of the CORAG paper, which names no optimiser and no choice of an epoch.
        "paper": {
            "features": "query",
            "hidden": (512, 256),
            "map_dim": 128,
            "min_lead": 0.0,
            "target.metric": "rougeL",
            "target.cost_weight": 0.0,
            "target.noise": 0.0,
            "target.weighting": "rule",
            "target.margin": 0.1,
            "target.class_value": "best",
            "target.shrink": 0.0,
            "describe": True,
            "training.lr": 1e-3,
            "training.batch_size": 32,
            "training.epochs": 60,
            "training.margin": 1.0,
            "training.contrastive_weight": 1.0,
            "training.choice_weight": 1.0,
            "training.settings_weight": 1.0,
            "training.description_weight": 1.0,
            "training.regret_weight": 0.0,
            "training.temperature": 0.0,
            "training.standardize": False,
            "training.optimizer": "adam",
            "training.patience": None,
            "training.keep": "last",
        },
    }
)
"""Settings by dotted name. Those on which recipes differ are None where the user leaves them to the recipe."""


def values_of(recipe: Recipe, group: str = "") -> dict[str, Any]:
    """Return the settings of a recipe in a group, such as `target`, or in none, by their names there."""
    parts = {name: name.rpartition(".") for name in RECIPES[recipe]}
    return {inner: RECIPES[recipe][name] for name, (of, _, inner) in parts.items() if of == group}


def left_open(config: object, recipe: Recipe, group: str = "") -> dict[str, Any]:
    """Return the values that a recipe has for the settings of a group that are None."""
    values = values_of(recipe, group)
    return {name: value for name, value in values.items() if getattr(config, name) is None and value is not None}


def departures(config: object, recipe: Recipe) -> dict[str, Any]:
    """Return what the settings of a training have otherwise than a recipe, by dotted name."""
    found = {name: reduce(getattr, name.split("."), config) for name in RECIPES[recipe]}
    return {name: value for name, value in found.items() if value != RECIPES[recipe][name]}

"""The settings of the search that selector `corag` is given, and what goes without saying."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import search
from corag.checks import check_choice
from corag.errors import InputError
from corag.naming import PartName, parse
from corag.registry import RERANKERS
from corag.selectors.corag.search import ENDING, NO_BOUND, Scale
from corag.types import PolicyReranker, Reranker

if TYPE_CHECKING:
    from agent import AgentPrediction

DEFAULT_ITERATIONS = 10
DEFAULT_COST_WEIGHT = 0.1
DEFAULT_EXPLORATION = 0.3
"""The paper's 2.4 is for rerankers that give raw logits. On values in [0, 1] it drowns every difference: with
it and 10 iterations `minilm-maxsim` selects the whole evidence of 43 of 100 HotpotQA training questions at
256 tokens, with 0.3 of 48, as many as exhaustive search."""

LOGITS: Mapping[str, Any] = MappingProxyType({"output": "logit"})
"""What a preset offers to a reranker that is given by name."""


def for_preset(reranker: str) -> str:
    """Return how a reranker that presets get by name is spelled, for those who build it themselves."""
    written = parse(reranker)
    takes = {name: value for name, value in LOGITS.items() if name in RERANKERS.settings(reranker)}
    return PartName(written.name, {**takes, **written.settings})


PREDICTED = ("iterations", "exploration", "cost_weight")
"""The settings that an agent predicts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchSettings:
    """Settings as they are given, None where they are not; for their meaning see `Corag` and `search.SearchConfig`.

    What is given wins over what an agent predicts, that over the preset, and that over the defaults.
    """

    preset: search.Preset | None = None
    policy: search.Policy | None = None
    iterations: int | None = None
    max_scored: int | None = None
    exploration: float | None = None
    cost_weight: float | None = None
    choice: search.Choice | None = None
    backup: search.Backup | None = None
    visits: search.Visits | None = None
    parallel: int | None = None
    prefilter: float = 1.0

    def __post_init__(self) -> None:
        if self.preset is not None:
            check_choice("preset", self.preset, search.PRESETS)

    @property
    def plain(self) -> bool:
        """Whether nothing is given."""
        return self == SearchSettings()

    @property
    def scale(self) -> Scale:
        """The scale of values where none is given: that of the preset, else of the question."""
        return "query" if self.preset is None else "raw"

    @property
    def offered(self) -> Mapping[str, Any]:
        """Settings for rerankers that are given by name and take them."""
        return {} if self.preset is None else LOGITS

    def config(self, reranker: Reranker | None, *, has_agent: bool = False) -> search.SearchConfig:
        """Return the settings of a search with a reranker.

        Raises:
            InputError: The policy has no use for a setting.
            search.SearchError: A setting breaks a rule.
        """
        wanted = reranker.search_policy if isinstance(reranker, PolicyReranker) and self.prefilter == 1 else None
        given = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "preset"}
        given = {name: value for name, value in given.items() if value is not None}
        preset = {} if self.preset is None else search.PRESETS[self.preset]
        policy = self.policy or preset.get("policy") or ("paper" if has_agent else wanted or "bayesian")
        defaults = {
            "policy": policy,
            "iterations": NO_BOUND if policy in ENDING else DEFAULT_ITERATIONS,
            "exploration": DEFAULT_EXPLORATION,
            "cost_weight": DEFAULT_COST_WEIGHT,
            # A weight of 0 changes no pick, and without it no values need to be scaled.
            "choice": "value-minus-cost" if self.cost_weight else "value",
        }
        try:
            config = search.SearchConfig(**{**defaults, **preset, **given})
        except search.SearchError as error:
            raise InputError(str(error)) from error
        self._check(config.policy)
        return config

    def predicted(self, config: search.SearchConfig, prediction: AgentPrediction) -> search.SearchConfig:
        """Return settings with what an agent predicts in place of what is not given."""
        changes: dict[str, Any] = {
            name: value
            for name in PREDICTED
            if getattr(self, name) is None and (value := getattr(prediction, name)) is not None
        }
        return replace(config, **changes)

    def trace(self, reranker: Reranker) -> dict[str, Any]:
        """Return what the trace tells about the preset: its name, and whether values are logits as its sources want."""
        if self.preset is None:
            return {}
        return {"preset": self.preset, "logits": getattr(reranker, "output", None) == "logit"}

    def _check(self, policy: search.Policy) -> None:
        for name in ("backup", "visits"):
            value = getattr(self, name)
            if value is not None and policy != "paper":
                fixes = "has its own" if policy in search.TREE_POLICIES else "has no tree"
                raise InputError(
                    f"{name} is {value!r}, but policy {policy!r} {fixes}; leave it out, or set policy to paper"
                )

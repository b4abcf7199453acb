"""Stand-ins: the same study with what ships, and at reduced size: `corag reproduce --standin`.

`experiments/configs/papers/standins.yaml` has the substitutions; the `standin` of a study comes first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

import agent
from corag.checks import check_choice
from corag.errors import InputError
from corag.models.trained import shipped_checkpoint
from corag.naming import PartName, hidden, parse
from corag.registry import EMBEDDERS, READERS, RERANKERS, SELECTORS, SUMMARIZERS
from corag.selectors.corag.agents import SHIPPED_AGENT
from experiments.data.folder import is_at_hand
from experiments.evaluation.config import EvaluateConfig
from experiments.papers.results import StandIn
from experiments.papers.study import STANDINS, Cell, Study, cells_of, make_axis, read_mapping

DEMO = "demo"
"""The data set that is always at hand."""
STANDIN_SETTINGS = ("base", "axes", "methods", "limit")
"""Settings of a study's `standin`."""
LANGUAGE_MODELS = ("openai", "ollama", "transformers")
ROLES = {
    "reader": READERS, "judge": READERS, "rewriter": READERS, "references_reader": READERS,
    "reranker": RERANKERS, "surrogate": RERANKERS, "summarizer": SUMMARIZERS, "embedder": EMBEDDERS,
    "selector": SELECTORS,
}  # fmt: skip
"""Settings that name a part, of `corag evaluate` and of methods, and of which kind."""
TRAINED = "trained"
"""Setting `agent`: the agent of the study itself."""
FALLBACK = "fallback"
"""Method of a stand-in: what the shipped agent chooses between, without the agent."""
NEEDS_MODEL = ("judge", "rewriter", "references_reader")
"""Parts that only a language model can be: they are left out."""


@lru_cache(maxsize=1)
def standins() -> Mapping[str, Any]:
    """Return the substitutions: what the YAML file holds, and the shipped agent."""
    return {**read_mapping(STANDINS), "agent": SHIPPED_AGENT if shipped_checkpoint(SHIPPED_AGENT) else "none"}


def substitute(role: str, value: Any) -> Any:
    """Return what replaces the value of a setting; None if it is left out."""
    if role == "agent":
        return standins()["agent"] if value == TRAINED else value
    if role not in ROLES or not isinstance(value, str):
        return value
    registry, part = ROLES[role], parse(value)
    if registry is SELECTORS:
        return PartName(part.name, _substituted(part.settings))
    if registry is READERS and part.name in LANGUAGE_MODELS:
        return None if role in NEEDS_MODEL else standins()["readers"]
    if registry is SUMMARIZERS and part.name in LANGUAGE_MODELS:
        return standins()["summarizers"]
    if registry is EMBEDDERS and part.name != standins()["embedders"]:
        return standins()["embedders"]
    if registry is RERANKERS and (part.name == "cross-encoder" or part.name not in RERANKERS.names):
        rerankers = standins()["rerankers"]
        return rerankers.get(str(part.settings.get("model", part.name)), rerankers["default"])
    return str(part)


def _substituted(settings: Mapping[str, Any]) -> dict[str, Any]:
    values = {name: substitute(name, value) for name, value in settings.items()}
    return {name: value for name, value in values.items() if value is not None}


def substitute_cell(cell: Cell, limit: int) -> Cell:
    """Return a cell with substitutions for its parts, data and number of questions."""
    settings = {**cell.settings, **standins()["settings"]}
    if cell.settings.get("latency_questions") is None:
        # Times of an efficiency study are of methods that share nothing.
        del settings["latency_questions"]
    settings = _substituted(settings) | data_set(str(settings.get("data", DEMO))) | {"limit": limit}
    for name in ("sample", "title"):
        settings.pop(name, None)
    if "judge" not in settings:
        settings.pop("judge_figures", None)
    # What replaces the data has answers.
    data = _substituted({name: value for name, value in cell.data.items() if name != "references"})
    if "stress" in data:
        data["stress"] = _substituted(data["stress"])
    methods = {label: substitute("selector", text) for label, text in cell.methods.items()}
    return replace(cell, settings=settings, data=data, methods=methods)


def data_set(name: str) -> dict[str, Any]:
    """Return the settings of the data set that replaces one, the first at hand, and its `title`."""
    table = standins()["data"]
    offered = table.get(name, [{"data": name}, table["default"]])
    for entry in offered if isinstance(offered, list) else [offered]:
        settings = dict(standins()["demo"] if entry == DEMO else entry)
        if settings["data"] == DEMO or is_at_hand(settings["data"]):
            return {"title": settings["data"], **settings}
    raise InputError(f"no data set replaces {name!r}; add demo to its list in {STANDINS}")


def reduced(study: Study) -> Study:
    """Return a study with its own changes for stand-ins."""
    given, axes = study.standin, dict(study.axes)
    for name in given:
        check_choice(f"{study.name}: a name in standin", name, STANDIN_SETTINGS)
    for name, values in given.get("axes", {}).items():
        check_choice(f"{study.name}: an axis of standin", name, axes)
        known = axes[name]
        if isinstance(values, list) and all(str(value) in known for value in values):
            axes[name] = {str(value): known[str(value)] for value in values}
        else:
            axes[name] = make_axis(name, values)
    methods = {**study.methods, **given.get("methods", {})}
    return replace(
        study,
        base={**study.base, **hidden(given.get("base", {}))},
        axes=axes,
        methods={label: _method(text) for label, text in methods.items() if text is not None},
    )


def _method(text: str) -> PartName:
    """Return a method; `fallback` is the one configuration that the shipped agent itself has for unknown questions."""
    if text != FALLBACK:
        return parse(text)
    path = shipped_checkpoint(SHIPPED_AGENT)
    fixed = "corag" if path is None else agent.load(path).config.fallback.configuration
    return parse(fixed).with_settings(agent="none")


def standin_of(full: Study, study: Study, cells: Sequence[Cell]) -> StandIn:
    """Return what is not as in a full study.

    Args:
        full: The study as the paper has it.
        study: The same, reduced.
        cells: Cells of the reduced study, with substitutions.
    """
    names: dict[str, dict[str, str]] = {}
    for axis, values in study.axes.items():
        for value, settings in values.items():
            for role in ("data", "reader", "reranker", "embedder"):
                if (name := _replacing(role, settings.get(role))) is not None:
                    names.setdefault(axis, {}).setdefault(value, name)
    # The title names the data sets that replace others: each by the label of an axis, or all together.
    pairs = list(names.get("data", {}).items())
    ours, theirs = study.axes.get("data", {}), full.axes.get("data", {})
    if not ours.keys() <= theirs.keys():
        pairs.append((", ".join(theirs), ", ".join(ours)))
    elif "data" in study.base:
        replaced = data_set(str(study.base["data"]))
        if replaced["data"] != full.base.get("data"):
            pairs.append((str(full.base.get("data")), str(replaced["title"])))
    title = "stand-in" + (": " if pairs else "") + ", ".join(f"{new} for {old}" for old, new in pairs)
    return StandIn(title, names, _differences(cells_of(full), cells))


def _replacing(role: str, value: Any) -> str | None:
    """Return the name of what replaces the value of a setting, if anything does."""
    if value is None:
        return None
    if role == "data":
        replaced = data_set(str(value))
        return str(replaced["title"]) if replaced["data"] != value else None
    after = substitute(role, value)
    return None if after in (None, str(parse(value))) else str(after)


def _differences(there: Sequence[Cell], here: Sequence[Cell]) -> list[tuple[str, str, str]]:
    """Return the settings, and the methods, that two lists of cells do not share: name, values there, values here."""
    usual = {setting.name: setting.default for setting in fields(EvaluateConfig)}
    sides = [[{**usual, **cell.settings, **cell.data, **cell.methods} for cell in cells] for cells in (there, here)]
    listed = []
    for name in dict.fromkeys(name for side in sides for settings in side for name in settings):
        values = [[cell[name] for cell in side if name in cell] or ["left out"] for side in sides]
        before, after = ("; ".join(dict.fromkeys(map(str, some))).replace("None", "none") for some in values)
        if before != after:
            listed.append((name, before, after))
    return listed

"""The same study with what ships, and at reduced size: `corag reproduce --standin`.

A study's own `small` comes first (`Study.reduced`); `configs/papers/small.yaml` has what is left to replace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from agent.configuration import Configuration
from corag.errors import InputError
from corag.naming import parse
from corag.registry import EMBEDDERS, READERS, RERANKERS, SELECTORS, SUMMARIZERS
from corag.selectors.corag.agents import DEFAULT_AGENT
from experiments.data.catalogue import DATA_SETS
from experiments.data.folder import is_at_hand
from experiments.evaluation.config import EvaluateConfig
from experiments.papers.study import SMALL, Cell, Study, read_mapping

DEMO, TRAINED = "demo", "trained"
"""The data set that is always at hand; setting `agent` of a study that takes `--agent`."""
LANGUAGE_MODELS = ("openai", "ollama")
ROLES = {
    "reader": READERS, "judge": READERS, "rewriter": READERS, "references_reader": READERS,
    "reranker": RERANKERS, "surrogate": RERANKERS, "summarizer": SUMMARIZERS, "embedder": EMBEDDERS,
    "selector": SELECTORS, "part": SELECTORS, "full": SELECTORS,
}  # fmt: skip
"""Settings that name a part, of `corag evaluate` and of methods, and of which kind."""
NEEDS_MODEL = ("judge", "rewriter", "references_reader", "references")
"""What only a language model can do is left out."""


def substitute(role: str, value: Any) -> Any:
    """Return what replaces the value of a setting; None if it is left out."""
    table = read_mapping(SMALL)
    if role == "agent":
        return DEFAULT_AGENT if value == TRAINED else value
    if isinstance(value, Mapping):
        return _substituted(value)
    if role not in ROLES or not isinstance(value, str):
        return None if role in NEEDS_MODEL else value
    registry, part = ROLES[role], parse(value)
    if registry is SELECTORS:
        return Configuration(part.name, _substituted(part.settings))
    if registry in (READERS, SUMMARIZERS) and part.name in LANGUAGE_MODELS:
        return None if role in NEEDS_MODEL else table[role]
    if registry is EMBEDDERS:
        return table[role]
    if registry is RERANKERS and (part.name == "cross-encoder" or part.name not in RERANKERS.names):
        rerankers = table["rerankers"]
        return rerankers.get(str(part.settings.get("model", part.name)), rerankers["default"])
    return str(part)


def _substituted(settings: Mapping[str, Any]) -> dict[str, Any]:
    values = {name: substitute(name, value) for name, value in settings.items()}
    return {name: value for name, value in values.items() if value is not None}


def substitute_cell(cell: Cell, limit: int) -> Cell:
    """Return a cell with substitutions for its parts, data and number of questions."""
    settings = {**cell.settings, **read_mapping(SMALL)["settings"]}
    if cell.settings.get("latency_questions") is None:
        # Times of an efficiency study are of methods that share nothing.
        del settings["latency_questions"]
    settings = _substituted(settings) | data_set(str(settings["data"])) | {"limit": limit}
    for name in ("sample", "title", *(() if "judge" in settings else ("judge_figures",))):
        settings.pop(name, None)
    methods = {label: substitute("selector", text) for label, text in cell.methods.items()}
    return replace(cell, settings=settings, methods=methods)


def data_set(name: str) -> dict[str, Any]:
    """Return the settings of the data set that replaces one, the demo if it is not at hand, and its `title`."""
    small = read_mapping(SMALL)
    settings = small["data"].get(name, {"data": name})
    return {"title": settings["data"], **settings} if is_at_hand(settings["data"]) else dict(small["demo"])


def labels_of(study: Study) -> dict[str, dict[str, str]]:
    """Return what replaces the data set or part that a value of an axis names, by axis and value."""
    names: dict[str, dict[str, str]] = {}
    for axis, values in study.grid.items():
        for value, settings in values.items():
            for role in ("data", "reader", "reranker", "embedder"):
                if (given := settings.get(role)) is None:
                    continue
                replaced = data_set(str(given)) if role == "data" else {role: substitute(role, given)}
                if replaced[role] not in (None, given if role == "data" else str(parse(given))):
                    names.setdefault(axis, {})[value] = str(replaced.get("title", replaced[role]))
    return names


def title_of(full: Study, study: Study, labels: Mapping[str, Mapping[str, str]]) -> str:
    """Return what a title adds: the data sets that replace others, each by the label of an axis, or all together."""
    pairs = list(labels.get("data", {}).items())
    ours, theirs = study.grid.get("data", {}), full.grid.get("data", {})
    if not ours.keys() <= theirs.keys():
        pairs.append((", ".join(theirs), ", ".join(ours)))
    elif "data" in study.evaluate and (replaced := data_set(study.evaluate["data"]))["data"] != full.evaluate["data"]:
        pairs.append((str(full.evaluate["data"]), str(replaced["title"])))
    return "stand-in" + (": " if pairs else "") + ", ".join(f"{new} for {old}" for old, new in pairs)


def differences(there: Sequence[Cell], here: Sequence[Cell]) -> list[tuple[str, str, str]]:
    """Return the settings, and the methods, that two lists of cells do not share: name, values there, values here."""
    defaults = {setting.name: setting.default for setting in fields(EvaluateConfig)}
    sides = [[{**defaults, **cell.settings, **cell.methods} for cell in cells] for cells in (there, here)]
    listed = []
    for name in dict.fromkeys(name for side in sides for settings in side for name in settings):
        values = [[cell[name] for cell in side if name in cell] or ["left out"] for side in sides]
        before, after = ("; ".join(dict.fromkeys(map(str, some))).replace("None", "none") for some in values)
        if before != after:
            listed.append((name, before, after))
    return listed


def check_at_hand(study: Study, cells: Sequence[Cell]) -> None:
    """Raise `InputError`, one line with the commands that get them, if data sets of some cells are missing."""
    missing = [name for name in dict.fromkeys(str(cell.settings["data"]) for cell in cells) if not is_at_hand(name)]
    if fetched := [name for name in missing if name in DATA_SETS]:
        commands = " && ".join(f"corag data get {name}" for name in fetched)
        raise InputError(
            f"{study.name} needs {', '.join(fetched)}; get them with: {commands}; or run what ships with: "
            f"corag reproduce {study.name} --standin"
        )
    if missing:
        raise InputError(f"{study.name} needs {', '.join(missing)}; CORAG_DATA names the folder above your copy")

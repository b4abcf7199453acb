"""Stand-ins: the same study with what ships, and at reduced size: `corag reproduce --standin`.

`experiments/configs/papers/standins.yaml` says what stands in for what; what a study's own `standin` says comes first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from corag.errors import DataError, InputError
from corag.models.trained import shipped_checkpoint
from corag.naming import PartName, hidden, parse
from corag.registry import EMBEDDERS, READERS, RERANKERS, SELECTORS, SUMMARIZERS, tokens
from corag.selectors.corag.agents import SHIPPED_AGENT
from corag.text.chunking import ChunkConfig, chunk_document
from corag.text.data import find_data
from corag.text.documents import Document, body
from experiments.demo import load
from experiments.papers.cells import Cell
from experiments.papers.study import STANDINS, Study, made_axis, read_mapping
from experiments.run.journal import write_data

SHIPPED = "shipped"
DEMO = "demo"
"""The data set that is always at hand."""
PASSAGE_TOKENS = 96
"""Of its passages, where candidates hold given shares of noise or of rewritings."""
STANDIN_SETTINGS = ("base", "axes", "methods", "limit", "remarks")
"""What a study may say under `standin`."""
LANGUAGE_MODELS = ("openai", "ollama", "transformers")
ROLES = {
    "reader": READERS, "judge": READERS, "rewriter": READERS, "references_reader": READERS,
    "reranker": RERANKERS, "surrogate": RERANKERS, "summarizer": SUMMARIZERS, "embedder": EMBEDDERS,
    "selector": SELECTORS,
}  # fmt: skip
"""Settings that name a part, of `corag evaluate` and of methods, and of which kind."""
TRAINED = "trained"
"""Setting `agent`: the agent of the study itself."""
NEEDS_MODEL = ("judge", "rewriter", "references_reader")
"""Parts that only a language model can be: they are left out."""
OF_JUDGE = ("judge_figures",)
"""Settings that say nothing without a judge."""


@dataclass(frozen=True)
class Standins:
    """What stands in for what; see the YAML file."""

    limit: int
    settings: Mapping[str, Any]
    readers: str
    summarizers: str
    embedders: str
    agent: str
    rerankers: Mapping[str, str]
    data: Mapping[str, Any]
    demo: Mapping[str, Any]

    def part(self, role: str, spelling: Any) -> Any:
        """Return what stands in for a part with some role; None where it is left out."""
        if not isinstance(spelling, str | Mapping):
            return spelling
        written = parse(spelling)
        registry = ROLES[role]
        if registry is SELECTORS:
            return self.method(spelling)
        if registry is READERS and written.name in LANGUAGE_MODELS:
            return None if role in NEEDS_MODEL else self.readers
        if registry is SUMMARIZERS and written.name in LANGUAGE_MODELS:
            return self.summarizers
        if registry is EMBEDDERS and written.name != self.embedders:
            return self.embedders
        if registry is RERANKERS and (written.name == "cross-encoder" or written.name not in RERANKERS.names):
            name = str(written.settings.get("model", written.name))
            return self.rerankers.get(name, self.rerankers["default"])
        return str(written)

    def method(self, spelling: str | Mapping[str, Any]) -> str:
        """Return a selector with what stands in for its parts."""
        written = parse(spelling)
        settings = {name: self._setting(name, value) for name, value in written.settings.items()}
        return PartName(written.name, {name: value for name, value in settings.items() if value is not None})

    def _setting(self, name: str, value: Any) -> Any:
        if name == "agent":
            return self.agent if value == TRAINED else value
        return self.part(name, value) if name in ROLES else value

    def cell(self, cell: Cell, limit: int) -> Cell:
        """Return a cell with what stands in for its parts, data and number of questions."""
        settings = {**cell.settings, **self.settings}
        if cell.settings.get("latency_questions") is None:
            # Times of an efficiency study are of methods that share nothing.
            settings["latency_questions"] = None
        for name in list(settings):
            settings[name] = self._setting(name, settings[name])
        chosen = self.set_of(str(settings.get("data", DEMO)))
        settings |= chosen | {"limit": limit, "sample": None}
        data = {name: self._setting(name, value) for name, value in cell.data.items()}
        if "stress" in data:
            data["stress"] = {name: self._setting(name, value) for name, value in data["stress"].items()}
        # What stands in has answers.
        data.pop("references", None)
        data = {name: value for name, value in data.items() if value is not None}
        settings = {name: value for name, value in settings.items() if value is not None}
        if "judge" not in settings:
            settings = {name: value for name, value in settings.items() if name not in OF_JUDGE}
        methods = {label: self.method(text) for label, text in cell.methods.items()}
        return replace(cell, settings=settings, data=data, methods=methods)

    def set_of(self, name: str) -> dict[str, Any]:
        """Return the settings of the data set that stands in for one: the first at hand."""
        offered = self.data.get(name, [{"data": name}, self.data["default"]])
        for one in offered if isinstance(offered, list) else [offered]:
            settings = dict(self.demo) if one == DEMO else dict(one)
            if settings["data"] == DEMO or _at_hand(settings["data"]):
                return settings
        raise InputError(f"nothing stands in for the data set {name!r}; add demo to its list in {STANDINS}")


@lru_cache(maxsize=1)
def standins() -> Standins:
    """Return what stands in for what."""
    given = read_mapping(STANDINS)
    if given["agent"] == SHIPPED:
        given["agent"] = str(shipped_checkpoint(SHIPPED_AGENT) or "none")
    return Standins(**given)


def reduced(study: Study) -> Study:
    """Return a study with its own changes for stand-ins."""
    given = dict(study.standin)
    if unknown := sorted(set(given).difference(STANDIN_SETTINGS)):
        raise InputError(f"{study.name}: standin has no {unknown[0]!r}; it can have {', '.join(STANDIN_SETTINGS)}")
    axes = dict(study.axes)
    for name, values in given.get("axes", {}).items():
        if name not in axes:
            raise InputError(f"{study.name}: standin names axis {name!r}; the axes are {', '.join(axes)}")
        known = axes[name]
        if isinstance(values, list) and all(str(value) in known for value in values):
            axes[name] = {str(value): known[str(value)] for value in values}
        else:
            axes[name] = made_axis(name, values)
    methods = {**study.methods, **given.get("methods", {})}
    return replace(
        study,
        base={**study.base, **{name: hidden(value) for name, value in given.get("base", {}).items()}},
        axes=axes,
        methods={label: parse(text) for label, text in methods.items() if text is not None},
        remarks=(*study.remarks, *given.get("remarks", ())),
    )


def stood_in(study: Study) -> dict[str, dict[str, str]]:
    """Return what stands in for the parts that values of axes name, by axis and value; a part once for each value."""
    found: dict[str, dict[str, str]] = {}
    for axis, values in study.axes.items():
        for value, settings in values.items():
            for role in ("reader", "reranker", "embedder"):
                before = settings.get(role)
                if before is not None and (after := standins().part(role, before)) != parse(before):
                    found.setdefault(axis, {}).setdefault(value, str(after))
    return found


def write_demo(folder: Path, *, passages: bool = False) -> Path:
    """Write the demo's data folder where it is not there yet, and return it; each question also has a wrong answer.

    Args:
        folder: Folder of data folders.
        passages: Cut its topics into passages, of which all of the topics that hold the evidence are of help; else each
            topic is one.
    """
    place = folder / (f"{DEMO}-passages" if passages else DEMO)
    if (place / "queries.jsonl").exists():
        return place
    content = load()
    documents, queries = content.documents, content.queries
    if passages:
        cut = {
            row["id"]: chunk_document(
                Document(row["id"], row["text"], row["title"]), tokens(), ChunkConfig(PASSAGE_TOKENS)
            )
            for row in documents
        }
        titles = {row["id"]: row["title"] for row in documents}
        documents = [
            {"id": f"{name}-{place}", "title": titles[name], "text": body(chunk)}
            for name, chunks in cut.items()
            for place, chunk in enumerate(chunks)
        ]
        queries = [
            {**row, "gold": [f"{name}-{place}" for name in row["topics"] for place in range(len(cut.get(name, ())))]}
            for row in queries
        ]
    write_data(place, documents, _with_claims(queries))
    return place


def _with_claims(queries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return questions with a wrong answer each, that of the question before, so that there is something to verify."""
    return [
        {**row, "hallucinated_answer": other["answers"][0]}
        for row, other in zip(queries, [queries[-1], *queries[:-1]], strict=True)
    ]


def _at_hand(name: str) -> bool:
    try:
        find_data(name)
    except DataError:
        return False
    return True


def described(cells: list[Cell], stood_in: list[Cell]) -> list[str]:
    """Return what stands in for what in these cells, a line for each kind of part."""
    pairs: dict[str, dict[str, str]] = {}
    for cell, other in zip(cells, stood_in, strict=True):
        for role in ("data", "reader", "reranker", "embedder"):
            before, after = str(cell.settings.get(role, "")), str(other.settings.get(role, ""))
            if before and before != after:
                pairs.setdefault(role, {})[before] = after
        changed = {label: other.methods[label] for label, text in cell.methods.items() if other.methods[label] != text}
        for label, after in changed.items():
            pairs.setdefault("methods", {}).setdefault(label, after)
    return [
        f"{role}: " + ", ".join(f"{after} for {before}" for before, after in found.items())
        for role, found in pairs.items()
    ]

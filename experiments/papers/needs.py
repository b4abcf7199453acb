"""What studies need: data sets, models and servers, with sizes, licences, and the command that gets each.

`corag reproduce list` shows it, and a full run looks for it before it computes anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import corag
from corag.cli.console import print_wide, say
from corag.errors import CoragError, DataError, InputError
from corag.models.known import BGE_M3, KNOWN_RERANKERS
from corag.naming import parse, split_parts
from corag.readers.chat import ChatReader
from corag.registry import EMBEDDERS, READERS, RERANKERS, SUMMARIZERS
from corag.text.data import find_data
from experiments.data.catalogue import find_data_set
from experiments.data.folder import read_source
from experiments.papers.cells import Cell, cells_of
from experiments.papers.standins import DEMO, LANGUAGE_MODELS, ROLES
from experiments.papers.study import Needs, Study, find_study, study_files

MODELS: Mapping[str, tuple[float, str]] = {
    "jinaai/jina-reranker-v1-turbo-en": (0.08, ""),
    "jinaai/jina-reranker-v2-base-multilingual": (0.56, ""),
    "BAAI/bge-reranker-v2-m3": (2.3, ""),
    "BAAI/bge-reranker-large": (2.2, ""),
    "BAAI/bge-reranker-base": (1.1, ""),
    "Alibaba-NLP/gte-multilingual-reranker-base": (0.6, ""),
    "BAAI/bge-m3": (2.3, ""),
    "BAAI/bge-large-en-v1.5": (1.3, "MIT"),
    "BAAI/bge-small-en-v1.5": (0.13, "MIT"),
    "intfloat/e5-base-v2": (0.44, "MIT"),
    "thenlper/gte-large": (0.67, "MIT"),
    "Alibaba-NLP/gte-Qwen2-1.5B-instruct": (7.1, "Apache-2.0"),
    "Alibaba-NLP/gte-Qwen2-7B-instruct": (30.5, "Apache-2.0"),
    "sentence-transformers/all-MiniLM-L6-v2": (0.09, "Apache-2.0"),
    "sentence-transformers/all-mpnet-base-v2": (0.44, "Apache-2.0"),
    "sentence-transformers/paraphrase-multilingual-mpnet-base-v2": (1.1, "Apache-2.0"),
    "facebook/contriever-msmarco": (0.44, "CC BY-NC 4.0"),
    "BAAI/llm-embedder": (0.44, "MIT"),
    "llama3:8b": (4.7, "Llama 3 Community"),
    "llama3.1:8b": (4.9, "Llama 3.1 Community"),
    "llama3.1:70b": (43.0, "Llama 3.1 Community"),
    "llama2:7b": (3.8, "Llama 2 Community"),
    "llama2:70b": (39.0, "Llama 2 Community"),
    "llama4:scout": (67.0, "Llama 4 Community"),
    "llama4:maverick": (245.0, "Llama 4 Community"),
    "mixtral:8x7b": (26.0, "Apache-2.0"),
    "mistral:7b": (4.1, "Apache-2.0"),
    "phi:2.7b": (1.6, "MIT"),
    "qwen2.5:7b": (4.7, "Apache-2.0"),
    "qwen2.5:14b": (9.0, "Apache-2.0"),
    "gemma2:9b": (5.4, "Gemma terms"),
}
"""Gigabytes to fetch, about, and the licence of models whose card is not in `corag.models.known`."""
COLUMNS = {
    "name": "name", "what": "what", "downloads": "downloads (size, licence)", "gpu": "GPU", "hours": "hours",
    "at_hand": "at hand",
}  # fmt: skip


@dataclass(frozen=True)
class Need:
    """One thing that a study needs and that does not ship.

    Attributes:
        kind: data, model, or LLM.
        name: Its name.
        gigabytes: To fetch, about; None where that is not known.
        licence: Of it.
        command: What gets it.
        at_hand: Whether it is there; None where only a server knows.
        why_not: What is wrong with it, if it is not there.
        spelling: Of a served language model, the reader that asks it.
    """

    kind: str
    name: str
    gigabytes: float | None
    licence: str
    command: str
    at_hand: bool | None
    why_not: str = ""
    spelling: str = ""

    def __str__(self) -> str:
        size = "" if self.gigabytes is None else _size(self.gigabytes)
        known = ", ".join(filter(None, (size, self.licence)))
        return f"{self.name} ({known or 'size and licence not known here'})"


def needs_of(study: Study, cells: list[Cell] | None = None) -> list[Need]:
    """Return what a study, or some of its cells, needs; with its own parts, not with those that stand in."""
    if study.includes:
        return list(dict.fromkeys(need for name in study.includes for need in needs_of(find_study(name))))
    cells = cells_of(study) if cells is None else cells
    found: dict[tuple[str, str], Need] = {}
    splits: dict[str, set[str]] = {}
    for data, split in sets_of(study, cells):
        splits.setdefault(data, set()).add(split)
    for data, wanted in splits.items():
        found["data", data] = _data(data, wanted)
    for role, spelling in _parts(study, cells):
        if (need := _model(role, spelling)) is not None:
            found.setdefault((need.kind, need.name), need)
    return list(found.values())


def check_needs(study: Study, cells: list[Cell], *, own_code: bool) -> None:
    """Raise `InputError`, one line, where something that some cells need is not at hand.

    Args:
        study: The study.
        cells: What is to be measured.
        own_code: Whether code that comes with a model may run.
    """
    needs = needs_of(study, cells)
    missing = [need for need in needs if need.at_hand is False]
    for need in needs:
        if need.kind == "LLM" and need.at_hand is None:
            missing += [Need(**{**vars(need), "why_not": why})] if (why := _unanswered(need.spelling)) else []
    if missing:
        reasons = "; ".join(f"{need.name}: {need.why_not}" for need in missing if need.why_not)
        commands = " && ".join(dict.fromkeys(need.command for need in missing))
        raise InputError(
            f"{study.name} needs {', '.join(str(need) for need in missing)}"
            + (f" ({reasons})" if reasons else "")
            + f"; get {'it' if len(missing) == 1 else 'them'} with: {commands}; or run what ships with: "
            f"corag reproduce {study.name} --standin"
        )
    strangers = [
        need.name for need in needs if need.name in KNOWN_RERANKERS and KNOWN_RERANKERS[need.name].needs_own_code
    ]
    if strangers and not own_code:
        raise InputError(
            f"{study.name} uses {', '.join(strangers)}, which run code from their repositories; read it, and add "
            "--trust_remote_code to let it run"
        )


def sets_of(study: Study, cells: Iterable[Cell]) -> Iterator[tuple[str, str]]:
    """Yield the data sets and splits that cells take their questions from, and the agent learns from."""
    trained = False
    for cell in cells:
        yield str(cell.settings.get("data", "")), str(cell.settings.get("split", "dev"))
        trained = trained or cell.settings.get("agent") == "trained"
    if trained and study.agent:
        for split in split_parts(str(study.agent["label"].get("splits", "train"))):
            yield str(study.agent["label"]["data"]), split


def _parts(study: Study, cells: Iterable[Cell]) -> Iterator[tuple[str, str]]:
    """Yield role and spelling of every part of some cells."""
    for cell in cells:
        yield from _named({**cell.settings, **cell.data, **cell.data.get("stress", {})})
        for text in cell.methods.values():
            yield from _named(parse(text).settings)
        if cell.settings.get("agent") == "trained" and study.agent:
            label = study.agent["label"]
            yield from _named(label)
            yield from (("reranker", one) for one in split_parts(label.get("rerankers", "")))


def _named(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in settings.items():
        if name in ROLES and isinstance(value, str | Mapping):
            if name == "selector":
                yield from _named(parse(value).settings)
            else:
                yield name, parse(value)


def _data(name: str, splits: set[str]) -> Need:
    try:
        known = find_data_set(name)
        size, licence = known.megabytes / 1000 or None, known.licence
        extra = f" --splits {','.join(sorted(splits))}" if splits - set(known.default_splits) else ""
    except InputError:
        size, licence, extra = None, "", ""
    command, why = f"corag data get {name}{extra}", ""
    try:
        record = read_source(find_data(name)) or {}
        lacking = splits - set(record.get("questions", splits))
        at_hand = not lacking
        if lacking:
            why, command = f"it lacks split {', '.join(sorted(lacking))}", f"{command} --overwrite"
    except DataError:
        at_hand = name == DEMO
    return Need("data", name, size, licence, command, at_hand, why)


def _model(role: str, spelling: str) -> Need | None:
    """Return what a part needs that does not ship; None where it ships."""
    registry, written = ROLES[role], parse(spelling)
    if registry in (READERS, SUMMARIZERS) and written.name in LANGUAGE_MODELS:
        builder: Any = READERS.builder(written.name)
        model = str(written.settings.get("model", getattr(builder, "model", written.name)))
        size, licence = MODELS.get(model, (None, ""))
        if written.name == "transformers":
            return Need("model", model, size, licence, f"hf download {model}", _on_disk(model))
        if written.name == "ollama":
            return Need("LLM", model, size, licence, f"ollama pull {model}", None, spelling=str(written))
        address = str(written.settings.get("base_url", "https://api.openai.com/v1"))
        command = f"a server of {model} at {address}, and OPENAI_API_KEY if it wants a key"
        return Need("LLM", model, None, f"served at {urlsplit(address).netloc}", command, None, spelling=str(written))
    name = written.name
    if registry is EMBEDDERS:
        name = BGE_M3.name if name in ("bge-m3", BGE_M3.name) else str(written.settings.get("model", name))
        if name in EMBEDDERS.names and name != BGE_M3.name:
            return None
    elif registry is RERANKERS:
        name = str(written.settings.get("model", name))
        if name in RERANKERS.names:
            return None
    else:
        return None
    card = {**KNOWN_RERANKERS, BGE_M3.name: BGE_M3}.get(name)
    size, licence = MODELS.get(name, (None, ""))
    return Need("model", name, size, card.licence if card else licence, f"hf download {name}", _on_disk(name))


def _on_disk(name: str) -> bool:
    """Return whether a model is a folder, or in the cache of the hub."""
    if Path(name).is_dir():
        return True
    from huggingface_hub import constants, try_to_load_from_cache

    folder = Path(constants.HF_HUB_CACHE) / f"models--{name.replace('/', '--')}"
    return isinstance(try_to_load_from_cache(name, "config.json"), str | os.PathLike) or any(
        folder.glob("snapshots/*/config.json")
    )


def _unanswered(spelling: str) -> str:
    """Return why a served model cannot be asked; empty where it can."""
    try:
        reader = corag.reader(spelling)
        if isinstance(reader, ChatReader):
            reader.chat.check()
    except CoragError as error:
        return str(error)
    return ""


def _size(gigabytes: float) -> str:
    return f"{gigabytes:.1f} GB" if gigabytes >= 1 else f"{1000 * gigabytes:.0f} MB"


def list_studies() -> None:
    """Print all studies as a table."""
    print_wide(list(rows()), COLUMNS, ("name", "what", "hours", "at_hand"), left=("what", "downloads"))
    say("Run one with: corag reproduce NAME; with what ships: corag reproduce NAME --standin; all: corag reproduce all")
    say("Hours are estimates for one GPU, unless marked as measured. Models of a server are not looked for here.")


def rows() -> Iterator[dict[str, Any]]:
    """Yield the lines of the table."""
    for name in study_files():
        study = find_study(name)
        needed = needs_of(study)
        own = study.needs if not study.includes else _joined(study)
        yield {
            "name": name,
            "what": study.title,
            "downloads": "\n".join(map(str, needed)) or "none",
            "gpu": f"{own.gpu_gb:g} GB" if own.gpu_gb else "-",
            "hours": f"{own.hours:g}{' measured' if own.measured else ''}",
            "at_hand": _at_hand(needed),
        }


def _joined(study: Study) -> Needs:
    """Return what the studies need together that one consists of."""
    parts = [find_study(name).needs for name in study.includes]
    return Needs(
        gpu_gb=max(part.gpu_gb for part in parts),
        hours=sum(part.hours for part in parts),
        measured=all(part.measured for part in parts),
    )


def _at_hand(needed: list[Need]) -> str:
    known = [need for need in needed if need.at_hand is not None]
    there = sum(bool(need.at_hand) for need in known)
    return "yes" if there == len(known) else f"{there} of {len(known)}"

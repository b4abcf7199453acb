"""What studies need: data sets, models and servers, with sizes, licences, and the command that gets each.

`corag reproduce list` shows it, and a full run looks for it before it computes anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from corag.cli.console import print_table, say
from corag.errors import InputError
from corag.models.known import BGE_M3, KNOWN_RERANKERS
from corag.naming import parse, split_parts
from corag.registry import READERS, SUMMARIZERS
from corag.text.data import find_data
from experiments.data.catalogue import find_data_set
from experiments.data.folder import is_at_hand, read_source
from experiments.papers.standins import DEMO, LANGUAGE_MODELS, ROLES, TRAINED
from experiments.papers.study import Cell, Study, cells_of, find_study, read_mapping, study_files

MODELS: Mapping[str, list[Any]] = read_mapping(Path(__file__).with_name("models.yaml"))
"""Gigabytes to fetch, about, and the licence, of models whose card is not in `corag.models.known`."""
COLUMNS = {"name": "name", "what": "what", "downloads": "downloads (size, licence)", "needs": "takes", "at": "at hand"}


class Need(NamedTuple):
    """A data set or a model that does not ship: size and licence as far as they are known, the command that gets it.

    Whether it is `at_hand` is None if only a server knows.
    """

    name: str
    about: str
    command: str
    at_hand: bool | None

    def __str__(self) -> str:
        return f"{self.name} ({self.about or 'size and licence not known here'})"


def needs_of(study: Study, cells: Sequence[Cell] | None = None) -> list[Need]:
    """Return what a study, or some of its cells, needs without substitutions."""
    cells = cells_of(study) if cells is None else cells
    splits: dict[str, set[str]] = {}
    parts: list[tuple[str, str]] = []
    for cell in cells:
        splits.setdefault(str(cell.settings.get("data", "")), set()).add(str(cell.settings.get("split", "dev")))
        parts += _named({**cell.settings, **cell.data, **cell.data.get("stress", {})})
        parts += [part for text in cell.methods.values() for part in _named(parse(text).settings)]
    if study.agent and any(cell.settings.get("agent") == TRAINED for cell in cells):
        label = study.agent["label"]
        splits.setdefault(str(label["data"]), set()).update(split_parts(str(label.get("splits", "train"))))
        parts += _named(label)
        for configuration in split_parts(label.get("configurations")):
            parts += _named(configuration.settings)
    models = [need for part in dict.fromkeys(parts) if (need := _model(*part)) is not None]
    return list(dict.fromkeys([*(_data(name, wanted) for name, wanted in splits.items()), *models]))


def check_needs(study: Study, cells: Sequence[Cell]) -> None:
    """Raise `InputError`, one line with the commands that get it, if something that some cells need is missing."""
    needs = needs_of(study, cells)
    if missing := [need for need in needs if need.at_hand is False]:
        commands = " && ".join(dict.fromkeys(need.command for need in needs if not need.at_hand))
        raise InputError(
            f"{study.name} needs {', '.join(map(str, missing))}; get them with: {commands}; or run what ships with: "
            f"corag reproduce {study.name} --standin"
        )


def _named(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield role and spelling of every part that some settings name."""
    for name, value in settings.items():
        if name == "selector":
            yield from _named(parse(value).settings)
        elif name in ROLES and isinstance(value, str):
            yield name, str(parse(value))


def _data(name: str, splits: set[str]) -> Need:
    about, command = "", f"corag data get {name}"
    with suppress(InputError):
        known = find_data_set(name)
        about = _about(known.megabytes / 1000, known.licence)
        command += f" --splits {','.join(sorted(splits))}" if splits - set(known.default_splits) else ""
    if not is_at_hand(name):
        return Need(name, about, command, name == DEMO)
    if lacking := splits - set(read_source(find_data(name)).get("questions", splits)):
        return Need(name, f"{about}; it lacks split {', '.join(sorted(lacking))}", f"{command} --overwrite", False)
    return Need(name, about, command, True)


def _model(role: str, spelling: str) -> Need | None:
    """Return what a part needs that does not ship; None if it ships."""
    registry, written = ROLES[role], parse(spelling)
    if registry in (READERS, SUMMARIZERS):
        if written.name not in LANGUAGE_MODELS:
            return None
        model = str(written.settings.get("model", getattr(READERS.builder(written.name), "model", written.name)))
        if written.name == "transformers":
            return Need(model, _about(*MODELS.get(model, ())), f"hf download {model}", _on_disk(model))
        if written.name == "ollama":
            return Need(model, _about(*MODELS.get(model, ())), f"ollama pull {model}", None)
        address = str(written.settings.get("base_url", "https://api.openai.com/v1"))
        command = f"a server of {model} at {address}, and OPENAI_API_KEY if it wants a key"
        return Need(model, f"served at {urlsplit(address).netloc}", command, None)
    name = str(written.settings.get("model", written.name))
    name = BGE_M3.name if name == "bge-m3" else name
    if name != BGE_M3.name and name in getattr(registry, "names", ()):
        return None
    card = {**KNOWN_RERANKERS, BGE_M3.name: BGE_M3}.get(name)
    size, licence = MODELS.get(name, (0.0, ""))
    return Need(name, _about(size, card.licence if card else licence), f"hf download {name}", _on_disk(name))


def _on_disk(name: str) -> bool:
    """Return whether a model is a folder, or in the cache of the hub."""
    from huggingface_hub import constants

    snapshots = Path(constants.HF_HUB_CACHE) / f"models--{name.replace('/', '--')}" / "snapshots"
    return Path(name).is_dir() or any(snapshots.glob("*/config.json"))


def _about(gigabytes: float = 0.0, licence: str = "") -> str:
    size = f"{gigabytes:.1f} GB" if gigabytes >= 1 else f"{1000 * gigabytes:.0f} MB" if gigabytes else ""
    return ", ".join(filter(None, (size, licence)))


def list_studies() -> None:
    """Print all studies as a table."""
    rows = []
    for study in map(find_study, study_files()):
        needed = needs_of(study)
        known = [need.at_hand for need in needed if need.at_hand is not None]
        rows.append(
            {
                "name": study.name,
                "what": study.title,
                "downloads": "\n".join(map(str, needed)) or "none",
                "needs": study.needs,
                "at": "yes" if all(known) else f"{sum(known)} of {len(known)}",
            }
        )
    print_table(rows, COLUMNS, left=("what", "downloads", "needs"))
    say("Run one with: corag reproduce NAME; with what ships: corag reproduce NAME --standin; all: corag reproduce all")
    say("Hours are estimates. Models of a server are not looked for here.")

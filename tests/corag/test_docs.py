"""The site of the documentation."""

import re

import pytest

import agent
import corag.selectors
import search
from experiments.report.measures import MEASURES
from tests.paths import ROOT

REFERENCE = ROOT / "docs" / "reference"


def members(page):
    return set(re.findall(r"^        - (\w+)$", (REFERENCE / page).read_text(encoding="utf-8"), re.MULTILINE))


def test_the_reference_has_every_selector_class_and_names_nothing_that_is_gone():
    classes = {name for name in dir(corag.selectors) if name[0].isupper()}
    assert classes - members("selectors.md") == {"BudgetedSelector", "Choice", "SelectionProblem"}
    for module, page in ((corag.selectors, "selectors.md"), (search, "search.md"), (agent, "agent.md")):
        assert all(hasattr(module, name) for name in members(page)), page


def test_every_measure_is_documented():
    text = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    assert [name for name in MEASURES if f"`{name}`" not in text] == []


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path, monkeypatch):
    mkdocs = pytest.importorskip("mkdocs.commands.build")
    from mkdocs.config import load_config

    monkeypatch.chdir(ROOT)
    # Strict, as the file says: a warning is an error.
    mkdocs.build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path)))
    for name in ("index", "start", "concepts", "reference/corag", "reference/search", "reference/integrations"):
        html = (tmp_path / f"{name}.html").read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=\"?(https?:[^\" >]+)", html)
        assert not loaded, name
    text = (tmp_path / "reference" / "search.html").read_text(encoding="utf-8")
    assert all(f'id="search.{name}"' in text for name in ("search", "search_many", "SearchResult"))
    assert (tmp_path / "files" / "experiments" / "LOG.md.txt").is_file()

"""What the campaign reads; and what it counted, printed at the end: workers hand that over with their reports."""

import shutil
from collections import Counter

import pytest

from corag.registry import RERANKERS
from tests.experiments.worlds import save_small_agent, write_folder, write_labels
from tests.fakes import HashReranker


@pytest.fixture(scope="module")
def world(tmp_path_factory, small_index):
    """A folder with data, index, agent and labels that are right."""
    folder = tmp_path_factory.mktemp("world")
    write_folder(folder / "data")
    save_small_agent(folder / "agent")
    write_labels(folder / "labels.parquet")
    shutil.copytree(small_index, folder / "index")
    return folder


@pytest.fixture(autouse=True)
def named_reranker(monkeypatch):
    """An agent names its rerankers, so one that costs nothing has a name."""
    monkeypatch.setitem(RERANKERS.parts, "hash", HashReranker)


@pytest.fixture
def figure(record_property):
    """Return a function that adds numbers to the figures that are printed at the end."""
    return lambda name, number: record_property("campaign", (name, number))


def pytest_terminal_summary(terminalreporter):
    """Print the sums of all figures."""
    reports = (report for found in terminalreporter.stats.values() for report in found)
    totals = Counter()
    for report in reports:
        for name, value in getattr(report, "user_properties", ()):
            if name == "campaign" and getattr(report, "when", "") == "call":
                totals[value[0]] += value[1]
    if totals:
        terminalreporter.section("campaign")
        for name in sorted(totals):
            terminalreporter.write_line(f"{totals[name]:>12,} {name}")

"""Whoever changes what a reader returns has to raise its version, or indexes keep what they read before."""

import json

import pytest

from corag.files.read import READERS
from tests.corag.files import golden


@pytest.fixture(scope="module")
def made():
    return golden.readings()


def test_readings_change_only_with_the_version_of_their_reader(made):
    recorded = json.loads(golden.PATH.read_text())
    assert {one["reader"] for one in recorded["samples"].values()} == READERS.keys() - {"man"}
    unraised = golden.changed_alone(made, recorded)
    assert not unraised, f"raise their version in corag/files/read.py or corag/text/chunking.py: {unraised}"
    assert made == recorded, "run: python -m tests.corag.files.golden"

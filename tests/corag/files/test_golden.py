"""Whoever changes what a reader returns has to raise its version, or indexes keep what they read before."""

import json

import pytest

from corag.files.read import READERS, reading_key
from tests.corag.files import golden


@pytest.fixture(scope="module")
def made():
    return golden.readings()


def test_readings_change_only_with_the_version_of_their_reader(made):
    recorded = json.loads(golden.PATH.read_text())
    assert recorded["readers"].keys() == READERS.keys() - {"man"}
    unraised = golden.changed_alone(made, recorded)
    assert not unraised, f"raise their version in corag/files/read.py or corag/text/chunking.py: {unraised}"
    assert made == recorded, "run: python -m tests.corag.files.golden"


def test_a_change_without_a_version_is_named(made):
    other = json.loads(json.dumps(made))
    other["readers"]["pdf"]["text"] += "x"
    other["chunking"]["version"] -= 1
    other["chunking"]["chunks"] = {}
    assert golden.changed_alone(made, other) == ["pdf"]


def test_the_key_of_a_file_is_of_bytes_name_and_kind():
    keys = [("a", "x.md", "markdown"), ("b", "x.md", "markdown"), ("a", "y.md", "markdown"), ("a", "x.md", "text")]
    assert len({reading_key(*key) for key in keys}) == len(keys)
    assert reading_key(*keys[0]) == reading_key(*keys[0])

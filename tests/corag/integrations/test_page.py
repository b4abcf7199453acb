"""The examples of docs/frameworks.md, which contact nobody; and what is said where a framework is missing."""

import importlib
import os
import subprocess
import sys

import pytest

from corag.errors import MissingExtraError
from tests.corag.test_readme import blocks
from tests.paths import ROOT

PAGE = ROOT / "docs" / "frameworks.md"


@pytest.mark.slow
def test_examples_do_what_they_say_and_contact_nobody(tmp_path):
    contacts = tmp_path / "contacts.txt"
    paths = os.pathsep.join([str(ROOT / "tests" / "offline"), str(ROOT)])
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HAYSTACK_", "LANGSMITH_"))}
    code = "\n".join([*blocks(PAGE, "python"), "print(result['builder']['prompt'])"])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, cwd=tmp_path,
        env={**kept, "PYTHONPATH": paths, "CORAG_TESTS_CONTACTS": str(contacts), "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not contacts.exists(), contacts.read_text()
    lines = done.stdout.splitlines()
    assert lines[:2] == ["The river Cher is long. Cher has 2 bridges."] * 2
    *context, asked = lines[2:]  # Haystack's prompt
    assert [line[:4] for line in context] == [f"[{rank}] " for rank in range(1, len(context) + 1)]
    assert any(line.endswith("Cher has 2 bridges.") for line in context)
    assert asked == "Question: How many bridges has the Cher?"


@pytest.mark.slow
def test_a_framework_that_is_missing_is_named_with_its_extra(monkeypatch):
    monkeypatch.delitem(sys.modules, "corag.integrations.langchain", raising=False)
    monkeypatch.setitem(sys.modules, "langchain_core.documents", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'corag\[langchain\]'"):
        importlib.import_module("corag.integrations.langchain")

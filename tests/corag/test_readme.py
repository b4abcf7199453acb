"""What the README shows works as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_python_example_runs(example):
    subprocess.run([sys.executable, "-c", example], check=True, timeout=120)


def test_the_first_example_fits_ten_lines():
    assert len([line for line in EXAMPLES[0].splitlines() if line.strip()]) <= 10


def test_the_selector_of_the_readme_is_short_and_keeps_the_budget():
    [example] = [example for example in EXAMPLES if "SELECTORS.register" in example]
    assert len([line for line in example.splitlines() if line.strip()]) <= 10
    check = """
candidates = [corag.Candidate(corag.Chunk(text, text), 0.5) for text in ("one two three four", "one", "one two")]
selection = corag.selector("cheapest").select("how many?", candidates, 4)
assert (selection.ids, selection.method, selection.cost_tokens) == (("one", "one two"), "cheapest", 3), selection
"""
    subprocess.run([sys.executable, "-c", example + check], check=True, timeout=120)


def test_every_command_is_one_of_ours():
    from corag.cli.main import commands

    shown = set(re.findall(r"^corag (\w+)", README.read_text(encoding="utf-8"), re.MULTILINE))
    assert shown <= set(commands())


def test_every_linked_file_is_there():
    links = re.findall(r"\]\(([^)#:]+)\)", README.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (README.parent / link).exists()] == []

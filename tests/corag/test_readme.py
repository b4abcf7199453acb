"""What the README and the pages of docs/ show works as it stands there, and the site builds."""

import ast
import json
import os
import re
import shlex
import subprocess
import sys

import pytest

import agent
import corag.selectors
import search
from common.configuration import split_parts
from corag.memory import cache_folder
from corag.optional import load
from corag.registry import SELECTORS, TABLES
from experiments.papers.study import cells_of, find_study, methods_of
from tests.paths import ROOT

README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page, language):
    """Return the code blocks of a page; one marked `python skip` needs a network or a GPU."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def shell_lines():
    """Return every command of every page, without comments, continuation lines joined."""
    return [
        words
        for page in PAGES
        for block in blocks(page, "sh")
        for line in block.replace("\\\n", " ").splitlines()
        if (words := shlex.split(line, comments=True))
    ]


# The pages on frameworks and on extending are run below.
PAGES_WITH_CODE = [page for page in PAGES if blocks(page, "python") and page.stem not in ("frameworks", "extending")]
RUN = """
import json, sys
for name, code in json.load(sys.stdin):
    exec(compile(code, name, "exec"), {"__name__": name})
"""


@pytest.mark.slow
def test_the_python_blocks_of_each_page_run_one_after_the_other():
    code = [(page.name, "\n".join(blocks(page, "python"))) for page in PAGES_WITH_CODE]
    subprocess.run([sys.executable, "-c", RUN], input=json.dumps(code), text=True, check=True, timeout=300, cwd=ROOT)


@pytest.mark.slow
def test_the_parts_of_the_page_on_extending_keep_their_contracts(tmp_path):
    code = "\n".join(blocks(ROOT / "docs" / "extending.md", "python"))
    (tmp_path / "test_page.py").write_text(code, encoding="utf-8")
    subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path], check=True, cwd=ROOT)


PARTS = {table.kind: table for table in TABLES}


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python skip")], ids=lambda page: page.stem)
def test_parts_in_code_that_is_not_run_are_there(page):
    calls = [
        node
        for block in blocks(page, "python skip")
        for node in ast.walk(ast.parse(block))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in PARTS
    ]
    for call in calls:
        PARTS[call.func.attr].check(ast.literal_eval(call.args[0]))
    assert calls


def test_the_study_that_is_shown_can_be_run(tmp_path):
    [study] = blocks(ROOT / "docs" / "experiments.md", "yaml")
    (tmp_path / "study.yaml").write_text(study, encoding="utf-8")
    cells = cells_of(find_study(str(tmp_path / "study.yaml")))
    assert len(cells) == 2 * 3 and all(map(SELECTORS.check, methods_of(cells)))


@pytest.mark.slow
@pytest.mark.parametrize("words", [line for line in shell_lines() if line[0] == "corag"], ids=" ".join)
def test_every_command_is_accepted(words, monkeypatch):
    from corag.cli import main

    _, settings, run, *_ = main.COMMANDS[main._command_of(words[1:])[0]]
    ran = []
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(main, "load", lambda path: ran.append if path == run else load(path))
    assert main.main(words[1:]) == 0
    assert [type(values) for values in ran] == [load(settings)]
    check_parts(ran[0])


def check_parts(values):
    """Raise `InputError` for a part, or a setting of one, that is not there."""
    for name, registry in {**PARTS, "method": SELECTORS}.items():
        for field in (name, f"{name}s"):
            text = getattr(values, field, None)
            for one in split_parts(text) if text and not os.path.exists(str(text)) else ():
                if one not in ("all", "none") or (name == "method" and one == "none"):
                    registry.check(one)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_linked_file_and_heading_is_there(page):
    text = page.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^):]+)\)", text) + re.findall(r'src="([^":]+)"', text)
    for link in links:
        path, _, heading = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        if heading:
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings}, link


REFERENCE = ROOT / "docs" / "reference"


def members(page):
    return set(re.findall(r"^        - (\w+)$", (REFERENCE / page).read_text(encoding="utf-8"), re.MULTILINE))


def test_the_reference_has_every_selector_class_and_names_nothing_that_is_gone():
    classes = {name for name in dir(corag.selectors) if name[0].isupper()}
    assert classes - members("selectors.md") == {"BudgetedSelector", "Choice", "SelectionProblem"}
    for module, page in ((corag.selectors, "selectors.md"), (search, "search.md"), (agent, "agent.md")):
        assert all(hasattr(module, name) for name in members(page)), page


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


PAGE = ROOT / "docs" / "frameworks.md"


@pytest.mark.slow
def test_examples_do_what_they_say_and_contact_nobody(tmp_path):
    contacts = tmp_path / "contacts.txt"
    paths = os.pathsep.join([str(ROOT / "tests" / "offline"), str(ROOT)])
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HAYSTACK_", "LANGSMITH_"))}
    code = "\n".join([*blocks(PAGE, "python"), "print(result['builder']['prompt'])"])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, cwd=tmp_path,
        env={**kept, "PYTHONPATH": paths, "CORAG_TESTS_CONTACTS": str(contacts), "HOME": str(tmp_path),
             "CORAG_CACHE": str(cache_folder())},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not contacts.exists(), contacts.read_text()
    lines = done.stdout.splitlines()
    assert lines[:2] == ["The river Cher is long. Cher has 2 bridges."] * 2
    *context, asked = lines[2:]  # Haystack's prompt
    assert [line[:4] for line in context] == [f"[{rank}] " for rank in range(1, len(context) + 1)]
    assert any(line.endswith("Cher has 2 bridges.") for line in context)
    assert asked == "Question: How many bridges has the Cher?"

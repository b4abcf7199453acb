"""The wheel is the product: it carries the trained parts, chooses as the checkout does, and is fully typed."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.paths import ROOT

pytestmark = pytest.mark.slow


CHOOSE = """
import json, corag
candidates = [corag.Candidate(corag.Chunk(str(place), text)) for place, text in enumerate((
    "The Oro is a river.", "The Oro ends in Lake Sable.", "Lake Sable is 310 metres deep.", "Cats sleep a lot."))]
chosen = corag.selector("corag").select("How deep is the lake in which the Oro ends?", candidates, budget_tokens=20)
reply = corag.ask("How deep is Lake Sable?", [candidate.chunk for candidate in candidates], budget_tokens=20,
    reader="extractive")
trace = chosen.trace
print(json.dumps([chosen.ids, chosen.value, trace.reranker, trace.iterations, reply.answer.text]))
print(corag.__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A folder with what the wheel holds, laid out as in site-packages."""
    folder = tmp_path_factory.mktemp("wheel")
    # Built from a copy: setuptools would leave its build folder in the source tree.
    copy = folder / "source"
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip("no git checkout to build the wheel from")
    for name in done.stdout.splitlines():
        if (ROOT / name).is_file() and not name.startswith("tests/"):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).symlink_to(ROOT / name)
    build = [sys.executable, "-m", "pip", "wheel", str(copy), "--no-deps", "--no-build-isolation", "--quiet"]
    subprocess.run([*build, "--wheel-dir", str(folder)], check=True, capture_output=True)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def python(*arguments, path, cwd):
    """Run Python outside the checkout, with `path` before everything that is installed."""
    variables = {**os.environ, "PYTHONPATH": str(path), "MYPYPATH": str(path), "PYTHONSAFEPATH": "1"}
    return subprocess.run(
        [sys.executable, *map(str, arguments)], env=variables, cwd=cwd, capture_output=True, text=True, check=False
    )


LEFT_OUT = ("experiments/figures/", "experiments/results/")
NOTEBOOK = (
    "experiments/LOG.md", "experiments/protocol/register.jsonl", "experiments/protocol/answers.yaml",
)  # fmt: skip


def test_the_wheel_has_the_data_and_no_labels(wheel):
    names = {str(path.relative_to(wheel)) for path in wheel.rglob("*") if path.is_file()}
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    wanted = {
        name for name in tracked
        if name.startswith(("corag/", "search/", "agent/", "common/", "experiments/", "checkpoints/"))
        and not name.startswith(LEFT_OUT) and (ROOT / name).is_file()
    } - {"checkpoints/README.md", *NOTEBOOK}  # fmt: skip
    assert wanted <= names
    assert [name for name in names if name.endswith(".parquet") or name.startswith("tests")] == []


def test_the_wheel_selects_and_answers_as_the_checkout(wheel, tmp_path, capsys):
    done = python("-c", CHOOSE, path=wheel, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    exec(CHOOSE, {})  # noqa: S102
    (of_wheel, file), (here, own) = done.stdout.splitlines(), capsys.readouterr().out.splitlines()
    assert Path(file).is_relative_to(wheel) and Path(own).is_relative_to(ROOT)
    chosen = json.loads(of_wheel)
    assert chosen == json.loads(here) and chosen[2] == "fused" and "310 metres" in chosen[-1]

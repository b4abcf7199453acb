"""Studies with what ships, at their smallest, and the page over all of them."""

import json
import re

import pytest

from corag.cli.main import main
from experiments.papers.study import cells_of, find_study
from tests.experiments.worlds import DOCUMENTS, QUERIES, write_folder

pytestmark = pytest.mark.slow

STUDIES = ("car-counts", "edc2-detection", "edc2-redundancy")
"""Of each way to prepare data."""


def write_sets(root):
    """Write a small data folder under every name that the stand-ins ask for, the same questions in each split."""
    every = [row["id"] for row in DOCUMENTS]
    answered = [{**row, "candidates": every, "hallucinated_answer": "a lamp"} for row in QUERIES if row["answers"]][:2]
    names = {cell.settings["data"] for name in STUDIES for cell in cells_of(find_study(name).standing_in())}
    for name in sorted(names):
        splits = ("train", "dev", "test", "all")
        rows = [{**row, "id": f"{split}-{row['id']}", "split": split} for split in splits for row in answered]
        write_folder(root / name, DOCUMENTS, rows)
    return root


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Small data sets, a cache that all studies share, and the folder of the results."""
    folder = tmp_path_factory.mktemp("papers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORAG_DATA", str(write_sets(folder / "sets")))
        patch.setenv("CORAG_CACHE", str(folder / "cache"))
        yield folder


def few(name):
    """A value of each long axis: the first one, and of short axes all."""
    return ",".join(next(iter(values)) for values in find_study(name).standing_in().grid.values() if len(values) > 1)


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_runs_with_what_ships(world, name, capsys):
    command = ["reproduce", name, "--standin", "--limit", "1", "--only", few(name), "--out", str(world / "out")]
    assert main([*command, "--quiet"]) == 0, capsys.readouterr().err
    folder = world / "out" / f"{name}-standin"
    record = json.loads((folder / "result.json").read_text())
    table = (folder / "table.md").read_text()
    assert "(stand-in" in table
    assert all({"questions", "budget", "candidates", "part"} <= set(cell) for cell in record["cells"])
    assert not any("encoder=" in cell["part"] for cell in record["cells"])  # an object has no spelling
    assert record["standin"] and record["cells"]
    if name == "edc2-redundancy":
        assert all(re.match(r"hotpotqa \(redundancy-\S+\), dev", cell["data"]) for cell in record["cells"])
    assert {cell["questions"] for cell in record["cells"]} <= {1}
    page = (world / "out" / "index.html").read_text()
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert f'id="{name}"' in page and len(set(ids)) == len(ids)
    assert f"{name}: " in (world / "out" / "index.md").read_text()

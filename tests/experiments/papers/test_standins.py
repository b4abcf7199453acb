"""Every study with what ships, at its smallest, and the page over all of them."""

import json
import re

import pytest

pytest.importorskip("lancedb")

from corag.cli.main import main
from experiments.papers.study import find_study
from tests.experiments.papers.worlds import MEASURED, write_sets

pytestmark = pytest.mark.slow


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
    study = find_study(name)
    axes = {**study.axes, **{axis: dict.fromkeys(map(str, one)) for axis, one in study.standin.get("axes", {}).items()}}
    return ",".join(next(iter(values)) for values in axes.values() if len(values) > 1)


@pytest.mark.parametrize("name", MEASURED)
def test_a_study_runs_with_what_ships(world, name, capsys):
    command = ["reproduce", name, "--standin", "--limit", "1", "--only", few(name), "--out", str(world / "out")]
    assert main([*command, "--quiet"]) == 0, capsys.readouterr().err
    folder = world / "out" / f"{name}-standin"
    record = json.loads((folder / "result.json").read_text())
    assert "(stand-in)" in (folder / "table.md").read_text().splitlines()[0]
    assert record["standin"] and (record["cells"] or record["lines"])
    assert {cell["questions"] for cell in record["cells"]} <= {1}
    if find_study(name).plot is not None:
        assert (folder / "figure.svg").read_text().startswith("<svg")
    page = (world / "out" / "index.html").read_text()
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert f'id="{name}"' in page and len(set(ids)) == len(ids)

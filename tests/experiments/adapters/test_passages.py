"""Calibrating how likely the passages that `ask` shows are right: `corag train reader --calibrate`."""

import json
import shutil

import numpy as np
import pytest

from corag.cli.main import main
from corag.readers.passages import CALIBRATION, EXPLANATION_CALIBRATION, OFFSET, WEIGHTS
from experiments.adapters import passages


def test_the_lines_that_ship_are_those_of_the_questions_judged_by_hand():
    lines = passages.lines(passages.likeliest(passages.judged(), np.array(WEIGHTS), OFFSET))
    np.testing.assert_allclose(lines, [CALIBRATION, EXPLANATION_CALIBRATION], atol=0.01)


@pytest.mark.slow
def test_calibrating_writes_the_constants_and_how_often_they_are_right(monkeypatch, films, tmp_path, capsys):
    # Each set is judged by what the others teach.
    for name in ("one", "two"):
        shutil.copytree(films / "films", tmp_path / name)
    monkeypatch.setattr(passages, "SETS", {"one": (8, 0.0), "two": (6, 0.0)})
    config = tmp_path / "reader.yaml"
    config.write_text(f"data: {tmp_path}\nsources: [{{data: one}}]\nlogger: none\n")
    out = tmp_path / "out"
    assert main(["train", "reader", "--config", str(config), "--calibrate", "--out", str(out)]) == 0
    file = out / "calibration.json"
    assert capsys.readouterr().out == f"{file.read_text()}constants of corag.readers.passages in {file}\n"
    result = json.loads(file.read_text())
    assert np.shape(result["weights"]) == np.shape(WEIGHTS) and np.shape(result["lines"]) == (2, 2)
    counted = {
        kind: sum(shares["questions"] for shares in bins.values())
        for kind, bins in result["reliability on the set left out"].items()
    }
    assert counted == {"sets": 14, "by hand": len(passages.judged())}
    assert list(out.glob("[!.]*")) == [file], "nothing is trained"
